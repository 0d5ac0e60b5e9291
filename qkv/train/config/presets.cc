#include "qkv/train/config/presets.h"

#include "qkv/base/error.h"

namespace qkv {
namespace {

constexpr Preset kPresets[] = {
    {"vaswani", "Vaswani et al. 2017", R"(
architecture = "encoder_decoder"
positions = "sinusoidal"
norm = "post"
activation = "relu"
embedding_scaled = true)"},
    {"bert", "Devlin et al. 2019", R"(architecture = "encoder")"},
    {"gpt2", "Radford et al. 2019", ""},
    {"gpt3-sparse", "Brown et al. 2020: dense and banded layers in turn",
     R"(patterns = ["all", "window 128"])"},
    {"bart", "Lewis et al. 2020", R"(
architecture = "encoder_decoder"
norm = "post"
norm_epsilon = 1e-5
activation = "gelu"
embedding_norm = true
stacks_apart = true
unembedding_bias = true)"},
    {"t5", "Raffel et al. 2020", R"(
architecture = "encoder_decoder"
positions = "relative"
normalization = "rms"
norm_epsilon = 1e-6
attention_scaled = false
unembedding_scaled = true
activation = "relu"
attention_bias = false
feed_forward_bias = false)"},
    {"t5-v1.1", "Shazeer 2020", R"(
architecture = "encoder_decoder"
positions = "relative"
normalization = "rms"
norm_epsilon = 1e-6
attention_scaled = false
activation = "gelu_tanh"
gated = true
attention_bias = false
feed_forward_bias = false
tied = false)",
     8.0 / 3},
    {"gpt-j", "Wang & Komatsuzaki 2021", R"(
positions = "rotary"
rotary_layout = "interleaved"
branches = "one_norm"
attention_bias = false
tied = false
unembedding_bias = true)"},
    {"gpt-neox", "Black et al. 2022", R"(
positions = "rotary"
branches = "parallel"
activation = "gelu"
tied = false)"},
    {"bloom", "Le Scao et al. 2022", R"(
positions = "alibi"
embedding_norm = true)"},
    {"mpt", "MosaicML 2023", R"(
positions = "alibi_evens_first"
normalization = "layer_scale"
activation = "gelu"
attention_bias = false
feed_forward_bias = false)"},
    {"palm", "Chowdhery et al. 2022", R"(
positions = "rotary"
rotary_layout = "interleaved"
branches = "one_norm"
normalization = "layer_scale"
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false)",
     4, 0},
    {"falcon", "Almazrouei et al. 2023", R"(
positions = "rotary"
branches = "one_norm"
activation = "gelu"
attention_bias = false
feed_forward_bias = false)",
     4, 0},
    {"llama", "Touvron et al. 2023", R"(
positions = "rotary"
normalization = "rms"
norm_epsilon = 1e-6
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false
tied = false)",
     8.0 / 3},
    {"mistral", "Jiang et al. 2023", R"(
positions = "rotary"
patterns = ["window 128"]
normalization = "rms"
norm_epsilon = 1e-6
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false
tied = false)",
     3.5, 2},
    {"gemma", "Gemma Team 2024", R"(
positions = "rotary"
normalization = "rms_plus_one"
norm_epsilon = 1e-6
activation = "gelu_tanh"
gated = true
attention_bias = false
feed_forward_bias = false
embedding_scaled = true)",
     4, 0},
    {"gemma2", "Gemma Team 2024", R"(
positions = "rotary"
norm = "sandwich"
patterns = ["window 128", "all"]
attention_cap = 50
logit_cap = 30
normalization = "rms_plus_one"
norm_epsilon = 1e-6
activation = "gelu_tanh"
gated = true
attention_bias = false
feed_forward_bias = false
embedding_scaled = true)",
     4, 2},
    {"gemma3",
     "Gemma Team 2025: five layers with a window, then one without, each with a rotary base of its own", R"(
positions = "rotary"
rotary_base = 1e6
layer_kinds = ["local", "local", "local", "local", "local", "default"]
kind.local.patterns = ["window 128"]
kind.local.rotary_base = 1e4
norm = "sandwich"
query_key_norm = "heads_plus_one"
normalization = "rms_plus_one"
norm_epsilon = 1e-6
activation = "gelu_tanh"
gated = true
attention_bias = false
feed_forward_bias = false
embedding_scaled = true)",
     4, 2},
    {"mixtral", "Jiang et al. 2024: 8 experts, 2 of a token", R"(
positions = "rotary"
experts = 8
experts_chosen = 2
normalization = "rms"
norm_epsilon = 1e-6
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false
tied = false)",
     3.5, 2},
    {"mamba", "Gu & Dao 2023: a selective scan in each layer, and no feed-forward networks", R"(
mixer = "mamba"
hidden = 0
normalization = "rms")"},
    {"mamba2", "Dao & Gu 2024: the same with one decay for all channels of a head", R"(
mixer = "mamba2"
mamba2_head_width = 32
mamba2_state = 64
hidden = 0
normalization = "rms")"},
    {"rwkv4", "Peng et al. 2023: RWKV, weighted means of all tokens so far, each token read with the last",
     R"(
mixer = "rwkv4"
channel_mix = "rwkv4"
activation = "relu_squared"
embedding_norm = true
feed_forward_bias = false
tied = false)"},
    {"rwkv7", "Peng et al. 2025: RWKV-7, a matrix of each head that forgets and learns by a delta rule", R"(
mixer = "rwkv7"
channel_mix = "rwkv7"
activation = "relu_squared"
embedding_norm = true
feed_forward_bias = false
tied = false)"},
    {"aft", "Zhai et al. 2021: attention-free, keys weighted by their numbers and positions alone", R"(
mixer = "attention_free")"},
    {"reformer", "Kitaev et al. 2020: chunks and hashed keys in turn, and two streams that need no memory",
     R"(
branches = "reversible"
norm = "pre"
patterns = ["block 64 neighbours 1", "all"]
shared_query_key = [0, 1]
hashed_beyond = 64
hash_rounds = 2
activation = "relu"
attention_bias = false
tied = false
unembedding_bias = true)"},
    {"perceiver", "Jaegle et al. 2022: Perceiver IO, latents that read the text and are read", R"(
architecture = "encoder"
latents = 32)"},
    {"qwen3-next", "Qwen Team 2025: three layers of Gated DeltaNet, then one of gated attention", R"(
positions = "rotary"
layer_kinds = ["linear", "linear", "linear", "default"]
kind.linear.mixer = "gated_delta"
attention_gate = true
query_key_norm = "heads_plus_one"
normalization = "rms_plus_one"
norm_epsilon = 1e-6
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false)",
     8.0 / 3, 2},
    {"lfm2", "Liquid AI 2025: two layers of gated convolutions, then one of attention", R"(
positions = "rotary"
rotary_base = 1e6
layer_kinds = ["convolution", "convolution", "default"]
kind.convolution.mixer = "convolution"
query_key_norm = "heads"
normalization = "rms"
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false)",
     8.0 / 3, 2},
    {"jamba", "Lieber et al. 2024: layers of Mamba, and every fourth of attention without positions", R"(
positions = "none"
layer_kinds = ["mamba", "mamba", "default", "mamba"]
kind.mamba.mixer = "mamba"
kind.mamba.mamba_norms = true
normalization = "rms"
norm_epsilon = 1e-6
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false
tied = false)",
     3.5, 2},
    {"deepseek-mla", "DeepSeek-AI 2024: multi-head latent attention", R"(
positions = "rotary"
rotary_width = 16
rotary_layout = "interleaved"
kv_latent = 64
normalization = "rms"
norm_epsilon = 1e-6
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false
tied = false)",
     8.0 / 3},
    {"albert", "Lan et al. 2020", R"(
architecture = "encoder"
embedding_width = 64
embedding_projected_last = true
head_width = 64
layer_groups = 1
activation = "gelu_tanh")"},
    {"bigbird", "Zaheer et al. 2020", R"(
architecture = "encoder"
patterns = ["block 64 neighbours 1 ends random 3"]
activation = "gelu_tanh")"},
    {"gopher", "Rae et al. 2021", R"(
relative_attention = "transformer_xl"
normalization = "rms")"},
    {"xlnet", "Yang et al. 2019", R"(
architecture = "encoder"
relative_attention = "transformer_xl"
relative_segments = true
attention_bias = false
embedding_norm = false
segments = 0
head_width = 0)",
     4, 1, "permutation"},
    {"deberta-v3", "He et al. 2021, 2023", R"(
architecture = "encoder"
relative_attention = "disentangled"
relative_attention_buckets = 32
relative_shared = true
relative_norm = true
segments = 0
norm_epsilon = 1e-7)"},
    {"longformer", "Beltagy et al. 2020", R"(
architecture = "encoder"
patterns = ["window 65 global 1"]
global_projections = true
segments = 1)"},
    {"riedel-g", "Riedel, with his mask: the z-score on each sum, no biases in attention", R"(
norm = "post"
normalization = "layer_plain"
activation = "relu"
attention_bias = false
tied = false)"},
    {"olmo2", "OLMo Team 2025", R"(
positions = "rotary"
norm = "branch"
query_key_norm = "whole"
normalization = "rms"
norm_epsilon = 1e-6
activation = "silu"
gated = true
attention_bias = false
feed_forward_bias = false
tied = false)",
     8.0 / 3},
};

constexpr PresetSize kSizes[] = {{"tiny", 128, 4, 4}, {"small", 384, 6, 6}, {"base", 768, 12, 12}};

template <typename T>
const T& named(std::span<const T> all, const char* what, const std::string& name) {
  std::string known;
  for (const T& one : all) {
    if (name == one.name) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  fail("{}: expected one of {}, got '{}'", what, known, name);
}

}  // namespace

std::span<const Preset> presets() {
  return kPresets;
}
const Preset& preset_from_name(const std::string& name) {
  return named<Preset>(kPresets, "preset", name);
}
const PresetSize& preset_size_from_name(const std::string& name) {
  return named<PresetSize>(kSizes, "size", name);
}

}  // namespace qkv
