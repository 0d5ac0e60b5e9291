// Random small models of random variations, in the notations of formal/variations.h and of the engine.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "formal/variations.h"
#include "tests/formal/engine_case.h"
#include "tests/formal/varied_layers.h"

namespace qkv {

using formal::VariedEDHyperparameters;
using formal::VariedEDTheta;
using formal::VariedHyperparameters;
using formal::VariedTheta;

// A model in both notations, without its parameters. `hyper` is of the decoder where there are two stacks.
struct VariedShape {
  VariedHyperparameters hyper;
  ModelSpec spec;
};

// Everything that may be combined, at random, of seed `seed`; of every third one, where they go together,
// layers of other seeds' kinds.
VariedShape mixed_shape(unsigned seed, Architecture architecture);
// The blocks of Gemma 3, as its preset says.
constexpr unsigned kGemma3 = 1'000'000;
VariedShape gemma3_shape();
// The two stacks of a shape.
VariedEDHyperparameters two_stacks_of(const VariedShape& shape);

// The same model in both notations.
template <typename Theta>
struct VariedCase {
  ModelSpec spec;
  Theta theta;
};
using OneStackCase = VariedCase<VariedTheta<double>>;
using TwoStackCase = VariedCase<VariedEDTheta<double>>;

// A case of Architecture::decoder or encoder; of encoder_decoder.
OneStackCase varied_case(unsigned seed, Architecture architecture);
TwoStackCase two_stack_case(unsigned seed);

// A theta, or a gradient of one, under the engine's names.
Values values_of(const ModelSpec& spec, const VariedTheta<double>& theta);
Values values_of(const ModelSpec& spec, const VariedEDTheta<double>& theta);

template <typename Theta>
std::unique_ptr<Transformer> model_of(const VariedCase<Theta>& c) {
  auto model = std::make_unique<Transformer>(c.spec);
  const Values values = values_of(c.spec, c.theta);
  for (Parameter& p : model->parameters().all()) {
    const auto& v = values.at(p.name);
    p.value = Tensor::of(p.shape, std::vector<float>(v.begin(), v.end()));
  }
  EXPECT_EQ(values.size(), model->parameters().all().size());
  return model;
}

// A spec as its config.json has it, for messages.
std::string text_of(const ModelSpec& spec);

// The rows of `logits` from `row` on are what `probabilities` makes of theta. They may be off by kTolerance,
// or by what moved weights do to the formal ones.
template <typename Theta, typename F>
void expect_probabilities_near(const Tensor& logits, int64_t row, const Theta& theta, const F& probabilities,
                               unsigned seed) {
  const formal::Matrix<double> P = probabilities(theta);
  double may = kTolerance;
  for (unsigned i = 0; i < 4; ++i)
    may = std::max(may, (P - probabilities(moved(theta, seed + 2000 + i))).cwiseAbs().maxCoeff());
  expect_probabilities(logits, row, P, seed, may);
}

// The loss of a batch, and every gradient, kept and recomputed, against those of `loss`.
template <typename Theta, typename Loss>
void expect_loss_and_gradients(const VariedCase<Theta>& c, const ModelInput& input, const Indices& targets,
                               const Loss& loss, unsigned seed) {
  const auto want = formal::loss_and_gradient(loss, c.theta);
  const Values gradients = values_of(c.spec, want.gradient);
  for (const bool recompute : {false, true}) {
    const auto model = model_of(c);
    model->set_recompute(recompute);
    model->parameters().prepare_training(DType::f32, 0);
    model->parameters().reset_gradients();
    Context context;
    context.training = true;  // without dropout: the same thing
    const CrossEntropyResult r = model->loss(input, targets, context, 1);
    // A loss near 0 has the rounding of the probability near 1 that it is the logarithm of.
    EXPECT_NEAR(r.total, want.loss, kTolerance * std::max(0.1, want.loss))
        << "seed " << seed << ": " << text_of(c.spec);
    backward(r.loss);
    model->parameters().complete_gradients();
    expect_gradients_near(
        *model, gradients, c.theta, loss, [&](const Theta& theta) { return values_of(c.spec, theta); }, seed,
        fmt::format("{}, loss {}: {}", recompute ? ", recomputed" : "", want.loss, text_of(c.spec)));
  }
}

// Whichever family says it: the same model comes back from disk.
void expect_back_from_disk(const Transformer& model, unsigned seed);

// The variations that models of this architecture may have, each true where the spec has it.
std::map<std::string, bool> variations_of(const ModelSpec& s);

// Some of the seeds of a suite have each variation that this architecture may have.
void expect_each_drawn(Architecture architecture);

}  // namespace qkv
