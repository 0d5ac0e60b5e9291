// Options of a step: learning rates by layer, frozen parameters, adversarial steps.
#include "qkv/optim/training_state.h"

#include <atomic>
#include <cmath>

#include "tests/rank_threads.h"
#include "tests/unit/expect_error.h"

namespace qkv::training_state_test {
namespace {

ModelSpec spec() {
  ModelSpec s = bert_spec(11, 8, 8, 3, 2);
  s.init_std = 0.3F;
  return s;
}

Batch batch() {
  Batch b;
  b.ids = Indices({1, 2, 3, 4, 5, 6});
  b.layout = Layout::of({4, 2});
  b.targets = Indices({3, kIgnored, 7, 1, 9, kIgnored});
  b.target_count = 4;
  return b;
}

StepConfig plain_sgd() {
  StepConfig c;
  c.optimizer.name = "sgd";
  c.optimizer.weight_decay = 0;
  c.schedule.name = "constant";
  c.schedule.warmup_steps = 0;
  c.schedule.learning_rate = 0.1;
  c.clip = 0;
  return c;
}

std::unique_ptr<TrainingState> stepped(const StepConfig& c) {
  auto t =
      std::make_unique<TrainingState>(std::make_unique<Transformer>(spec()), c, TrainingOptions{.seed = 5});
  t->step({batch()}, 1, 1);
  return t;
}

// The change of each parameter in a step.
std::map<std::string, std::vector<double>> moves(const StepConfig& c) {
  TrainingState fresh(std::make_unique<Transformer>(spec()), c, {.seed = 5});
  const auto t = stepped(c);
  std::map<std::string, std::vector<double>> out;
  for (const Parameter& p : t->model().parameters().all()) {
    const float* before = fresh.model().parameters().find(p.name)->master.data<float>();
    for (int64_t i = 0; i < p.shape.count(); ++i)
      out[p.name].push_back(double{p.master.data<float>()[i]} - double{before[i]});
  }
  return out;
}

// Gradients are reduced and gathered: 8 bytes of each number, or 6 if ranks then send bf16 weights, to all
// ranks but one. Losses, counts and norms add less than a hundredth.
TEST(TrainingState, AStepSendsWhatTheoryAsks) {
  for (const bool zero : {false, true})
    for (const int ranks : {1, 2, 4, 8}) {
      std::atomic<int64_t> sent = 0, expected = 0;
      testing::on_ranks(ranks, [&](Communicator& me) {
        TrainingState t(std::make_unique<Transformer>(bert_spec(50, 8, 128, 3, 4)), {},
                        {.compute = DType::bf16, .seed = 5, .shards = 8, .zero = zero}, me);
        const int64_t before = me.bytes_sent();
        t.step(std::vector<Batch>(8, batch()), 1, 1);
        sent += me.bytes_sent() - before;
        if (!me.leads()) return;
        Parameters& p = t.model().parameters();
        const int64_t matrices = p.arena(ParameterKind::matrix).master.count(),
                      vectors = p.arena(ParameterKind::vector).master.count();
        expected = (ranks - 1) * ((zero ? 6 : 8) * matrices + 8 * vectors);
      });
      EXPECT_GE(sent, expected) << ranks;
      EXPECT_LE(sent, expected + expected / 100) << ranks;
    }
}

TEST(TrainingState, LayersDecayFromTheHead) {
  StepConfig decaying = plain_sgd();
  decaying.layer_decay = 0.5;
  const auto all = moves(plain_sgd()), slower = moves(decaying);
  const auto factor = [](const std::string& name) {
    if (name.starts_with("embedding.")) return 1.0 / 16;
    for (int l = 0; l < 3; ++l)
      if (name.starts_with(fmt::format("encoder.block.{}.", l))) return std::ldexp(1.0, l - 3);
    return 1.0;
  };
  for (const auto& [name, whole] : all)
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(slower.at(name)[i], factor(name) * whole[i], 1e-7) << name;
}

TEST(TrainingState, FrozenParametersStay) {
  StepConfig frozen = plain_sgd();
  frozen.freeze = {"embedding.*", "encoder.block.1.*", "*.beta"};
  for (const auto& [name, moved] : moves(frozen)) {
    const bool still =
        name.starts_with("embedding.") || name.starts_with("encoder.block.1.") || name.ends_with(".beta");
    double most = 0;
    for (const double m : moved) most = std::max(most, std::abs(m));
    if (still) {
      EXPECT_EQ(most, 0) << name;
    } else if (name != "unembedding.bias") {
      EXPECT_GT(most, 0) << name;
    }
  }
}

TEST(TrainingState, UnknownNamesToFreezeAreRefused) {
  StepConfig c = plain_sgd();
  c.freeze = {"encoder.blok.1.*"};
  testing::expect_error<Error>([&] { stepped(c); },
                               {"train.freeze", "'encoder.blok.1.*'", "'unembedding.bias'"});
}

// g(w) + g(w + epsilon g_e / |g_e|), where the second term changes only the embeddings.
TEST(TrainingState, AdversarialStepsAddTheGradientBesideThem) {
  constexpr double kEpsilon = 0.5, kRate = 0.1;
  const auto gradients = [&](Transformer& model) {
    model.parameters().reset_gradients();
    const Batch b = batch();
    backward(model.loss(b, b.targets, {}, 0.25F).loss);
    model.parameters().complete_gradients();
  };
  Transformer model(spec());
  model.parameters().prepare_training(DType::f32, 5);
  gradients(model);
  std::map<std::string, std::vector<double>> sum;
  for (const Parameter& p : model.parameters().all())
    sum[p.name].assign(p.leaf->grad.data<float>(), p.leaf->grad.data<float>() + p.shape.count());
  Parameter& e = *model.parameters().find("embedding.token");
  double squares = 0;
  for (const double g : sum.at(e.name)) squares += g * g;
  for (int64_t i = 0; i < e.shape.count(); ++i)
    e.master.mutable_data<float>()[i] +=
        static_cast<float>(kEpsilon * sum.at(e.name)[i] / std::sqrt(squares));
  gradients(model);
  for (const Parameter& p : model.parameters().all())
    for (int64_t i = 0; i < p.shape.count(); ++i) sum[p.name][i] += double{p.leaf->grad.data<float>()[i]};
  StepConfig c = plain_sgd();
  c.adversarial = kEpsilon;
  for (const auto& [name, moved] : moves(c))
    for (size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], -kRate * sum.at(name)[i], 2e-6) << name;
}

}  // namespace
}  // namespace qkv::training_state_test
