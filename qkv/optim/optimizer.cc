#include "qkv/optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/optim/adafactor.h"
#include "qkv/optim/arenas.h"

namespace qkv {
namespace {

constexpr const char* kKindNames[] = {"matrix", "vector"};

Rule rule_of(const OptimizerConfig& c) {
  if (c.name == "sgd") return c.momentum == 0 ? Rule::sgd : c.nesterov ? Rule::nesterov : Rule::momentum;
  if (c.name == "adagrad") return Rule::adagrad;
  if (c.name == "rmsprop") return Rule::rmsprop;
  if (c.name == "adam" || c.name == "adamw") return Rule::adam;
  if (c.name == "lion") return Rule::lion;
  fail("optimizer: expected one of {}, got '{}'", fmt::join(optimizer_names(), ", "), c.name);
}

// Weights [begin, end) of an arena with one rate.
struct Run {
  int64_t begin, end;
  float rate;
};

// An arena's weights by their rates; one run where all are the same.
std::vector<Run> runs_of(const Parameters& parameters, ParameterKind kind, const Tensor& master) {
  std::vector<Run> out;
  for (const Parameter& p : parameters.all()) {
    if (p.kind != kind || !p.leaf) continue;
    const int64_t begin = p.master.place_in(master);
    if (out.empty() || out.back().rate != p.rate) {
      if (!out.empty()) out.back().end = begin;
      out.push_back({begin, 0, p.rate});
    }
  }
  if (!out.empty()) out.back().end = master.count();
  return out;
}

// The elements of a tensor; of one that is undefined there are none.
template <typename T>
Span<T> values_if_any(Tensor& x) {
  return x ? x.mutable_values<T>() : Span<T>();
}

// A rule that moves every weight on its own: one pass over each arena.
class ElementwiseRule : public Optimizer {
 public:
  ElementwiseRule(const OptimizerConfig& config, Parameters& parameters, std::optional<Part> matrices)
      : config_(config), rule_(rule_of(config)) {
    for (int k = 0; k < 2; ++k) {
      parts_[k] = {0, parameters.arena(kKinds[k]).master.count()};
      if (matrices && kKinds[k] == ParameterKind::matrix) parts_[k] = *matrices;
      const int64_t size = parts_[k].count();
      if (remembers_first(rule_)) m_[k] = Tensor::zeros({size}, DType::f32);
      if (remembers_second(rule_)) v_[k] = Tensor::zeros({size}, DType::f32);
    }
  }

  void update(Parameters& parameters, int64_t step, double learning_rate, double gradient_scale) override {
    const bool decoupled = config_.name == "adamw" || config_.name == "lion";
    Update u;
    u.rule = rule_;
    u.grad_scale = static_cast<float>(gradient_scale);
    u.momentum = static_cast<float>(config_.momentum);
    u.beta1 = static_cast<float>(config_.beta1);
    u.beta2 = static_cast<float>(config_.beta2);
    u.epsilon = static_cast<float>(config_.epsilon);
    u.bias1 = static_cast<float>(1 - std::pow(config_.beta1, static_cast<double>(step)));
    u.bias2 = static_cast<float>(1 - std::pow(config_.beta2, static_cast<double>(step)));
    for (int k = 0; k < 2; ++k) {
      Arena& a = parameters.arena(kKinds[k]);
      const auto decay = kKinds[k] == ParameterKind::matrix ? static_cast<float>(config_.weight_decay) : 0;
      u.decay = decoupled ? decay : 0;
      u.l2 = decoupled ? 0 : decay;
      const auto w = a.master.mutable_values<float>(), m = values_if_any<float>(m_[k]),
                 v = values_if_any<float>(v_[k]);
      const auto g = a.gradient.values<float>();
      const auto shadow = values_if_any<BFloat16>(a.shadow);
      for (const Run& run : runs_of(parameters, kKinds[k], a.master)) {
        const int64_t first = std::max(run.begin, parts_[k].begin), last = std::min(run.end, parts_[k].end);
        if (run.rate == 0 || first >= last) continue;
        u.lr = static_cast<float>(learning_rate) * run.rate;
        parallel_for(last - first, kGrain, [&](int64_t i, int64_t end) {
          const int64_t n = end - i;
          i += first;
          const auto part = [&](const auto& all, int64_t begin = 0) {
            return all.empty() ? nullptr : all.subspan(i - begin, n).data();
          };
          kernels().update(u, n, part(w), part(g), part(m, parts_[k].begin), part(v, parts_[k].begin),
                           part(shadow));
        });
      }
    }
  }

  std::vector<std::pair<std::string, Tensor>> state() override {
    std::vector<std::pair<std::string, Tensor>> out;
    for (int k = 0; k < 2; ++k) {
      if (m_[k]) out.emplace_back(std::string(kKindNames[k]) + ".m", m_[k]);
      if (v_[k]) out.emplace_back(std::string(kKindNames[k]) + ".v", v_[k]);
    }
    return out;
  }

 private:
  OptimizerConfig config_;
  Rule rule_;
  Part parts_[2];  // the parts of the arenas whose state this is
  Tensor m_[2], v_[2];
};

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"adamw",   "adam",      "sgd", "rmsprop",
                                                 "adagrad", "adafactor", "lion"};
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, Parameters& parameters,
                                          std::optional<Part> matrices) {
  if (config.name != "adafactor") return std::make_unique<ElementwiseRule>(config, parameters, matrices);
  check(!matrices, "adafactor: its rule looks at whole matrices, not at parts");
  return make_adafactor(config, parameters);
}

int64_t optimizer_state_size(const OptimizerConfig& config, const Parameters& parameters) {
  if (config.name == "adafactor") return adafactor_state_size(parameters);
  const Rule rule = rule_of(config);
  int64_t learned = 0;
  for (const Parameter& p : parameters.all())
    if (!p.frozen) learned += p.shape.count();
  return learned * (remembers_first(rule) + remembers_second(rule));
}

namespace {

// The sums of squares of blocks of an arena's gradients from `part` on.
std::vector<double> sums_of_blocks(Parameters& parameters, ParameterKind kind, Part part) {
  const auto g = parameters.arena(kind).gradient.values<float>().subspan(part.begin, part.count());
  const int64_t blocks = (part.count() + kGradientBlock - 1) / kGradientBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  parallel_for(blocks, 1, [&](int64_t b, int64_t end) {
    for (; b < end; ++b) {
      const int64_t n = std::min(kGradientBlock, part.count() - b * kGradientBlock);
      sums[static_cast<size_t>(b)] = kernels().sum_squares(n, g.subspan(b * kGradientBlock, n).data());
    }
  });
  return sums;
}

}  // namespace

double gradient_norm(Parameters& parameters) {
  return gradient_norm(parameters, single_process());
}

double gradient_norm(Parameters& parameters, Communicator& ranks) {
  const auto count = [&](ParameterKind kind) { return parameters.arena(kind).gradient.count(); };
  double total = 0;
  const auto of_ranks = ranks.share(ranks.size(), [&](int64_t rank) {
    return sums_of_blocks(parameters, ParameterKind::matrix,
                          part_of(count(ParameterKind::matrix), static_cast<int>(rank), ranks.size()));
  });
  for (const std::vector<double>& sums : of_ranks)
    for (const double s : sums) total += s;
  for (const double s : sums_of_blocks(parameters, ParameterKind::vector, {0, count(ParameterKind::vector)}))
    total += s;
  return std::sqrt(total);
}

}  // namespace qkv
