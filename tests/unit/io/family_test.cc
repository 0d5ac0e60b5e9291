// Families: the models that each one's config.json can express, and their way to disk and back.
// Covers: qkv/io/family/albert.cc, qkv/io/family/bart.cc, qkv/io/family/bert.cc, qkv/io/family/big_bird.cc
// Covers: qkv/io/family/bloom.cc, qkv/io/family/cohere.cc, qkv/io/family/ctrl.cc
// Covers: qkv/io/family/deberta_v2.cc, qkv/io/family/deepseek_v2.cc, qkv/io/family/deepseek_v3.cc
// Covers: qkv/io/family/deit.cc, qkv/io/family/distilbert.cc, qkv/io/family/electra.cc
// Covers: qkv/io/family/falcon.cc, qkv/io/family/gemma.cc, qkv/io/family/gemma2.cc, qkv/io/family/gpt2.cc
// Covers: qkv/io/family/gpt_neo.cc, qkv/io/family/gpt_neox.cc, qkv/io/family/gptj.cc
// Covers: qkv/io/family/granite.cc, qkv/io/family/llama.cc, qkv/io/family/longformer.cc
// Covers: qkv/io/family/m2m_100.cc, qkv/io/family/marian.cc, qkv/io/family/mbart.cc
// Covers: qkv/io/family/mistral.cc, qkv/io/family/mixtral.cc, qkv/io/family/mpt.cc, qkv/io/family/olmo.cc
// Covers: qkv/io/family/olmo2.cc, qkv/io/family/opt.cc, qkv/io/family/pegasus.cc, qkv/io/family/phi.cc
// Covers: qkv/io/family/phi3.cc, qkv/io/family/qwen2.cc, qkv/io/family/qwen2_moe.cc
// Covers: qkv/io/family/reformer.cc, qkv/io/family/roberta.cc, qkv/io/family/stablelm.cc
// Covers: qkv/io/family/starcoder2.cc, qkv/io/family/switch_transformers.cc, qkv/io/family/t5.cc
// Covers: qkv/io/family/vit.cc, qkv/io/family/whisper.cc, qkv/io/family/xglm.cc, qkv/io/family/xlnet.cc
// Covers: qkv/io/family/qwen3.cc, qkv/io/family/qwen3_moe.cc, qkv/io/family/gemma3_text.cc
// Covers: qkv/io/family/olmo3.cc, qkv/io/family/cohere2.cc, qkv/io/family/exaone4.cc
// Covers: qkv/io/family/smollm3.cc, qkv/io/family/ministral.cc, qkv/io/family/seed_oss.cc
// Covers: qkv/io/family/ernie4_5.cc, qkv/io/family/ernie4_5_moe.cc, qkv/io/family/glm.cc
// Covers: qkv/io/family/glm4.cc, qkv/io/family/glm4_moe.cc, qkv/io/family/granitemoe.cc
// Covers: qkv/io/family/nemotron.cc, qkv/io/family/hunyuan_v1_dense.cc, qkv/io/family/gpt_oss.cc
// Covers: qkv/io/family/ministral3.cc, qkv/io/family/llama4_text.cc, qkv/io/family/apertus.cc
// Covers: qkv/io/family/deberta.cc, qkv/io/family/modernbert.cc, qkv/io/family/mpnet.cc
// Covers: qkv/io/family/roformer.cc, qkv/io/family/umt5.cc, qkv/io/family/t5gemma.cc
// Covers: qkv/io/family/led.cc, qkv/io/family/gemma4_text.cc
// Covers: qkv/io/family/mamba.cc, qkv/io/family/mamba2.cc, qkv/io/family/jamba.cc, qkv/io/family/lfm2.cc
// Covers: qkv/io/family/rwkv.cc, qkv/io/family/perceiver.cc
// Covers: qkv/io/family/granitemoehybrid.cc, qkv/io/family/qwen3_next.cc, qkv/io/family/qwen3_5_text.cc
// Covers: qkv/io/family/*_parts.cc
#include "qkv/io/family/family.h"

#include <vector>

#include "qkv/base/file.h"
#include "tests/unit/io/family_cases.h"
#include "tests/unit/io/model_dir_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::family_test {
namespace {

using testing::ScratchDir;

std::vector<FamilyCase> all_cases() {
  std::vector<FamilyCase> all;
  for (const auto& cases : {llama_family_cases(), hybrid_family_cases(), family_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

// Each family's directory describes its models completely, and holds the weights bit for bit.
TEST(ModelDir, DecodersOfEveryFamilyComeBack) {
  for (const FamilyCase& c : all_cases()) {
    ModelSpec spec = llama();
    c.change(spec);
    SCOPED_TRACE(c.model_type);
    EXPECT_EQ(family_for(spec).model_type, c.model_type);
    const ScratchDir dir;
    const auto model = drawn(spec);
    save_model(dir.path(), *model);
    const auto loaded = load_model(dir.path(), DType::f32);
    EXPECT_EQ(loaded->spec(), spec);
    expect_same_weights(*model, *loaded);
    const std::string second = dir.path() + "/again";
    std::filesystem::create_directories(second);
    save_model(second, *loaded);
    for (const char* name : {"/config.json", "/model.safetensors"})
      EXPECT_EQ(read_file(dir.path() + name), read_file(second + name)) << name;
  }
}

// Settings that mean nothing where a block neither attends nor has a feed-forward network.
void take_idle_settings(const ModelSpec& from, ModelSpec& to) {
  if (to.mixer.attends()) return;
  to.attention = from.attention;
  if (to.hidden > 0) return;
  to.activation = from.activation;
  to.gated = from.gated;
  to.feed_forward_bias = from.feed_forward_bias;
}

// Near each family are models that it cannot express. The family chosen for them describes them completely.
TEST(ModelDir, NeighboursOfEveryFamilyComeBack) {
  using Change = void (*)(ModelSpec&);
  const Change changes[] = {
      [](ModelSpec& s) { s.normalization = Normalization::layer; },
      [](ModelSpec& s) { s.normalization = Normalization::layer_scale; },
      [](ModelSpec& s) { s.normalization = Normalization::layer_plain; },
      [](ModelSpec& s) { s.normalization = Normalization::rms; },
      [](ModelSpec& s) { s.normalization = Normalization::rms_plus_one; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::pre; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::post; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::sandwich; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::branch; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::none; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::stream; },
      [](ModelSpec& s) { s.final_norm = false; },
      [](ModelSpec& s) {
        s.norm_placement = NormPlacement::pre;
        s.final_norm = false;
      },
      [](ModelSpec& s) {
        s.layers = 3;
        s.attention.patterns = {{.window = 3}, {.window = 3}, {}};
      },
      [](ModelSpec& s) {
        s.attention.patterns = {{}, {}};
      },
      [](ModelSpec& s) {
        s.attention.patterns = {{.window = 3}, {.window = 4}};
      },
      [](ModelSpec& s) { s.branches = Branches::serial; },
      [](ModelSpec& s) { s.branches = Branches::parallel; },
      [](ModelSpec& s) { s.branches = Branches::one_norm; },
      [](ModelSpec& s) { s.attention.bias = !s.attention.bias; },
      [](ModelSpec& s) { s.attention.out_bias = !s.attention.out_bias; },
      [](ModelSpec& s) { s.feed_forward_bias = !s.feed_forward_bias; },
      [](ModelSpec& s) { s.unembedding_bias = !s.unembedding_bias; },
      [](ModelSpec& s) { s.tied = !s.tied; },
      [](ModelSpec& s) { s.gated = !s.gated; },
      [](ModelSpec& s) { s.hidden = 7; },
      [](ModelSpec& s) { s.activation = Activation::relu; },
      [](ModelSpec& s) { s.activation = Activation::tanh; },
      [](ModelSpec& s) { s.norm_epsilon = 1e-3F; },
      [](ModelSpec& s) { s.attention.kv_heads = 1; },
      [](ModelSpec& s) { s.attention.d_qk = 6; },
      [](ModelSpec& s) { s.attention.d_vo = 6; },
      [](ModelSpec& s) { s.attention.scale = 0.5F; },
      [](ModelSpec& s) { s.attention.scaled = !s.attention.scaled; },
      [](ModelSpec& s) { s.attention.scaled_by_layer = true; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::whole; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads_plus_one; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads_rotated; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::unit_rotated; },
      [](ModelSpec& s) { s.attention.query_growth = 0.25F; },
      [](ModelSpec& s) {
        s.attention.query_growth = 0.25F;
        s.attention.query_growth_from = 1;
      },
      [](ModelSpec& s) { s.attention.key_bias = !s.attention.key_bias; },
      [](ModelSpec& s) { s.attention.rotary.truncated = !s.attention.rotary.truncated; },
      [](ModelSpec& s) { s.attention.rotary.values = !s.attention.rotary.values; },
      [](ModelSpec& s) { s.attention.rotary.turned = 2; },
      [](ModelSpec& s) { s.attention.value_norm = !s.attention.value_norm; },
      [](ModelSpec& s) { s.attention.values_of_keys = !s.attention.values_of_keys; },
      [](ModelSpec& s) {
        BlockSpec other = s;
        other.attention.reused_keys = true;
        s.kinds = {{"reused", other}};
        s.layer_kinds = {"default", "reused"};
      },
      [](ModelSpec& s) { s.block_scaled = !s.block_scaled; },
      [](ModelSpec& s) { s.layer_input_width = 4; },
      [](ModelSpec& s) { s.position_base = 500; },
      [](ModelSpec& s) { s.gate_limit = 3; },
      [](ModelSpec& s) { s.mixer_norm = !s.mixer_norm; },
      [](ModelSpec& s) { s.distance_bias = Positions::alibi; },
      [](ModelSpec& s) { s.distance_bias = Positions::relative; },
      [](ModelSpec& s) { s.relative_by_layer = !s.relative_by_layer; },
      [](ModelSpec& s) { s.experts.router_bias = !s.experts.router_bias; },
      [](ModelSpec& s) { s.experts.bias = !s.experts.bias; },
      [](ModelSpec& s) { s.experts.input_weighted = !s.experts.input_weighted; },
      [](ModelSpec& s) { s.head_bias = !s.head_bias; },
      [](ModelSpec& s) { s.pooler_bias = !s.pooler_bias; },
      [](ModelSpec& s) { s.pooler_norm = !s.pooler_norm; },
      [](ModelSpec& s) {
        BlockSpec other = s;
        other.hidden = 9;
        s.kinds = {{"encoder", other}};
        s.encoder_layer_kinds = {"encoder"};
      },
      [](ModelSpec& s) { s.normalization = Normalization::layer_plus_one; },
      [](ModelSpec& s) {
        BlockSpec other = s;
        other.attention.patterns = {{.window = 3}};
        s.kinds = {{"some", other}};
        s.layer_kinds = {"default", "some"};
      },
      [](ModelSpec& s) {
        BlockSpec other = s;
        other.hidden = 9;
        s.kinds = {{"local", other}};
        s.layer_kinds = {"local", "default"};
      },
      [](ModelSpec& s) { s.attention.patterns = {{.window = 3}}; },
      [](ModelSpec& s) { s.attention.patterns = {{.window = 3, .dilation = 2}}; },
      [](ModelSpec& s) {
        s.attention.patterns = {{.stride = 3}, {.block = 4, .neighbours = 1, .ends = true, .random = 2}};
      },
      [](ModelSpec& s) {
        s.attention.patterns = {{.window = 3}, {}};
      },
      [](ModelSpec& s) { s.attention.patterns = {}; },
      [](ModelSpec& s) { s.attention.dropout = 0.125F; },
      [](ModelSpec& s) { s.residual_dropout = 0.125F; },
      [](ModelSpec& s) { s.embedding_dropout = 0.125F; },
      [](ModelSpec& s) { s.embedding_scaled = !s.embedding_scaled; },
      [](ModelSpec& s) { s.embedding_norm = !s.embedding_norm; },
      [](ModelSpec& s) { s.embedding_multiplier = 2; },
      [](ModelSpec& s) { s.residual_multiplier = 0.5F; },
      [](ModelSpec& s) { s.logit_multiplier = 2; },
      [](ModelSpec& s) { s.embedding_width = 6; },
      [](ModelSpec& s) { s.layer_groups = 1; },
      [](ModelSpec& s) { s.segments = 2; },
      [](ModelSpec& s) {
        s.positions = Positions::alibi;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::learned;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::toeplitz;
        s.relative_distance = 3;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::sinusoidal;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::rotary;
        s.attention.rotary.width = 2;
      },
      [](ModelSpec& s) { s.attention.rotary.base = 5000; },
      [](ModelSpec& s) { s.attention.rotary.layout = RotaryLayout::interleaved; },
      [](ModelSpec& s) {
        s.attention.rotary.scaling = RotaryScaling::linear;
        s.attention.rotary.factor = 3;
      },
      [](ModelSpec& s) { s.attention.cap = 5; },
      [](ModelSpec& s) { s.attention.sinks = true; },
      [](ModelSpec& s) { s.logit_cap = 5; },
      [](ModelSpec& s) { s.hidden_layers = 2; },
      [](ModelSpec& s) { s.activation = Activation::gelu_quick; },
      [](ModelSpec& s) { s.activation = Activation::relu_squared; },
      [](ModelSpec& s) { s.activation = Activation::sigmoid; },
      [](ModelSpec& s) { s.activation = Activation::identity; },
      [](ModelSpec& s) { s.activation = Activation::xielu; },
      [](ModelSpec& s) { s.experts = {.count = 4, .chosen = 3, .hidden = 6}; },
      [](ModelSpec& s) { s.experts.chosen = 1; },
      [](ModelSpec& s) { s.experts.first = 1; },
      [](ModelSpec& s) { s.experts.every = 2; },
      [](ModelSpec& s) { s.experts.renormalized = !s.experts.renormalized; },
      [](ModelSpec& s) { s.experts.scale = 3; },
      [](ModelSpec& s) { s.experts.score = RouterScore::sigmoid; },
      [](ModelSpec& s) { s.experts.choice_bias = !s.experts.choice_bias; },
      [](ModelSpec& s) { s.experts.groups = s.experts.count; },
      [](ModelSpec& s) { s.experts.shared_hidden = 5; },
      [](ModelSpec& s) { s.experts.capacity = 7; },
      [](ModelSpec& s) {
        s.mixer = LatentMixer{6, 5};
      },
      [](ModelSpec& s) {
        s.positions = Positions::sinusoidal_closed;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) { s.order = Order::prefix; },
      [](ModelSpec& s) { s.order = Order::permuted; },
      [](ModelSpec& s) { s.normalization = Normalization::scale; },
      [](ModelSpec& s) { s.normalization = Normalization::capsule; },
      [](ModelSpec& s) { s.normalization = Normalization::batch; },
      [](ModelSpec& s) { s.embedding_unit = true; },
      [](ModelSpec& s) { s.grid = 2; },
      [](ModelSpec& s) { s.axial_width = 3; },
      [](ModelSpec& s) { s.branches = Branches::reversible; },
      [](ModelSpec& s) { s.latents.read_again = true; },
      [](ModelSpec& s) { s.latents.in.hidden = 7; },
      [](ModelSpec& s) { s.latents.out.residual = !s.latents.out.residual; },
      [](ModelSpec& s) { s.attention.shared_query_key = {1}; },
      [](ModelSpec& s) {
        s.attention.shared_query_key = {1};
        s.attention.hashing = {.chunk = 7, .buckets = {4}};
      },
      [](ModelSpec& s) { s.attention.clip = 0.5F; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::layer; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::layer_heads; },
      [](ModelSpec& s) { s.head_activation = Activation::relu; },
      [](ModelSpec& s) { s.first_position = 3; },
      [](ModelSpec& s) { s.classifier_bias = !s.classifier_bias; },
      [](ModelSpec& s) {
        s.positions = Positions::alibi_scaled;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        RotarySpec& r = s.attention.rotary;
        r.scaling = RotaryScaling::longrope;
        r.short_factors.assign(static_cast<size_t>(r.width / 2), 1.25);
        r.long_factors.assign(static_cast<size_t>(r.width / 2), 2);
        r.original_context = 5;
      },
      [](ModelSpec& s) { s.encoder.expert_every = s.experts.every + 1; },
      [](ModelSpec& s) { s.features.bias = !s.features.bias; },
      [](ModelSpec& s) { s.features.channels = 2; },
      [](ModelSpec& s) { s.features.distilled = !s.features.distilled; },
      [](ModelSpec& s) { s.encoder.context = 6; },
      [](ModelSpec& s) { s.memory = 5; },
      [](ModelSpec& s) {
        s.attention.head_sizes.assign(static_cast<size_t>(s.attention.heads), s.attention.d_qk);
      },
      [](ModelSpec& s) { s.encoder.heads = 2; },
      [](ModelSpec& s) { s.encoder.hidden = 9; },
      [](ModelSpec& s) {
        s.encoder = {8, 4, 0};
      },
      [](ModelSpec& s) { s.attention.global_projections = !s.attention.global_projections; },
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::shaw, 3};
      },
      [](ModelSpec& s) { s.attention.relative = {RelativeAttention::transformer_xl}; },
      [](ModelSpec& s) { s.attention.relative.distance = 7; },
      [](ModelSpec& s) { s.attention.relative.by_content = false; },
      [](ModelSpec& s) { s.attention.relative.by_position = false; },
      [](ModelSpec& s) {
        s.attention.relative.shared_projections = !s.attention.relative.shared_projections;
      },
      [](ModelSpec& s) { s.attention.relative.normed = !s.attention.relative.normed; },
      [](ModelSpec& s) { s.attention.relative.segments = !s.attention.relative.segments; },
      [](ModelSpec& s) {
        s.output = Output::token_classes;
        s.labels = {"a", "b"};
        s.tied = true;
      },
  };
  int tried = 0;
  for (const FamilyCase& c : all_cases())
    for (const Change& change : changes) {
      ModelSpec spec = llama();
      c.change(spec);
      change(spec);
      try {
        check_spec(spec);
      } catch (const Error&) {
        continue;
      }
      ++tried;
      SCOPED_TRACE(fmt::format("{}, change {}, saved as {}", c.model_type, &change - changes,
                               family_for(spec).model_type));
      const ScratchDir dir;
      const auto model = drawn(spec);
      save_model(dir.path(), *model);
      const auto loaded = load_model(dir.path(), DType::f32);
      ModelSpec read = loaded->spec();
      read.family = spec.family;
      if (spec.positions != Positions::rotary) spec.attention.rotary = read.attention.rotary;
      take_idle_settings(read, spec);
      EXPECT_EQ(read, spec);
      expect_same_weights(*model, *loaded);
    }
  EXPECT_GT(tried, 800);
}

}  // namespace
}  // namespace qkv::family_test
