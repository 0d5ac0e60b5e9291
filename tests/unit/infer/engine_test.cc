// Covers: qkv/infer/request.cc, qkv/infer/ngram_drafter.cc, qkv/infer/model_drafter.cc
// The engine of inference: each request has the bits that it has alone.
#include "qkv/infer/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/infer/generate.h"
#include "qkv/infer/model_drafter.h"
#include "qkv/infer/mtp_drafter.h"
#include "qkv/infer/ngram_drafter.h"
#include "qkv/quant/quantize.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::engine_test {
namespace {

using testing::expect_error;
using Tokens = std::vector<int32_t>;

constexpr int64_t kVocabulary = 29;

// A model this small costs less than waking a team of threads.
class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override { set_num_threads(1); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

// Learned positions: beyond the context the window moves.
ModelSpec of_table() {
  ModelSpec s = gpt2_spec(kVocabulary, 20, 16, 2, 4);
  s.attention.kv_heads = 2;
  s.attention.d_qk = 3;
  s.attention.d_vo = 5;
  return s;
}
ModelSpec of_rotary() {
  ModelSpec s = gpt2_spec(kVocabulary, 60, 32, 2, 4);
  s.positions = Positions::rotary;
  s.attention.kv_heads = 1;
  s.attention.rotary.width = 8;
  s.gated = true;
  s.activation = Activation::silu;
  s.normalization = Normalization::rms;
  return s;
}
ModelSpec of_prefix() {
  ModelSpec s = of_table();
  s.context = 60;
  s.order = Order::prefix;
  return s;
}
ModelSpec of_recurrence() {
  ModelSpec s = of_rotary();
  s.mixer = LstmMixer();
  s.positions = Positions::none;
  s.attention.rotary.width = 0;
  return s;
}
ModelSpec of_fast_weights(bool delta) {
  ModelSpec s = of_rotary();
  if (delta)
    s.mixer = DeltaRuleMixer();
  else
    s.mixer = LinearAttentionMixer();
  s.positions = Positions::none;
  s.attention.rotary.width = 0;
  return s;
}
ModelSpec of_latents() {
  ModelSpec s = of_rotary();
  s.mixer = LatentMixer{12, 0};
  s.attention.kv_heads = s.attention.heads;
  s.attention.rotary.width = 4;
  return s;
}
ModelSpec of_pairs() {
  ModelSpec s = of_table();
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 1;
  s.source_vocab_size = 0;
  return s;
}

std::unique_ptr<Transformer> drawn(ModelSpec spec, uint64_t seed = 3, DType type = DType::f32) {
  spec.init_std = 0.5F;
  auto model = std::make_unique<Transformer>(spec);
  model->parameters().draw(seed, type);
  return model;
}
std::unique_ptr<Transformer> quantized(WeightType type) {
  auto model = drawn(of_rotary());
  for (Parameter& p : model->parameters().all()) {
    if (!p.any_type || p.shape.rank() != 2 || p.shape[1] % layout_of(type).elements != 0) continue;
    QuantizedTensor blocks = QuantizedTensor::empty(p.shape, type);
    for (int64_t r = 0; r < p.shape[0]; ++r)
      quantize_row(type, p.shape[1], p.value.row<float>(r).data(), nullptr,
                   blocks.mutable_blocks().subspan(r * blocks.row_bytes(), blocks.row_bytes()).data());
    p.packed = blocks;
  }
  return model;
}

// Memory of so many pages of 16 tokens.
int64_t pages_of(const Ensemble& model, int64_t pages) {
  const bool pairs = model.spec().architecture == Architecture::encoder_decoder;
  EnsembleState state =
      pairs ? EnsembleState(model, Sources(std::vector<Tokens>{{0}})) : EnsembleState(model, 1);
  state.advance({Tokens(16, 0)});
  return pages * state.bytes();
}

// The tokens that a request got.
struct Output {
  Tokens tokens;
  std::vector<float> logits;  // all tokens'
  std::vector<Hypothesis> found;
  bool ended = false;

  void add(const NewToken& t) {
    EXPECT_FALSE(ended);
    found.assign(t.found.begin(), t.found.end());
    tokens.push_back(t.token);
    logits.insert(logits.end(), t.logits.begin(), t.logits.end());
    ended = t.last;
  }
  // Equal bits; one that was cancelled is a beginning.
  void expect(const Output& whole, bool cancelled) const {
    ASSERT_LE(tokens.size(), whole.tokens.size());
    ASSERT_TRUE(cancelled || tokens.size() == whole.tokens.size());
    EXPECT_EQ(tokens, Tokens(whole.tokens.begin(), whole.tokens.begin() + std::ssize(tokens)));
    EXPECT_TRUE(logits.empty() ||
                std::memcmp(logits.data(), whole.logits.data(), logits.size() * sizeof(float)) == 0);
    EXPECT_TRUE(cancelled || ended);
    if (!ended) return;
    ASSERT_EQ(found.size(), whole.found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].tokens, whole.found[i].tokens);
      EXPECT_EQ(found[i].log_probability, whole.found[i].log_probability);
      EXPECT_EQ(found[i].score, whole.found[i].score);
      EXPECT_EQ(found[i].attention, whole.found[i].attention);
    }
  }
};

Output alone(const Ensemble& model, const Request& request, bool attention = false) {
  Engine engine(model, {.attention = attention});
  engine.add(request);
  Output out;
  while (engine.step([&](const NewToken& t) {
    out.add(t);
    return true;
  })) {
  }
  return out;
}

// Drafts at random, also more than it is asked for.
class Scribbler : public Drafter {
 public:
  std::vector<Tokens> draft(std::span<const DraftQuery> queries) override {
    std::vector<Tokens> out;
    for (size_t i = 0; i < queries.size(); ++i) {
      out.emplace_back(random_() % 20);
      for (int32_t& id : out.back()) id = static_cast<int32_t>(random_() % kVocabulary);
    }
    return out;
  }

 private:
  std::mt19937 random_{1};
};

// Most of what the model would write, so that drafts are accepted in part.
class Misprinter : public ModelDrafter {
 public:
  using ModelDrafter::ModelDrafter;
  std::vector<Tokens> draft(std::span<const DraftQuery> queries) override {
    auto out = ModelDrafter::draft(queries);
    for (Tokens& draft : out)
      for (int32_t& id : draft)
        if (random_() % 4 == 0) id = 0;
    return out;
  }

 private:
  std::mt19937 random_{2};
};

class Schedule {
 public:
  using AdapterPtr = std::shared_ptr<const AdapterWeights>;

  Schedule(const Ensemble& model, unsigned seed, bool attention, std::span<const AdapterPtr> adapters)
      : model_(model), attention_(attention), adapters_(adapters), random_(seed) {}

  void run() {
    const int64_t sequences[] = {1, 2, 3, 100}, prompt_tokens[] = {1, 3, 8, 256}, pages[] = {0, 0, 3, 8},
                  kept[] = {0, 0, 30, 200};
    NgramDrafter ngrams(1);
    Scribbler scribbler;
    std::optional<ModelDrafter> itself;
    std::optional<Misprinter> misprinter;
    if (continues_in_parts(model_.spec())) {
      itself.emplace(*model_.models()[0], model_.spec());
      misprinter.emplace(*model_.models()[0], model_.spec());
    }
    const testing::ScratchDir folder;
    PromptCache cache(folder.path(), model_);
    const bool cached = below(4) == 0;
    std::optional<MtpDrafter> modules;
    if (model_.models()[0]->mtp() != nullptr) modules.emplace(*model_.models()[0]);
    Drafter* const drafters[] = {nullptr, &ngrams, &scribbler, itself ? &*itself : nullptr,
                                 misprinter ? &*misprinter : nullptr};
    sequences_ = one_of(sequences);
    const int64_t budget = pages_of(model_, one_of(pages));
    Engine engine(model_, {.sequences = sequences_,
                           .prompt_tokens = one_of(prompt_tokens),
                           .memory_bytes = budget,
                           .kept_tokens = one_of(kept),
                           .prompt_cache = cached ? &cache : nullptr,
                           .drafter = modules ? &*modules : drafters[below(5)],
                           .drafted_tokens = 1 + static_cast<int64_t>(below(15)),
                           .attention = attention_});
    std::vector<Request> requests;
    for (int i = 0; i < 7; ++i) requests.push_back(request(requests));
    std::map<int64_t, Output> outputs;
    std::set<int64_t> cancelled;
    size_t added = 0;
    const auto listener = [&](const NewToken& t) {
      EXPECT_FALSE(cancelled.contains(t.request));
      outputs[t.request].add(t);
      return true;
    };
    for (bool busy = true; busy || added < requests.size();) {
      while (added < requests.size() && (!busy || below(3) == 0)) {
        EXPECT_EQ(engine.add(requests[added]), static_cast<int64_t>(added));
        ++added;
        busy = true;
      }
      if (added > 0 && below(12) == 0) {
        const auto id = static_cast<int64_t>(below(added));
        if (!outputs[id].ended) cancelled.insert(id);
        engine.cancel(id);
      }
      busy = engine.step(listener);
      // Sources of ended requests stay until all have ended.
      if (budget > 0 && engine.decoding() > 1 && model_.spec().architecture == Architecture::decoder) {
        EXPECT_LE(engine.bytes(), budget);
      }
      if (cached && below(4) == 0) engine.save_kept(cache);
    }
    EXPECT_EQ(engine.decoding(), 0);
    EXPECT_EQ(engine.waiting(), 0);
    EXPECT_TRUE(engine.kept() > 0 || engine.bytes() == 0);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto id = static_cast<int64_t>(i);
      SCOPED_TRACE(i);
      outputs[id].expect(alone(model_, requests[i], attention_), cancelled.contains(id));
    }
  }

 private:
  size_t below(size_t n) { return random_() % n; }
  int64_t one_of(const int64_t (&list)[4]) { return list[below(4)]; }

  Tokens tokens(size_t n) {
    Tokens out(n);
    for (int32_t& id : out) id = static_cast<int32_t>(below(kVocabulary));
    return out;
  }
  Request request(const std::vector<Request>& others) {
    const ModelSpec& spec = model_.spec();
    const bool pairs = spec.architecture == Architecture::encoder_decoder;
    Request r;
    r.prompt = tokens(1 + below(pairs ? 3 : spec.context == 20 ? 25 : 40));
    if (pairs) r.source = tokens(1 + below(12));
    if (!others.empty()) {
      const Request& last = others.back();
      const size_t like = below(3);
      if (like == 0) r.source = last.source, r.prompt = last.prompt;  // as in several samples of a prompt
      if (like == 1 && !pairs)                                        // as in a conversation
        r.prompt.insert(r.prompt.begin(), last.prompt.begin(), last.prompt.end());
      if (r.prompt.size() > 45) r.prompt.resize(45);
    }
    r.max_new_tokens = 1 + static_cast<int64_t>(below(14));
    r.sampler.temperature = below(2) == 0 ? 0 : 1.3;
    r.sampler.top_k = below(2) == 0 ? 0 : 5;
    r.sampler.repetition_penalty = below(3) == 0 ? 1.2 : 1;
    r.eos = {4};
    r.rules.no_repeat_ngram = below(4) == 0 ? 2 : 0;
    r.seed = below(1000);
    r.priority = static_cast<int64_t>(below(3));
    if (below(4) == 0)
      r.mask = [](std::span<const int32_t> written, std::span<float> logits) {
        for (size_t id = written.size() % 2; id < logits.size(); id += 2) logits[id] = -INFINITY;
      };
    if (below(3) == 0 && std::ssize(r.prompt) < spec.longest()) r.search = search(r);
    if (r.search) r.mask = nullptr;
    if (!adapters_.empty()) r.adapter = adapters_[below(adapters_.size())];
    return r;
  }
  BeamOptions search(Request& r) {
    BeamOptions o;
    o.beams = 1 + static_cast<int64_t>(below(std::min<size_t>(4, static_cast<size_t>(sequences_))));
    o.max_new_tokens = r.max_new_tokens;
    o.eos = r.eos;
    o.rules = r.rules;
    o.length_penalty = below(2) == 0 ? 1 : 0.3;
    o.stop = BeamOptions::Stop(below(3));
    o.patience = below(3) == 0 ? 2 : 1;
    if (attention_) {
      o.attention = below(2) == 0;
      o.coverage_penalty = below(2) == 0 ? 0.2 : 0;
    }
    if (below(3) == 0) {
      r.wished = tokens(3);
      o.prefix_bias = 0.5;
    }
    return o;
  }

  const Ensemble& model_;
  bool attention_;
  std::span<const AdapterPtr> adapters_;
  int64_t sequences_ = 0;
  std::mt19937 random_;
};

void expect_own_bits(const Ensemble& model, bool attention = false,
                     std::span<const std::shared_ptr<const AdapterWeights>> adapters = {}) {
  const char* given = std::getenv("QKV_SEEDS");
  const unsigned seeds = given == nullptr ? 40 : static_cast<unsigned>(std::atoi(given));
  for (unsigned seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Schedule(model, seed, attention, adapters).run();
  }
}

TEST_F(EngineTest, InAnyCompanyWithLearnedPositions) {
  expect_own_bits(*drawn(of_table()));
}
TEST_F(EngineTest, InAnyCompanyWithRotaryPositions) {
  expect_own_bits(*drawn(of_rotary()));
}
TEST_F(EngineTest, InAnyCompanyWithQuantizedWeights) {
  for (const WeightType type : {WeightType::q8_0, WeightType::q4_0}) expect_own_bits(*quantized(type));
}
TEST_F(EngineTest, InAnyCompanyInBf16) {
  for (const ModelSpec& spec : {of_table(), of_rotary(), of_fast_weights(true), of_pairs()})
    expect_own_bits(*drawn(spec, 3, DType::bf16));
}
TEST_F(EngineTest, InAnyCompanyAsAPrefixModel) {
  expect_own_bits(*drawn(of_prefix()));
}
TEST_F(EngineTest, InAnyCompanyAsARecurrence) {
  expect_own_bits(*drawn(of_recurrence()));
}
TEST_F(EngineTest, InAnyCompanyWithFastWeights) {
  for (const bool delta : {false, true}) expect_own_bits(*drawn(of_fast_weights(delta)));
}
TEST_F(EngineTest, InAnyCompanyWithoutAttention) {
  for (const AftForm form : {AftForm::full, AftForm::local, AftForm::simple, AftForm::conv}) {
    ModelSpec spec = of_fast_weights(false);
    AttentionFreeMixer m;
    m.form = form, m.window = 3, m.heads = 1;
    spec.mixer = m;
    expect_own_bits(*drawn(spec));
  }
}
// Texts that are read again each time.
TEST_F(EngineTest, InAnyCompanyWithHashes) {
  ModelSpec spec = of_fast_weights(false);
  spec.mixer = MixerSpec();
  spec.attention.shared_query_key = {1, 0};
  spec.attention.kv_heads = spec.attention.heads;
  spec.attention.hashing = {.chunk = 4, .rounds = 2, .buckets = {4}};
  expect_own_bits(*drawn(spec));
}
TEST_F(EngineTest, InAnyCompanyWithLargeStates) {
  for (const char* name :
       {"gated_delta", "mamba", "mamba2", "convolution", "rwkv4", "rwkv7", "random_features"}) {
    SCOPED_TRACE(name);
    ModelSpec spec = of_fast_weights(false);
    spec.mixer = MixerSpec::of(from_name<MixerKind>(name));
    if (spec.mixer.get_if<Mamba2Mixer>() != nullptr) {
      Mamba2Mixer m;
      m.heads = 2, m.head_width = 5, m.state = 3;
      spec.mixer = m;
    }
    spec.mixer.derive(spec.width);
    if (std::string_view(name).starts_with("rwkv")) {
      spec.channel_mix = from_name<ChannelMix>(name);
      spec.gated = false;
    }
    expect_own_bits(*drawn(spec));
  }
}
TEST_F(EngineTest, InAnyCompanyWithLatents) {
  expect_own_bits(*drawn(of_latents()));
}
TEST_F(EngineTest, InAnyCompanyWithModulesThatDraft) {
  for (const MtpForm form : {MtpForm::chained, MtpForm::joined, MtpForm::parallel}) {
    ModelSpec spec = form == MtpForm::chained ? of_table() : of_rotary();
    spec.mtp = {3, form};
    expect_own_bits(*drawn(spec));
  }
}
TEST_F(EngineTest, InAnyCompanyWithSources) {
  expect_own_bits(*drawn(of_pairs()));
}
TEST_F(EngineTest, InAnyCompanyWithAttentionToSources) {
  expect_own_bits(*drawn(of_pairs()), true);
}
TEST_F(EngineTest, InAnyCompanyAsAnEnsemble) {
  const auto first = drawn(of_table()), second = drawn(of_table(), 5);
  expect_own_bits(Ensemble({first.get(), second.get()}));
}

// A model with adapters of rank 3 on all products of its blocks, and the same adapters apart from it.
struct Adapted {
  std::unique_ptr<Transformer> model;
  std::shared_ptr<const AdapterWeights> apart;
};
Adapted adapted(const Transformer& base, uint64_t seed) {
  ModelSpec spec = base.spec();
  for (const Parameter& p : base.parameters().all())
    if (p.product) spec.lora.adapters.push_back({p.name, 0, p.shape[0], 3, 0.5F});
  Adapted out{std::make_unique<Transformer>(spec), nullptr};
  auto apart = std::make_shared<AdapterWeights>();
  for (Parameter& p : out.model->parameters().all())
    if (!Adapters::is_adapter(p.name)) {
      const Parameter* q = &*std::ranges::find(base.parameters().all(), p.name, &Parameter::name);
      p.value = q->value;
      p.packed = q->packed;
    } else {
      p.initializer = {Initializer::Kind::normal, 0.3F};
    }
  out.model->parameters().draw(seed, DType::f32);
  for (const AdapterSpec& s : spec.lora.adapters)
    apart->add(s.parameter, {.first_row = s.first_row,
                             .a = out.model->parameters().find(Adapters::name_of_a(s))->value,
                             .b = out.model->parameters().find(Adapters::name_of_b(s))->value,
                             .scale = s.scale});
  out.apart = std::move(apart);
  return out;
}

// Requests with adapters, beside others with another one or with none: the bits of a model with the adapter.
TEST_F(EngineTest, InAnyCompanyWithAdapters) {
  for (const ModelSpec& spec : {of_rotary(), of_prefix(), of_pairs()}) {
    const auto base = drawn(spec);
    const Adapted one = adapted(*base, 7), two = adapted(*base, 8);
    const std::shared_ptr<const AdapterWeights> adapters[] = {nullptr, one.apart, two.apart};
    expect_own_bits(*base, false, adapters);
    Request r{.prompt = {3, 1, 2}, .max_new_tokens = 9};
    if (spec.architecture == Architecture::encoder_decoder) r.source = {5, 6, 7, 8};
    const Output inside = alone(*one.model, r), plain = alone(*base, r);
    r.adapter = one.apart;
    alone(*base, r).expect(inside, false);
    EXPECT_NE(inside.logits, plain.logits);
  }
  const auto quantized_base = quantized(WeightType::q8_0);
  const Adapted of_blocks = adapted(*quantized_base, 7);
  const std::shared_ptr<const AdapterWeights> adapters[] = {nullptr, of_blocks.apart};
  expect_own_bits(*quantized_base, false, adapters);
  const auto second = drawn(of_rotary(), 5);
  const Ensemble both({quantized_base.get(), second.get()});
  Engine engine(both);
  expect_error([&] { engine.add({.prompt = {1}, .adapter = of_blocks.apart}); }, {"not for ensembles"});
}

// A model that drafts for itself is always right, however it samples; other drafts change nothing but time.
TEST_F(EngineTest, DraftsOfItselfAreAccepted) {
  for (const ModelSpec& spec : {of_rotary(), of_recurrence(), of_pairs(), of_prefix()}) {
    const auto model = drawn(spec);
    const bool pairs = spec.architecture == Architecture::encoder_decoder;
    for (const double temperature : {0.0, 1.3}) {
      ModelDrafter itself(*model, model->spec());
      Engine engine(*model, {.drafter = &itself, .drafted_tokens = 6});
      const int64_t length = pairs ? 18 : 24;
      for (uint64_t s = 0; s < 2; ++s) {
        Request r{.prompt = {1, 2}, .max_new_tokens = length, .seed = s};
        if (pairs) r.source = {3, 4, 5};
        r.sampler.temperature = temperature;
        engine.add(r);
      }
      int64_t tokens = 0;
      while (engine.step([&](const NewToken&) { return ++tokens > 0; })) {
      }
      EXPECT_EQ(tokens, 2 * length);
      EXPECT_EQ(engine.drafting().drafted, engine.drafting().accepted);
      // The first token comes with the prompt; then drafts have 4, 6, 6, ... tokens, and each pass adds one.
      EXPECT_EQ(engine.drafting().passes, 2 * (pairs ? 3 : 4));
    }
  }
}

// An output that its listener ends amid a draft keeps none of the rest.
TEST_F(EngineTest, ListenersEndOutputsAmidDrafts) {
  const auto model = drawn(of_rotary());
  ModelDrafter itself(*model, model->spec());
  Engine engine(*model, {.kept_tokens = 100, .drafter = &itself});
  const Request r{.prompt = Tokens(12, 3), .max_new_tokens = 20};
  engine.add(r);
  int64_t tokens = 0;
  while (engine.step([&](const NewToken&) { return ++tokens < 4; })) {
  }
  EXPECT_EQ(tokens, 4);
  EXPECT_EQ(engine.kept(), 15);
  engine.add(r);
  Output again;
  while (engine.step([&](const NewToken& t) {
    again.add(t);
    return true;
  })) {
  }
  again.expect(alone(*model, r), false);
}

// After an exception the requests that wait are answered as ever.
TEST_F(EngineTest, ExceptionsEndWhatWasGoingOn) {
  const auto model = drawn(of_rotary());
  const Request good{.prompt = Tokens(12, 3), .max_new_tokens = 6};
  for (const int64_t after : {1, 2, 5, 7}) {
    NgramDrafter ngrams(1);
    Engine engine(*model, {.sequences = 2, .kept_tokens = 100, .drafter = &ngrams});
    for (int i = 0; i < 2; ++i)
      engine.add({.prompt = {1, 2, static_cast<int32_t>(3 + i)}, .max_new_tokens = 20});
    const int64_t waits = engine.add(good);
    int64_t tokens = 0;
    Output out;
    const auto listener = [&](const NewToken& t) {
      if (t.request == waits)
        out.add(t);
      else
        check(++tokens < after, "enough");
      return true;
    };
    const auto run = [&] {
      while (engine.step(listener)) {
      }
    };
    expect_error(run, {"enough"});
    EXPECT_EQ(engine.decoding(), 0);
    EXPECT_EQ(engine.waiting(), 1);
    EXPECT_EQ(engine.bytes(), 0);
    run();
    out.expect(alone(*model, good), false);
  }
  // In generate() the others do not stay either.
  Engine engine(*model, {.sequences = 1});
  expect_error(
      [&] {
        generate(engine, {{1}, {2}}, {},
                 [](int64_t, int32_t, std::span<const float>) -> bool { throw Error("enough"); });
      },
      {"enough"});
  EXPECT_FALSE(engine.step(nullptr));
}

TEST_F(EngineTest, DraftersAreChecked) {
  const auto model = drawn(of_rotary());
  expect_error([&] { Engine(*model, {.drafted_tokens = 16}); }, {"drafts have 1 to 15 tokens, got 16"});
  ModelSpec other = of_rotary();
  other.vocab_size = 31;
  expect_error([&] { ModelDrafter(*model, other); }, {"a model with 29 tokens cannot draft for one with 31"});
  expect_error([&] { ModelDrafter(*model, of_pairs()); }, {"a model of another kind"});
  ModelSpec whole = of_rotary();
  whole.attention.rotary.scaling = RotaryScaling::dynamic;
  whole.attention.rotary.factor = 2;
  whole.attention.rotary.original_context = 30;
  const auto reader = drawn(whole);
  expect_error([&] { ModelDrafter(*reader, whole); }, {"reads a text as a whole"});
}

// The last of the longest matches; a draft that reaches the end of the text goes on with itself.
TEST(NgramDrafter, FindsWhatFollowed) {
  const auto drafted = [](Tokens source, Tokens prompt, Tokens written, int64_t most, int64_t least = 2) {
    Request r{.prompt = std::move(prompt), .source = std::move(source)};
    const DraftQuery query{0, &r, written, most};
    return NgramDrafter(least).draft({&query, 1})[0];
  };
  EXPECT_EQ(drafted({}, {1, 2, 3, 4, 9, 1, 2}, {}, 2), (Tokens{3, 4}));
  EXPECT_EQ(drafted({}, {1, 2, 3, 7, 1, 2, 5, 6, 0, 1}, {2}, 2), (Tokens{5, 6}));     // the last
  EXPECT_EQ(drafted({}, {8, 1, 2, 3, 7, 1, 2, 5, 0, 8, 1}, {2}, 2), (Tokens{3, 7}));  // the longest
  EXPECT_EQ(drafted({}, {1, 2, 3, 1}, {5}, 4), Tokens());
  EXPECT_EQ(drafted({}, {1, 2, 3, 5}, {3}, 4), Tokens());
  EXPECT_EQ(drafted({}, {1, 2, 3, 5}, {3}, 1, 1), (Tokens{5}));
  EXPECT_EQ(drafted({}, {6, 1, 2, 1}, {2}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(drafted({4, 5, 6, 7}, {0}, {4, 5}, 9), (Tokens{6, 7, 0, 4, 5, 6, 7, 0, 4}));
  EXPECT_EQ(drafted({}, {1}, {}, 3), Tokens());
}

// Steps remember no more than the options say.
TEST_F(EngineTest, RemembersNoMoreThanItMay) {
  const auto model = drawn(of_rotary());
  const int64_t budget = pages_of(*model, 9);
  Engine engine(*model, {.memory_bytes = budget});
  for (int i = 0; i < 9; ++i)
    engine.add({.prompt = Tokens(static_cast<size_t>(8 + i), 3), .max_new_tokens = 20, .priority = i % 2});
  int64_t tokens = 0, most = 0;
  while (engine.step([&](const NewToken&) {
    ++tokens;
    return true;
  })) {
    EXPECT_LE(engine.bytes(), budget);
    most = std::max(most, engine.decoding());
  }
  EXPECT_EQ(tokens, 9 * 20);
  EXPECT_GT(most, 1);
}

// All beams of a search that is interrupted are read again.
TEST_F(EngineTest, InterruptedSearchesGoOn) {
  for (const ModelSpec& spec : {of_rotary(), of_pairs()}) {
    const bool pairs = spec.architecture == Architecture::encoder_decoder;
    ModelSpec longer = spec;
    longer.context = 60;
    const auto model = drawn(longer);
    Engine engine(*model, {.memory_bytes = pages_of(*model, 10), .attention = pairs});
    std::vector<Request> requests;
    for (int64_t i = 0; i < 2; ++i) {
      Request r{.prompt = Tokens(i == 0 ? 2 : 10, 5), .max_new_tokens = 35, .priority = i};
      if (pairs) r.source = {3, 4, 5};
      if (i == 0) r.search = BeamOptions{.beams = 3, .max_new_tokens = 35, .attention = pairs};
      requests.push_back(r);
    }
    std::map<int64_t, Output> outputs;
    const auto listener = [&](const NewToken& t) {
      outputs[t.request].add(t);
      return true;
    };
    for (const Request& r : requests) engine.add(r);
    int64_t interruptions = 0;
    for (int64_t before = 0; engine.step(listener); before = engine.decoding())
      interruptions += engine.decoding() < before && engine.waiting() > 0;
    EXPECT_GE(interruptions, 1);
    for (int64_t i = 0; i < 2; ++i)
      outputs[i].expect(alone(*model, requests[static_cast<size_t>(i)], pairs), false);
  }
}

// Many requests with equal beginnings come, go, are cancelled and interrupted: no page is lost.
TEST_F(EngineTest, LosesNoPages) {
  const auto model = drawn(of_rotary());
  const int64_t budget = pages_of(*model, 14);
  NgramDrafter ngrams(1);
  Engine engine(*model, {.sequences = 6, .memory_bytes = budget, .kept_tokens = 90, .drafter = &ngrams});
  std::mt19937 random(1);
  for (int step = 0; step < 3000; ++step) {
    if (random() % 4 == 0) {
      Request r{.prompt = Tokens(1 + random() % 30, 3),
                .max_new_tokens = 1 + static_cast<int64_t>(random() % 25)};
      r.prompt.back() = static_cast<int32_t>(random() % 8);
      r.seed = random();
      if (random() % 5 == 0) r.search = BeamOptions{.beams = 2, .max_new_tokens = r.max_new_tokens};
      engine.add(std::move(r));
    }
    if (random() % 16 == 0) engine.cancel(static_cast<int64_t>(random() % 700));
    engine.step(nullptr);
    ASSERT_LE(engine.bytes(), budget);
  }
  while (engine.step(nullptr)) {
  }
  // Only pages of what is kept are left.
  EXPECT_GT(engine.kept(), 0);
  EXPECT_LE(engine.kept(), 90);
  EXPECT_LE(engine.bytes(), pages_of(*model, 90 / 16 + 90 / 8));
  for (int32_t i = 0; i < 3; ++i) engine.add({.prompt = Tokens(31, 20 + i), .max_new_tokens = 1});
  while (engine.step(nullptr)) {
  }
  EXPECT_EQ(engine.kept(), 2 * 31);
  EXPECT_EQ(engine.bytes(), pages_of(*model, 4));
}

// A conversation: each request begins with the one before and its answer.
TEST_F(EngineTest, KeepsConversations) {
  const auto model = drawn(of_rotary());
  Engine engine(*model, {.kept_tokens = 100}), forgetful(*model);
  Tokens prompt = {1, 2, 3, 5, 6, 7, 8, 9, 10, 11};
  int64_t spared = 0;
  for (int turn = 0; turn < 5; ++turn) {
    Tokens answers[2];
    for (Engine* e : {&engine, &forgetful}) {
      e->add({.prompt = prompt, .max_new_tokens = 6, .seed = 7});
      Tokens& answer = answers[e == &engine ? 0 : 1];
      while (e->step([&](const NewToken& t) {
        answer.push_back(t.token);
        return true;
      })) {
      }
    }
    EXPECT_EQ(answers[0], answers[1]);
    EXPECT_EQ(engine.spared(), spared);
    EXPECT_LE(engine.kept(), 100);
    EXPECT_EQ(forgetful.kept() + forgetful.spared(), 0);
    prompt.insert(prompt.end(), answers[0].begin(), answers[0].end());
    spared += std::ssize(prompt) - 1;  // in the next turn; the answer's last token was never read
    prompt.insert(prompt.end(), {4, 4, static_cast<int32_t>(turn)});
  }
  // Another beginning drops what was not used for longest.
  for (int32_t i = 0; i < 4; ++i) engine.add({.prompt = Tokens(30, 20 + i), .max_new_tokens = 2});
  while (engine.step(nullptr)) {
  }
  EXPECT_EQ(engine.kept(), 3 * 31);
}

// In a prefix LM a prompt and what it wrote are not the same as a prompt of the same tokens.
TEST_F(EngineTest, InterruptedPrefixesAreNoLongerPrompts) {
  ModelSpec spec = of_prefix();
  spec.context = 200;
  const auto model = drawn(spec);
  const Request interrupted = {.prompt = {1, 2, 3}, .max_new_tokens = 40};
  Engine engine(*model, {.memory_bytes = pages_of(*model, 9)});
  std::map<int64_t, Output> outputs;
  const auto listener = [&](const NewToken& t) {
    outputs[t.request].add(t);
    return true;
  };
  engine.add(interrupted);
  engine.step(listener);
  engine.add({.prompt = Tokens(95, 7), .max_new_tokens = 20, .priority = 1});
  while (engine.decoding() < 2) engine.step(listener);
  while (engine.decoding() > 1) engine.step(listener);
  Request like = interrupted;
  const Tokens& written = outputs[0].tokens;
  ASSERT_LT(written.size(), 40U);
  like.prompt.insert(like.prompt.end(), written.begin(), written.end());
  engine.add(like);
  while (engine.step(listener)) {
  }
  outputs[0].expect(alone(*model, interrupted), false);
  outputs[2].expect(alone(*model, like), false);
}

// Requests of a higher priority begin first; a listener ends an output.
TEST_F(EngineTest, PrioritiesAndListeners) {
  const auto model = drawn(of_rotary());
  Engine engine(*model, {.sequences = 1});
  for (const int64_t priority : {0, 2, 1})
    engine.add({.prompt = {1, 2}, .max_new_tokens = 5, .priority = priority});
  Tokens order;
  while (engine.step([&](const NewToken& t) {
    order.push_back(static_cast<int32_t>(t.request));
    return std::ranges::count(order, order.back()) < 2;
  })) {
  }
  EXPECT_EQ(order, (Tokens{1, 1, 2, 2, 0, 0}));
}

TEST_F(EngineTest, WhatCannotBeAnswered) {
  const auto model = drawn(of_rotary()), pairs = drawn(of_pairs()), prefix = drawn(of_prefix());
  Engine engine(*model);
  expect_error([&] { engine.add({}); }, {"prompt 0 is empty"});
  expect_error([&] { engine.add({.prompt = {1}, .source = {2}}); }, {"has a source"});
  expect_error([&] { engine.add({.prompt = {1}, .sampler = {.temperature = -1}}); }, {"temperature"});
  EXPECT_EQ(engine.add({.prompt = {1}, .max_new_tokens = 0}), 0);
  EXPECT_FALSE(engine.step(nullptr));
  Engine of_sources(*pairs), of_prefixes(*prefix);
  expect_error([&] { of_sources.add({.prompt = {1}}); }, {"no source"});
  expect_error([&] { of_prefixes.add({.prompt = Tokens(60, 1)}); }, {"leave no room"});
  expect_error([&] { of_prefixes.add({.prompt = {1, 2}, .prefix = 3}); }, {"2 tokens", "prefix of 3"});
  expect_error([&] { Engine(*prefix, {.cached = false}); }, {"remembers its prompt"});
  // No request may stop others later.
  expect_error([&] { engine.add({.prompt = {1, 29}}); }, {"prompt 1", "no token id 29"});
  expect_error([&] { engine.add({.prompt = {1}, .sampler = {.excluded = {-1}}}); }, {"no token id -1"});
  expect_error([&] { of_sources.add({.prompt = {1}, .source = {2, 30}}); }, {"source 0", "no token id 30"});
  expect_error([&] { of_sources.add({.prompt = {1}, .source = Tokens(21, 1)}); },
               {"21 tokens", "context is 20"});
  expect_error([&] { Engine(*model, {.sequences = 0}); }, {"engine"});
}

}  // namespace
}  // namespace qkv::engine_test
