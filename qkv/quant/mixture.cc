// The rules are those of llama.cpp's src/llama-quant.cpp: Copyright (c) 2023-2026 The ggml authors, MIT
// (LICENSE.ggml).
#include "qkv/quant/mixture.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "qkv/base/error.h"

namespace qkv {
namespace {

constexpr FileTypeTraits kTraits[kFileTypes] = {
    {"f32", 0, WeightType::f32},        {"f16", 1, WeightType::f16},
    {"bf16", 32, WeightType::bf16},     {"q8_0", 7, WeightType::q8_0},
    {"q4_0", 2, WeightType::q4_0},      {"q4_1", 3, WeightType::q4_1},
    {"q5_0", 8, WeightType::q5_0},      {"q5_1", 9, WeightType::q5_1},
    {"q2_k", 10, WeightType::q2_k},     {"q3_k_s", 11, WeightType::q3_k},
    {"q3_k_m", 12, WeightType::q3_k},   {"q3_k_l", 13, WeightType::q3_k},
    {"q4_k_s", 14, WeightType::q4_k},   {"q4_k_m", 15, WeightType::q4_k},
    {"q5_k_s", 16, WeightType::q5_k},   {"q5_k_m", 17, WeightType::q5_k},
    {"q6_k", 18, WeightType::q6_k},     {"iq4_nl", 25, WeightType::iq4_nl},
    {"iq4_xs", 30, WeightType::iq4_xs}, {"mxfp4_moe", 38, WeightType::mxfp4},
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The number after "blk.".
std::optional<int> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int layer = 0;
  const char* begin = name.data() + kPrefix.size();
  const auto read = std::from_chars(begin, name.data() + name.size(), layer);
  return read.ec == std::errc() ? std::optional(layer) : std::nullopt;
}

// The parts of a model that mixtures treat differently.
enum class Part { embedding, key, value, attention_output, up_or_gate, down, output, other };

Part part_of(std::string_view name) {
  if (name == "output.weight") return Part::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Part::embedding;
  // Matrices that give values, also those that give queries and keys with them, or keys by a latent vector.
  for (const std::string_view part : {"attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"}) {
    if (contains(name, part)) return Part::value;
  }
  if (contains(name, "attn_k.weight")) return Part::key;
  if (contains(name, "attn_output.weight")) return Part::attention_output;
  if (contains(name, "ffn_up") || contains(name, "ffn_gate")) return Part::up_or_gate;
  if (contains(name, "ffn_down")) return Part::down;
  return Part::other;
}

// Matrices that are small or sensitive and keep their type.
bool is_kept(const MixtureTensor& tensor) {
  const std::string_view name = tensor.name;
  const auto& extents = tensor.extents;
  if (extents[1] <= 1 && extents[2] <= 1 && extents[3] <= 1) return true;
  if (!name.ends_with("weight")) return true;
  if (name == "position_embd.weight" || name == "token_types.weight") return true;
  constexpr std::string_view kKept[] = {"_norm.weight",
                                        "ffn_gate_inp.weight",
                                        "ffn_gate_tid2eid.weight",
                                        "altup",
                                        "laurel",
                                        "per_layer_model_proj",
                                        "ssm_conv1d",
                                        "shortconv.conv.weight",
                                        "indexer.k_proj.weight",
                                        "indexer.q_proj.weight",
                                        "time_mix_first.weight",
                                        "time_mix_w0.weight",
                                        "time_mix_w1.weight",
                                        "time_mix_w2.weight",
                                        "time_mix_v0.weight",
                                        "time_mix_v1.weight",
                                        "time_mix_v2.weight",
                                        "time_mix_a0.weight",
                                        "time_mix_a1.weight",
                                        "time_mix_a2.weight",
                                        "time_mix_g1.weight",
                                        "time_mix_g2.weight",
                                        "time_mix_decay_w1.weight",
                                        "time_mix_decay_w2.weight",
                                        "time_mix_lerp_fused.weight",
                                        "attn_rel_b.weight",
                                        ".position_embd",
                                        "sam.pos_embd",
                                        "sam.neck.",
                                        "sam.net_",
                                        ".rel_pos",
                                        ".patch_embd",
                                        ".patch_merger",
                                        "a.rvq.codebook",
                                        "mm.a.code_embd"};
  return std::any_of(std::begin(kKept), std::end(kKept),
                     [&](std::string_view part) { return contains(name, part); });
}

// The first and the last eighth of the layers, and every third between.
bool use_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// Llama and Qwen2 of 70 billion parameters, by their layers.
bool has_70_billion(const MixtureModel& model) {
  if (model.layers != 80) return false;
  return model.architecture == "qwen2" ||
         (model.architecture == "llama" && model.experts != 8 && model.heads != model.key_value_heads);
}

// Chooses types one tensor after the other, in the order in which they are written.
class Chooser {
 public:
  Chooser(FileType type, const MixtureModel& model, std::span<const MixtureTensor> tensors)
      : type_(type), base_(traits_of(type).base), model_(model), is_falcon_(model.architecture == "falcon") {
    for (const MixtureTensor& tensor : tensors) {
      const Part part = part_of(tensor.name);
      values_ += part == Part::value;
      tied_ &= part != Part::output;
    }
  }

  std::optional<WeightType> choose(const MixtureTensor& tensor) {
    if (is_kept(tensor)) return std::nullopt;
    if (!is_quantized(base_)) return base_;
    return fitting(tensor, wanted(tensor));
  }

 private:
  bool is_one_of(std::initializer_list<FileType> types) const {
    return std::find(types.begin(), types.end(), type_) != types.end();
  }
  int64_t queries_per_key() const {
    return model_.key_value_heads == 0 ? 0 : model_.heads / model_.key_value_heads;
  }

  // Before the widths of rows count.
  WeightType wanted(const MixtureTensor& tensor) {
    const Part part = part_of(tensor.name);
    if (part == Part::output || (tied_ && part == Part::embedding)) return for_output(tensor);
    if (type_ == FileType::mxfp4_moe) return tensor.extents[2] > 1 ? WeightType::mxfp4 : WeightType::q8_0;
    switch (part) {
      case Part::value:
        return for_value(next_value_++);
      case Part::key:
        return model_.experts == 8 ? WeightType::q8_0 : base_;
      case Part::down:
        return for_down(layer_index(tensor, next_down_++));
      case Part::up_or_gate:
        layer_index(tensor, 0);  // rejects the names that llama_model_quantize() rejects
        return base_;
      case Part::attention_output:
        return for_attention_output();
      default:
        return base_;
    }
  }

  // Experts are named by layer but may be missing in some: their place is no layer.
  int64_t layer_index(const MixtureTensor& tensor, int64_t place) const {
    if (model_.experts <= 1) return place;
    const std::optional<int> layer = layer_of(tensor.name);
    check(layer.has_value(), "tensor {}: its name tells no layer, as those of a model with experts must",
          tensor.name);
    check(*layer >= 0 && *layer < model_.layers, "tensor {}: layer {} of a model of {} layers", tensor.name,
          *layer, model_.layers);
    return *layer;
  }

  WeightType for_output(const MixtureTensor& tensor) const {
    if (type_ == FileType::mxfp4_moe || is_falcon_ || base_ == WeightType::q8_0 ||
        tensor.extents[0] % layout_of(base_).elements != 0)
      return WeightType::q8_0;
    return WeightType::q6_k;
  }

  WeightType for_value(int64_t place) const {
    if (model_.experts == 8) return WeightType::q8_0;
    WeightType chosen = base_;
    const bool shared = queries_per_key() >= 4;
    if (type_ == FileType::q2_k)
      chosen = shared ? WeightType::q4_k : WeightType::q3_k;
    else if (type_ == FileType::q3_k_m)
      chosen = place < 2 ? WeightType::q5_k : WeightType::q4_k;
    else if (is_one_of({FileType::q4_k_m, FileType::q5_k_m}) && use_more_bits(place, values_))
      chosen = WeightType::q6_k;
    else if (type_ == FileType::q3_k_l || (is_one_of({FileType::iq4_nl, FileType::iq4_xs}) && shared) ||
             (type_ == FileType::q4_k_s && place < 4))
      chosen = WeightType::q5_k;
    // Eight heads share a value there, so that its matrix is small.
    if (has_70_billion(model_) && (chosen == WeightType::q3_k || chosen == WeightType::q4_k))
      chosen = WeightType::q5_k;
    return chosen;
  }

  WeightType for_down(int64_t layer) const {
    const int64_t layers = model_.layers;
    const bool early = layer < layers / 8;
    switch (type_) {
      case FileType::q2_k:
        return WeightType::q3_k;
      case FileType::q3_k_m:
        if (layer < layers / 16) return WeightType::q5_k;
        return !is_falcon_ || use_more_bits(layer, layers) ? WeightType::q4_k : WeightType::q3_k;
      case FileType::q3_k_l:
        return is_falcon_ ? WeightType::q4_k : WeightType::q5_k;
      case FileType::q4_k_s:
        return early && !is_falcon_ ? WeightType::q5_k : base_;
      case FileType::q4_k_m:
        if (is_falcon_ && layer >= layers / 16)
          return use_more_bits(layer, layers) ? WeightType::q5_k : WeightType::q4_k;
        return is_falcon_ || use_more_bits(layer, layers) ? WeightType::q6_k : base_;
      case FileType::q5_k_m:
        return use_more_bits(layer, layers) ? WeightType::q6_k : base_;
      case FileType::iq4_nl:
      case FileType::iq4_xs:
        return early && !model_.importance ? WeightType::q5_k : base_;
      case FileType::q4_0:  // with importance, the first layers can go astray without a minimum
        return early && model_.importance ? WeightType::q4_1 : base_;
      case FileType::q5_0:
        return early && model_.importance ? WeightType::q5_1 : base_;
      default:
        return base_;
    }
  }

  WeightType for_attention_output() const {
    if (is_falcon_) return type_ == FileType::q3_k_l ? WeightType::q4_k : base_;
    if (model_.experts == 8) {
      const bool more = is_one_of({FileType::q2_k, FileType::q3_k_s, FileType::q3_k_m, FileType::q4_k_s,
                                   FileType::q4_k_m, FileType::iq4_nl, FileType::iq4_xs});
      return more ? WeightType::q5_k : base_;
    }
    if (type_ == FileType::q2_k) return WeightType::q3_k;
    if (type_ == FileType::q3_k_m) return WeightType::q4_k;
    if (type_ == FileType::q3_k_l) return WeightType::q5_k;
    return base_;
  }

  // The type or, for rows that are no multiple of its 256 elements, one with blocks of 32, or f16.
  static WeightType fitting(const MixtureTensor& tensor, WeightType type) {
    const int64_t width = tensor.extents[0];
    if (width % layout_of(type).elements == 0) return type;
    const auto smaller = [&] {
      switch (type) {
        case WeightType::iq4_xs:
          return WeightType::iq4_nl;
        case WeightType::q2_k:
        case WeightType::q3_k:
          return WeightType::q4_0;
        case WeightType::q4_k:
          return WeightType::q5_0;
        case WeightType::q5_k:
          return WeightType::q5_1;
        case WeightType::q6_k:
          return WeightType::q8_0;
        default:  // its blocks have 32 elements
          return type;
      }
    }();
    return width % layout_of(smaller).elements == 0 ? smaller : WeightType::f16;
  }

  FileType type_;
  WeightType base_;
  const MixtureModel& model_;
  bool is_falcon_;
  bool tied_ = true;    // no output matrix: the embedding stands in for it
  int64_t values_ = 0;  // tensors of Part::value
  int64_t next_value_ = 0, next_down_ = 0;
};

}  // namespace

const FileTypeTraits& traits_of(FileType type) {
  return kTraits[static_cast<int>(type)];
}

std::string_view name_of(FileType type) {
  return traits_of(type).name;
}

std::optional<FileType> file_type(std::string_view name) {
  for (int i = 0; i < kFileTypes; ++i) {
    if (kTraits[i].name == name) return static_cast<FileType>(i);
  }
  return std::nullopt;
}

const std::array<std::string_view, kFileTypes>& file_type_names() {
  static const auto names = [] {
    std::array<std::string_view, kFileTypes> all;
    std::transform(std::begin(kTraits), std::end(kTraits), all.begin(),
                   [](const auto& traits) { return traits.name; });
    return all;
  }();
  return names;
}

bool is_written_before(std::string_view a, std::string_view b) {
  const int layer_a = layer_of(a).value_or(-1), layer_b = layer_of(b).value_or(-1);
  return layer_a != layer_b ? layer_a < layer_b : a < b;
}

std::vector<std::optional<WeightType>> mixture(FileType type, const MixtureModel& model,
                                               std::span<const MixtureTensor> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return is_written_before(tensors[a].name, tensors[b].name); });
  Chooser chooser(type, model, tensors);
  std::vector<std::optional<WeightType>> chosen(tensors.size());
  for (const size_t i : order) chosen[i] = chooser.choose(tensors[i]);
  return chosen;
}

}  // namespace qkv
