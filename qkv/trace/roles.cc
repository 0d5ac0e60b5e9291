#include "qkv/trace/roles.h"

#include <fmt/format.h>

#include <algorithm>

#include "qkv/autograd/graph.h"
#include "qkv/base/rng.h"
#include "qkv/trace/lens.h"

namespace qkv {
namespace {

// Shows a function the probabilities of each head of the last stack's self-attention.
class HeadProbe : public Probe {
 public:
  using Seen = std::function<void(size_t layer, int64_t sequence, int64_t head, const Tensor& probabilities)>;

  explicit HeadProbe(const ModelSpec& spec) {
    for (int64_t l = 0; l < spec.layers && spec.has_blocks(); ++l)
      if (spec.block(l).mixer.attends()) {
        names.push_back(
            fmt::format("{}.block.{}.{}.probabilities", last_stack_of(spec), l, spec.block(l).mixer.part()));
        layers.push_back(l);
      }
    check(!names.empty(), "roles are of attention heads, and its last stack has none");
  }
  bool wants(std::string_view name) const override { return std::ranges::find(names, name) != names.end(); }
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) override {
    seen(static_cast<size_t>(std::ranges::find(names, name) - names.begin()), sequence, head, value);
  }
  void run(const Transformer& model, const ModelInput& input, Seen f) {
    const NoGrad guard;
    seen = std::move(f);
    Context context;
    context.probe = this;
    model.hidden(input, context);
  }

  std::vector<std::string> names;
  std::vector<int64_t> layers;
  Seen seen;
};

struct Mean {
  double total = 0;
  int64_t count = 0;
  void add(double x) {
    total += x;
    ++count;
  }
  double value() const { return count > 0 ? total / static_cast<double>(count) : 0; }
};

// For each token the places of earlier ones like it, and those behind them.
struct Likes {
  std::vector<std::vector<int64_t>> same, behind;
  explicit Likes(Span<const int32_t> ids) : same(ids.size()), behind(ids.size()) {
    std::map<int32_t, std::vector<int64_t>> places;
    for (int64_t i = 0; i < std::ssize(ids); ++i) {
      std::vector<int64_t>& earlier = places[ids[i]];
      same[i] = earlier;
      for (const int64_t j : earlier)
        if (j + 1 < i) behind[i].push_back(j + 1);
      earlier.push_back(i);
    }
  }
};

}  // namespace

struct RoleMeter::Heads {
  struct Sums {
    Mean previous, next, first, same, duplicate, induction;
    std::map<int64_t, int64_t> nearest;  // queries by the distance of their most attended key
    int64_t queries = 0;
  };
  HeadProbe probe;
  std::vector<std::vector<Sums>> sums;  // [layers that attend][heads]
};

RoleMeter::RoleMeter(const Transformer& model)
    : model_(model), heads_(new Heads{HeadProbe(model.spec()), {}}) {
  heads_->sums.resize(heads_->probe.names.size());
}
RoleMeter::~RoleMeter() = default;

void RoleMeter::add(const ModelInput& input) {
  std::vector<Likes> likes;
  for (size_t s = 0; s + 1 < input.layout.offsets.size(); ++s)
    likes.emplace_back(input.ids.values().subspan(input.layout.offsets[s],
                                                  input.layout.offsets[s + 1] - input.layout.offsets[s]));
  heads_->probe.run(model_, input, [&](size_t layer, int64_t sequence, int64_t head, const Tensor& p) {
    std::vector<Heads::Sums>& of_layer = heads_->sums[layer];
    if (std::ssize(of_layer) <= head) of_layer.resize(head + 1);
    Heads::Sums& sums = of_layer[head];
    const Likes& like = likes[sequence];
    for (int64_t i = 0; i < p.rows(); ++i) {
      const auto row = p.row<float>(i);
      const auto sum_at = [&](const std::vector<int64_t>& places, Mean& to) {
        double sum = 0;
        for (const int64_t j : places) sum += row[j];
        if (!places.empty()) to.add(sum);
      };
      if (i > 0) sums.previous.add(row[i - 1]);
      if (i + 1 < p.rows()) sums.next.add(row[i + 1]);
      if (i > 1) sums.first.add(row[0]);
      if (i > 0) sums.same.add(row[i]);  // the first of a causal model can do nothing else
      sum_at(like.same[i], sums.duplicate);
      sum_at(like.behind[i], sums.induction);
      if (i == 0) continue;
      ++sums.nearest[std::ranges::max_element(row) - row.begin() - i];
      ++sums.queries;
    }
  });
}

std::vector<HeadRole> RoleMeter::roles() const {
  std::vector<HeadRole> out;
  for (size_t l = 0; l < heads_->sums.size(); ++l)
    for (size_t h = 0; h < heads_->sums[l].size(); ++h) {
      const Heads::Sums& s = heads_->sums[l][h];
      HeadRole role{heads_->probe.layers[l], static_cast<int64_t>(h)};
      role.previous = s.previous.value();
      role.next = s.next.value();
      role.first = s.first.value();
      role.same = s.same.value();
      role.duplicate = s.duplicate.value();
      role.induction = s.induction.value();
      for (const auto& [distance, queries] : s.nearest)
        if (const double share = static_cast<double>(queries) / static_cast<double>(s.queries);
            share > role.positional) {
          role.positional = share;
          role.distance = distance;
        }
      out.push_back(role);
    }
  return out;
}

std::string HeadRole::name() const {
  constexpr double kEnough = 0.4;
  const std::pair<double, const char*> all[] = {{induction, "induction"},     {duplicate, "duplicate token"},
                                                {previous, "previous token"}, {next, "next token"},
                                                {same, "same token"},         {first, "first token"}};
  const auto best = std::ranges::max_element(all, {}, [](const auto& x) { return x.first; });
  return best->first >= kEnough ? best->second : "";
}

std::vector<int32_t> repeated_tokens(const std::vector<int32_t>& begin, int64_t from, int64_t vocab,
                                     int64_t length, uint64_t seed) {
  const int64_t half = (length - std::ssize(begin)) / 2;
  check(half > 0 && from < vocab, "repeated tokens: {} tokens behind {}, ids from {} of {}", length,
        begin.size(), from, vocab);
  const RandomStream random{seed, 0, 0};
  std::vector<int32_t> ids = begin;
  for (int64_t i = 0; i < half; ++i)
    ids.push_back(static_cast<int32_t>(
        from + static_cast<int64_t>(random.uniform(i) * static_cast<double>(vocab - from))));
  for (int64_t i = 0; i < half; ++i) ids.push_back(ids[begin.size() + i]);
  return ids;
}

struct RelationMeter::Heads {
  HeadProbe probe;
  std::vector<std::vector<int64_t>> found;  // [layers that attend][heads]
};

RelationMeter::RelationMeter(const Transformer& model)
    : model_(model), heads_(new Heads{HeadProbe(model.spec()), {}}) {
  heads_->found.resize(heads_->probe.names.size());
}
RelationMeter::~RelationMeter() = default;

void RelationMeter::add(const RelatedWords& text) {
  check(text.input.layout.sequences() == 1, "relations: one sequence a pass, got {}",
        text.input.layout.sequences());
  for (const auto& [begin, end] : text.words)
    check(begin >= 0 && begin < end && end <= text.input.ids.count(),
          "relations: a word of tokens {} to {} of {}", begin, end, text.input.ids.count());
  for (const auto& [from, to] : text.pairs) {
    check(from >= 0 && to >= 0 && std::max<int64_t>(from, to) < std::ssize(text.words) && from != to,
          "relations: a pair of words {} and {} of {}", from, to, text.words.size());
    ++pairs_;
    ++distances_[to - from];
  }
  heads_->probe.run(model_, text.input,
                    [&](size_t layer, int64_t /*sequence*/, int64_t head, const Tensor& p) {
                      std::vector<int64_t>& found = heads_->found[layer];
                      if (std::ssize(found) <= head) found.resize(head + 1);
                      for (const auto& [from, to] : text.pairs) {
                        double most = 0;
                        int64_t best = -1;
                        for (int64_t w = 0; w < std::ssize(text.words); ++w) {
                          if (w == from) continue;
                          double sum = 0;
                          for (int32_t i = text.words[from].first; i < text.words[from].second; ++i)
                            for (int32_t j = text.words[w].first; j < text.words[w].second; ++j)
                              sum += p.row<float>(i)[j];
                          if (sum > most) {
                            most = sum;
                            best = w;
                          }
                        }
                        found[head] += best == to;
                      }
                    });
}

std::vector<RelationScore> RelationMeter::scores() const {
  std::vector<RelationScore> out;
  for (size_t l = 0; l < heads_->found.size(); ++l)
    for (size_t h = 0; h < heads_->found[l].size(); ++h)
      out.push_back({heads_->probe.layers[l], static_cast<int64_t>(h), heads_->found[l][h]});
  return out;
}

std::pair<int64_t, int64_t> RelationMeter::best_distance() const {
  std::pair<int64_t, int64_t> best{0, 0};
  for (const auto& [distance, count] : distances_)
    if (count > best.second) best = {distance, count};
  return best;
}

}  // namespace qkv
