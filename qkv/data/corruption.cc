#include "qkv/data/corruption.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/error.h"

namespace qkv {
namespace {

// A sequence of random numbers.
class Draws {
 public:
  explicit Draws(const RandomStream& random) : random_(random) {}
  double uniform() { return random_.uniform(next_++); }
  uint64_t below(uint64_t n) { return random_.below(next_++, n); }
  // Knuth, The Art of Computer Programming, 3.4.1.
  int64_t poisson(double mean) {
    const double limit = std::exp(-mean);
    int64_t n = 0;
    for (double product = uniform(); product > limit; product *= uniform()) ++n;
    return n;
  }
  void shuffle(std::vector<int64_t>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  RandomStream random_;
  uint64_t next_ = 0;
};

// `total` as a sum of `parts` positive numbers; every such sum is equally likely.
std::vector<int64_t> composition(int64_t total, int64_t parts, Draws& draws) {
  std::vector<int64_t> places(total - 1);  // gaps between units; the first parts - 1 become cuts
  std::iota(places.begin(), places.end(), 1);
  draws.shuffle(places);
  places.resize(parts - 1);
  std::sort(places.begin(), places.end());
  places.push_back(total);
  std::vector<int64_t> out;
  for (size_t i = 0; i < places.size(); ++i) out.push_back(places[i] - (i == 0 ? 0 : places[i - 1]));
  return out;
}

}  // namespace

Corrupted corrupt_spans(std::span<const int32_t> tokens, const SpanCorruption& options,
                        const RandomStream& random) {
  check(!options.sentinels.empty() && options.density > 0 && options.density < 1 && options.mean_length >= 1,
        "span corruption: density {} and length {} need sentinels", options.density, options.mean_length);
  Corrupted out;
  const int64_t n = std::ssize(tokens);
  if (n < 2) {
    out.source = out.target = {options.sentinels[0]};
    out.target.insert(out.target.end(), tokens.begin(), tokens.end());
    return out;
  }
  Draws draws(random);
  const int64_t hidden =
      std::clamp<int64_t>(std::llround(static_cast<double>(n) * options.density), 1, n - 1);
  const int64_t spans = std::clamp<int64_t>(
      std::llround(static_cast<double>(hidden) / options.mean_length), 1,
      std::min({hidden, n - hidden, static_cast<int64_t>(std::ssize(options.sentinels))}));
  const std::vector<int64_t> taken = composition(hidden, spans, draws),
                             kept = composition(n - hidden, spans, draws);
  for (int64_t s = 0, at = 0; s < spans; ++s) {
    const auto run = [&](std::vector<int32_t>& to, int64_t length) {
      to.insert(to.end(), tokens.begin() + at, tokens.begin() + at + length);
      at += length;
    };
    run(out.source, kept[s]);
    out.source.push_back(options.sentinels[s]);
    out.target.push_back(options.sentinels[s]);
    run(out.target, taken[s]);
  }
  return out;
}

Corrupted add_noise(std::span<const int32_t> tokens, const Denoising& options, const RandomStream& random) {
  check(options.infill >= 0 && options.infill < 1 && options.deletion >= 0 && options.deletion < 1 &&
            options.mean_length > 0,
        "denoising: infill {}, deletion {}, length {}", options.infill, options.deletion,
        options.mean_length);
  Corrupted out;
  out.target.assign(tokens.begin(), tokens.end());
  Draws draws(random);

  std::vector<std::span<const int32_t>> sentences;
  for (size_t begin = 0; begin < tokens.size();) {
    size_t end = begin + 1;
    const auto ends = [&](int32_t id) {
      return static_cast<size_t>(id) < options.ends.size() && options.ends[id];
    };
    while (end < tokens.size() && !ends(tokens[end - 1])) ++end;
    sentences.push_back(tokens.subspan(begin, end - begin));
    begin = end;
  }
  std::vector<int64_t> order(sentences.size());
  std::iota(order.begin(), order.end(), 0);
  if (options.permute) draws.shuffle(order);
  std::vector<int32_t> text;
  for (const int64_t s : order) text.insert(text.end(), sentences[s].begin(), sentences[s].end());

  // A span begins with probability p at each token. A share p mean / (1 - p + p mean) of the tokens then
  // lies in spans.
  const double begins = options.infill / (options.mean_length - options.infill * (options.mean_length - 1));
  for (size_t i = 0; i < text.size();) {
    if (options.infill > 0 && draws.uniform() < begins) {
      out.source.push_back(options.mask);
      const auto length = static_cast<size_t>(draws.poisson(options.mean_length));
      i += length;
      if (length > 0 || i >= text.size()) continue;
    }
    if (options.deletion == 0 || draws.uniform() >= options.deletion) out.source.push_back(text[i]);
    ++i;
  }
  if (out.source.empty()) out.source.push_back(options.mask);
  return out;
}

Corrupted cut_in_two(std::span<const int32_t> tokens, const RandomStream& random) {
  const auto n = std::ssize(tokens);
  const auto cut = tokens.begin() + (n < 2 ? n : 1 + random.below(0, n - 1));
  return {{tokens.begin(), cut}, {cut, tokens.end()}};
}

}  // namespace qkv
