// Every value that a trace names against formal/variations.h, which names its own: random models of random
// variations, of one stack and of two.
// Covers: qkv/trace/trace.cc

#include <algorithm>
#include <map>

#include "formal/named.h"
#include "qkv/trace/trace.h"
#include "tests/formal/varied_case.h"

namespace qkv::engine_trace_test {
namespace {

using Named = std::map<std::string, formal::Matrix<double>>;

// The values of f(), a computation of the specification.
template <typename F>
Named named_values(const F& f) {
  Named all;
  formal::watched([&](const std::string& name, const formal::Matrix<double>& M) { all[name] = M; }, f);
  return all;
}

// The values that the specification names otherwise than the engine, as [D x N] or, of one head, [keys x
// queries]; an empty one is not compared.
class FormalValues {
 public:
  FormalValues(const ModelSpec& spec, Named named) : spec_(spec), named_(std::move(named)) {}

  // The value `name`, or its part for head `head`.
  formal::Matrix<double> of(const std::string& name, int64_t head) const {
    if (name == "logits") return at("logits");
    if (name == "probabilities") return at("P");
    const size_t dot = name.find(".block.");
    if (dot == std::string::npos) return at(name);
    const std::string stack = name.substr(0, dot), rest = name.substr(dot + 7);
    const int64_t layer = std::stoll(rest);
    const std::string place = fmt::format("{}.layer[{}].", stack, layer + 1);
    const std::string value = rest.substr(rest.find('.') + 1);
    const size_t end = value.find('.');
    if (end == std::string::npos) return at(place + value);  // the block's own
    const std::string part = value.substr(0, end), of = value.substr(end + 1);
    const ModelSpec its = stack == "encoder" ? spec_.encoder_spec() : spec_;
    const BlockSpec& block = its.block(layer);
    const bool mixes = part == block.mixer.part();
    const std::string in = place + (mixes ? "mixer" : part) + ".";
    const AttentionSpec& a = block.attention;
    if (of == "scores") return at(fmt::format("{}S^{}", in, head + 1));
    if (of == "probabilities") return at(fmt::format("{}A^{}", in, head + 1));
    if (of == "queries") return heads(in + "Q^", a.heads);
    if (of == "keys") return heads(in + "K^", a.kv_heads);
    if (of == "values" && (!mixes || block.mixer.attends())) return heads(in + "V^", a.kv_heads);
    if (of == "heads") return at(in + "Y");
    if (of == "global.probabilities") {  // the queries that see all
      const Pattern pattern = a.patterns[static_cast<size_t>(layer) % a.patterns.size()];
      const formal::Matrix<double> A = at(fmt::format("{}global.A^{}", in, head + 1));
      return A.leftCols(std::min<formal::Index>(pattern.global, A.cols()));
    }
    if (of.ends_with("up") && block.gated)
      return stacked({at(in + of), at(in + of.substr(0, of.size() - 2) + "gated")});
    return at(in + of);
  }

 private:
  formal::Matrix<double> at(const std::string& name) const {
    const auto found = named_.find(name);
    if (found == named_.end()) ADD_FAILURE() << "formal/ has no " << name;
    return found == named_.end() ? formal::Matrix<double>() : found->second;
  }
  static formal::Matrix<double> stacked(const std::vector<formal::Matrix<double>>& parts) {
    formal::Index rows = 0;
    for (const auto& part : parts) rows += part.rows();
    formal::Matrix<double> all(rows, parts.front().cols());
    rows = 0;
    for (const auto& part : parts) {
      all.middleRows(rows, part.rows()) = part;
      rows += part.rows();
    }
    return all;
  }
  formal::Matrix<double> heads(const std::string& name, int64_t count) const {
    std::vector<formal::Matrix<double>> parts;
    for (int64_t h = 1; h <= count; ++h) parts.push_back(at(name + std::to_string(h)));
    return stacked(parts);
  }

  const ModelSpec& spec_;
  Named named_;
};

// The largest difference, relative to the largest magnitude; infinite where only one of both is.
double difference(const Tensor& got, const formal::Matrix<double>& want) {
  if (got.rows() != want.cols() || got.width() != want.rows()) return INFINITY;
  double most = 1e-3, off = 0;
  for (int64_t t = 0; t < got.rows(); ++t)
    for (int64_t i = 0; i < got.width(); ++i) {
      const double a = got.row<float>(t)[i], b = want(i, t);
      if (std::isinf(a) || std::isinf(b)) {
        if (a != b) return INFINITY;
        continue;
      }
      most = std::max(most, std::abs(b));
      off = std::max(off, std::abs(a - b));
    }
  return off / most;
}

// A tensor of the formal values, to compare two of them.
Tensor rows_of(const formal::Matrix<double>& M) {
  Tensor out = Tensor::empty({M.cols(), M.rows()}, DType::f32);
  for (int64_t t = 0; t < M.cols(); ++t)
    for (int64_t i = 0; i < M.rows(); ++i) out.mutable_row<float>(t)[i] = static_cast<float>(M(i, t));
  return out;
}

// True for values that the specification adds up without a name, whose sum is compared, and for heads that
// the engine pads to one size, whose scores are.
bool is_told_by_others(const ModelSpec& spec, const std::string& name) {
  const bool padded = !spec.attention.head_sizes.empty() ||
                      std::ranges::any_of(spec.blocks_in_use(), [](const BlockSpec* block) {
                        return !block->attention.head_sizes.empty();
                      });
  for (const char* end : {".queries", ".keys", ".values"})
    if (padded && name.ends_with(end)) return true;
  return name.ends_with(".embedding.position") || name.ends_with(".embedding.column") ||
         name.ends_with(".embedding.segment");
}

// Compares all values of a pass with those of P(theta).
template <typename Theta, typename F>
void expect_values(const Transformer& model, const ModelInput& input, const Theta& theta, const F& P,
                   unsigned seed) {
  const ModelSpec& spec = model.spec();
  Trace trace;
  run_traced(model, input, trace);
  const FormalValues want(spec, named_values([&] { return P(theta); }));
  std::vector<FormalValues> near;  // by moved weights: badly conditioned values move far
  const auto may = [&](const std::string& name, int64_t head) {
    for (auto i = static_cast<unsigned>(near.size()); i < 4; ++i)
      near.emplace_back(spec, named_values([&] { return P(moved(theta, seed + 2000 + i)); }));
    double most = kTolerance;
    for (const FormalValues& other : near)
      most = std::max(most, difference(rows_of(other.of(name, head)), want.of(name, head)));
    return most;
  };
  const auto compare = [&](const std::string& name, int64_t head, const Tensor& got) {
    const double off = difference(got, want.of(name, head));
    if (off < kTolerance) return;
    EXPECT_LT(off, may(name, head)) << name << ", head " << head << ", seed " << seed << ": "
                                    << text_of(spec);
  };
  EXPECT_GT(trace.values().size(), 5U);
  const bool sinks = std::ranges::any_of(spec.blocks_in_use(),
                                         [](const BlockSpec* block) { return block->attention.sinks; });
  for (const TracedValue& value : trace.values()) {
    if (is_told_by_others(spec, value.name)) continue;
    if (value.heads.empty()) compare(value.name, -1, value.rows);
    for (const HeadValue& head : value.heads) {
      compare(value.name, head.head, head.value);
      if (!value.name.ends_with(".probabilities") || sinks) continue;
      for (int64_t t = 0; t < head.value.rows(); ++t) {
        double sum = 0;
        for (const float p : head.value.row<float>(t)) sum += p;
        EXPECT_NEAR(sum, 1, 1e-5) << value.name;
      }
    }
  }
}

class TraceAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Tokens tokens(const ModelSpec& s, int64_t vocabulary) {
    Tokens x;
    for (int i = between(u_, 1, static_cast<int>(s.context)); i > 0; --i)
      x.push_back(between(u_, 1, static_cast<int>(vocabulary)));
    return x;
  }
  ModelInput input_of(const Tokens& x) const {
    ModelInput input;
    input.ids = engine_ids(x);
    input.layout = Layout::of({static_cast<int32_t>(x.size())});
    return input;
  }
  Uniform u_{GetParam() + 1000};
};

TEST_P(TraceAgainstFormal, OneStack) {
  for (const Architecture architecture : {Architecture::decoder, Architecture::encoder}) {
    const OneStackCase c = varied_case(GetParam(), architecture);
    const Tokens x = tokens(c.spec, c.spec.vocab_size);
    expect_values(
        *model_of(c), input_of(x), c.theta,
        [&](const auto& theta) { return formal::VariedTransformer(x, theta); }, GetParam());
  }
}

TEST_P(TraceAgainstFormal, TwoStacks) {
  const TwoStackCase c = two_stack_case(GetParam());
  const Tokens z = tokens(c.spec, c.spec.input_vocab_size()), x = tokens(c.spec, c.spec.vocab_size);
  ModelInput input = input_of(x);
  input.source = engine_ids(z);
  input.source_layout = Layout::of({static_cast<int32_t>(z.size())});
  expect_values(
      *model_of(c), input, c.theta,
      [&](const auto& theta) { return formal::VariedEDTransformer(z, x, theta); }, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, TraceAgainstFormal, ::testing::Range(0U, seeds()));

}  // namespace
}  // namespace qkv::engine_trace_test
