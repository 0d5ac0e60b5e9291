#include "qkv/io/family/hybrid_parts.h"

#include <algorithm>

#include "qkv/base/json_value.h"

namespace qkv {

void give_blocks(ModelSpec& s, const std::vector<std::string>& names,
                 const std::map<std::string, BlockSpec>& blocks) {
  const auto used = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  std::vector<std::string> of_layers = names;
  if (!names.empty() && !used(kDefaultKind)) {  // the first layer's becomes the model's own
    static_cast<BlockSpec&>(s) = blocks.at(names[0]);
    for (std::string& name : of_layers)
      if (name == names[0]) name = kDefaultKind;
  }
  for (const auto& [name, block] : blocks)
    if (std::ranges::find(of_layers, name) != of_layers.end()) s.kinds.push_back({name, block});
  if (!s.kinds.empty()) s.layer_kinds = shortest_run(std::move(of_layers));
}

std::vector<bool> read_layer_types(const JsonField& c, int64_t layers, const char* type, const char* other,
                                   const std::function<bool(int64_t layer)>& otherwise) {
  std::vector<bool> of;
  const auto types = c.find("layer_types") ? c.find("layer_types") : c.find("layers_block_type");
  if (!types || types->json().is_null()) {
    constexpr int64_t kMostLayers = 4096;
    for (int64_t l = 0; l < std::min(layers, kMostLayers); ++l) of.push_back(otherwise(l));
    return of;
  }
  check(static_cast<int64_t>(types->size()) == layers, "{}: expected {} types, one for each layer, got {}",
        types->place(), layers, types->size());
  for (size_t l = 0; l < types->size(); ++l) {
    const std::string name = types->at(l).string();
    check(name == type || name == other, "{}: '{}' is not supported ({} and {} are)", types->at(l).place(),
          name, type, other);
    of.push_back(name == type);
  }
  return of;
}

OrderedJson write_layer_types(const ModelSpec& s, const char* attends, const char* other) {
  OrderedJson types = OrderedJson::array();
  for (int64_t l = 0; l < s.layers; ++l) types.push_back(s.block(l).mixer.attends() ? attends : other);
  return types;
}

BlockSpec with_mixer(BlockSpec block, const MixerSpec& mixer) {
  block.mixer = mixer;
  block.positions = Positions::none;
  block.attention = {};
  block.attention.d_qk = block.attention.d_vo = 1;
  return block;
}

ModelSpec as_if_all_attend(const ModelSpec& s) {
  ModelSpec all = s;
  for (int64_t l = 0; l < s.layers; ++l)
    if (s.block(l).mixer.attends()) {
      static_cast<BlockSpec&>(all) = s.block(l);
      break;
    }
  return all;
}

namespace {

// A convolution's weight is [channels, 1, kernel] in files.
void add_short_convolution(WeightNames& n, int64_t channels, int64_t kernel, bool bias,
                           const std::string& engine, const std::string& file) {
  n.tensor(engine + "convolution.weight", file + ".weight");
  n.all.back().shape = {channels, 1, kernel};
  if (bias) n.tensor(engine + "convolution.bias", file + ".bias");
}

}  // namespace

void add_mamba(WeightNames& n, const MambaMixer& m, const std::string& e, const std::string& f) {
  n.bias = m.bias;
  n.linear(e + "in", f + "in_proj");
  n.linear(e + "out", f + "out_proj");
  n.bias = false;
  add_short_convolution(n, m.inner, m.kernel, m.convolution_bias, e, f + "conv1d");
  n.linear(e + "select", f + "x_proj");
  n.linear(e + "step", f + "dt_proj");
  n.tensor(e + "step_bias", f + "dt_proj.bias");
  n.tensor(e + "log_rate", f + "A_log");
  n.tensor(e + "skip", f + "D");
  if (!m.norms) return;
  n.tensor(e + "step_norm.gamma", f + "dt_layernorm.weight");
  n.tensor(e + "B_norm.gamma", f + "b_layernorm.weight");
  n.tensor(e + "C_norm.gamma", f + "c_layernorm.weight");
}

void add_mamba2(WeightNames& n, const Mamba2Mixer& m, const std::string& e, const std::string& f) {
  n.bias = m.bias;
  n.linear(e + "in", f + "in_proj");
  n.linear(e + "out", f + "out_proj");
  add_short_convolution(n, m.heads * m.head_width + 2 * m.groups * m.state, m.kernel, m.convolution_bias, e,
                        f + "conv1d");
  n.tensor(e + "step_bias", f + "dt_bias");
  n.tensor(e + "log_rate", f + "A_log");
  n.tensor(e + "skip", f + "D");
  n.tensor(e + "gate_norm.gamma", f + "norm.weight");
}

void add_convolution(WeightNames& n, const ConvolutionMixer& m, int64_t width, const std::string& e,
                     const std::string& f) {
  n.bias = m.bias;
  n.linear(e + "in", f + "in_proj");
  n.linear(e + "out", f + "out_proj");
  add_short_convolution(n, width, m.kernel, m.bias, e, f + "conv");
}

void add_gated_delta(WeightNames& n, const GatedDeltaMixer& m, bool joined, const std::string& e,
                     const std::string& f) {
  const int64_t keys = m.key_heads * m.d_k, values = m.heads * m.d_v, mixed = 2 * keys + values;
  const std::string in = e + "in.weight";
  if (joined) {
    // The rows of a head of keys: queries, keys, then values and gates of the heads that share it.
    const int64_t sharing = m.heads / m.key_heads, of_values = sharing * m.d_v,
                  of_head = 2 * m.d_k + 2 * of_values;
    std::vector<int64_t> rows, beta_and_decay;
    const auto add = [&](int64_t first, int64_t count) {
      for (int64_t h = 0; h < m.key_heads; ++h)
        for (int64_t i = 0; i < count; ++i) rows.push_back(h * of_head + first + i);
    };
    add(0, m.d_k);
    add(m.d_k, m.d_k);
    add(2 * m.d_k, of_values);
    add(2 * m.d_k + of_values, of_values);
    for (const int64_t part : {0, 1})
      for (int64_t h = 0; h < m.heads; ++h)
        beta_and_decay.push_back(h / sharing * 2 * sharing + part * sharing + h % sharing);
    n.all.push_back({in, f + "in_proj_ba.weight", false, 0, 2 * m.heads});
    n.all.back().row_order = beta_and_decay;
    n.all.push_back({in, f + "in_proj_qkvz.weight", false, 2 * m.heads, mixed + values});
    n.all.back().row_order = rows;
  } else {
    n.all.push_back({in, f + "in_proj_b.weight", false, 0, m.heads});
    n.all.push_back({in, f + "in_proj_a.weight", false, m.heads, m.heads});
    n.all.push_back({in, f + "in_proj_qkv.weight", false, 2 * m.heads, mixed});
    n.all.push_back({in, f + "in_proj_z.weight", false, 2 * m.heads + mixed, values});
  }
  add_short_convolution(n, mixed, m.kernel, false, e, f + "conv1d");
  n.tensor(e + "step_bias", f + "dt_bias");
  n.tensor(e + "log_rate", f + "A_log");
  n.tensor(e + "gate_norm.gamma", f + "norm.weight");
  n.bias = false;
  n.linear(e + "out", f + "out_proj");
}

void read_step_limits(const JsonField& c, const char* key, Mamba2Mixer& m) {
  const auto limits = c.find(key);
  if (!limits || limits->json().is_null()) return;
  check(limits->size() == 2, "{}: expected the lowest and the highest step", limits->place());
  m.step_low = static_cast<float>(limits->at(0).number());
  if (limits->at(1).json().is_number() && limits->at(1).number() < 0.5 * double{kNoStep})
    m.step_high = static_cast<float>(limits->at(1).number());
}

int64_t read_step_rank(const JsonField& c, const char* key, int64_t width) {
  const auto field = c.find(key);
  const bool by_width = !field || (field->json().is_string() && field->string() == "auto");
  return by_width ? (width + 15) / 16 : field->integer(1, kMost);
}

}  // namespace qkv
