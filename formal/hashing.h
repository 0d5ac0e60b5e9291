#pragma once

// Attention by locality-sensitive hashing (Kitaev et al. 2020, Reformer, section 2).

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <vector>

#include "formal/attention.h"

namespace qkv::formal {

// How tokens find the keys that they see; without buckets, by their positions alone. A sequence of at most
// `chunk` tokens is attended to in full; chunk 0: all are.
struct Hashing {
  Index chunk = 0;                // m
  Index before = 1, after = 0;    // chunks that a chunk sees beside itself
  Index rounds = 1;               // n_rounds
  std::vector<Index> buckets;     // n_1, n_2, ...: there are n_1 n_2 ... buckets
  bool same_bucket = false;       // the paper's rules: keys of the query's bucket, each counted once
  Index multiple = 1, whole = 0;  // sequences longer than `whole` are filled up to a multiple of this
  // R of each head, [d x rounds (n_1 + n_2 + ...) / 2]: the columns of one round after another's.
  std::vector<Matrix<double>> R;

  Index columns() const { return std::accumulate(buckets.begin(), buckets.end(), Index{0}) / 2; }
  bool hashes(Index l) const { return chunk > 0 && filled(l) > chunk; }
  // The length of l tokens with what fills them up.
  Index filled(Index l) const { return l <= whole ? l : (l + multiple - 1) / multiple * multiple; }
};

// h(x) = argmax [x R, -x R], counted from 0, for each factor; the first factor's changes fastest.
template <typename T>
Index bucket(const Hashing& h, const Matrix<double>& R, Index round, const Vector<T>& x) {
  Index out = 0, place = 1, first = round * h.columns();
  for (const Index n : h.buckets) {
    Index highest = 0;
    double most = 0;
    for (Index i = 0; i < n; ++i) {
      double u = 0;
      for (Index c = 0; c < x.size(); ++c)
        u += value(x[c]) * (i < n / 2 ? R(c, first + i) : -R(c, first + i - n / 2));
      if (i == 0 || u > most) highest = i, most = u;
    }
    out += place * highest;
    place *= n;
    first += n / 2;
  }
  return out;
}

// How often query t sees key s: entry (s, t) of [l x l]. Tokens are sorted by (round, bucket, position), all
// rounds in a row, and cut into chunks; the chunk before the first is the last, and one farther away than
// there are chunks is the query's own, as in Hugging Face's code. Tokens that fill a sequence up are in a
// bucket behind all others. Q [d x l]; Mask: what a query may see at all.
template <typename T>
Matrix<double> sightings(const Hashing& h, const Matrix<double>& R, const Matrix<T>& Q,
                         const MaskMatrix& Mask) {
  struct Place {
    Index round, bucket, t;
    bool operator<(const Place& other) const {
      return std::tie(round, bucket, t) < std::tie(other.round, other.bucket, other.t);
    }
  };
  const Index l = Q.cols(), all = h.filled(l),
              last = std::accumulate(h.buckets.begin(), h.buckets.end(), Index{1},
                                     [](Index a, Index b) { return a * b; });
  std::vector<Place> places;
  for (Index r = 0; r < h.rounds; ++r)
    for (Index t = 1; t <= all; ++t)
      places.push_back({r, t > l ? last : bucket<T>(h, R, r, Vector<T>(column(Q, t))), t});
  std::sort(places.begin(), places.end());
  const Index chunks = static_cast<Index>(places.size()) / h.chunk;
  Matrix<double> N = Matrix<double>::Constant(l, l, 0);
  for (Index c = 0; c < chunks; ++c)
    for (Index near = -h.before; near <= h.after; ++near)
      for (Index i = 0; i < h.chunk; ++i)
        for (Index j = 0; j < h.chunk; ++j) {
          const Index other = std::abs(near) > chunks ? c : (c + near + chunks) % chunks;
          const Place &query = places[static_cast<std::size_t>(c * h.chunk + i)],
                      &key = places[static_cast<std::size_t>(other * h.chunk + j)];
          if (query.t > l || key.t > l || !entry(Mask, key.t, query.t)) continue;
          if (h.same_bucket && (key.round != query.round || key.bucket != query.bucket)) continue;
          double& n = entry(N, key.t, query.t);
          n = h.same_bucket ? 1 : n + 1;
        }
  return N;
}

}  // namespace qkv::formal
