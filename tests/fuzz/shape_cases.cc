#include "tests/fuzz/shape_cases.h"

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "tests/fuzz/shape_parts.h"
#include "tests/fuzz/shape_tables.h"

namespace qkv::testing {
namespace {

const std::vector<ShapeFamily>& all_shapes() {
  static const std::vector<ShapeFamily> all = [] {
    std::vector<ShapeFamily> out;
    for (const auto& table : {encoder_shapes(), encoder_decoder_shapes(), llama_shapes(), hybrid_shapes(),
                              decoder_shapes(), own_shapes()})
      out.insert(out.end(), table.begin(), table.end());
    return out;
  }();
  return all;
}

}  // namespace

const std::vector<std::string>& shape_families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const ShapeFamily& f : all_shapes()) out.emplace_back(f.name);
    out.emplace_back("clip");
    return out;
  }();
  return names;
}

ModelSpec draw_shape(const std::string& family, Draw& draw) {
  for (const ShapeFamily& f : all_shapes())
    if (f.name == family) {
      ModelSpec s = f.make(draw);
      if (draw.chance(0.15)) vary(s, draw, 2);
      return s;
    }
  fail("--only: no family is called '{}'", family);
}

namespace {

// A tower: its blocks and its output.
ModelSpec tower(Draw& d) {
  ModelSpec s = sized(d);
  s.activation = d.of<Activation>({Activation::gelu_quick, Activation::gelu});
  s.output = Output::embedding;
  return s;
}

}  // namespace

ModelSpec draw_clip_text(Draw& draw) {
  ModelSpec s = tower(draw);
  s.pooling = Pooling::last;
  return s;
}

ModelSpec draw_clip_vision(Draw& draw) {
  ModelSpec s = tower(draw);
  s.architecture = Architecture::encoder;
  FeatureSpec& f = s.features;
  f = {.kind = FeatureSpec::Kind::patches, .channels = draw.between(1, 4), .patch = draw.between(1, 4)};
  f.image = f.patch * draw.between(1, 4);
  f.bias = false;
  s.vocab_size = 1;
  s.context = f.patches() + 1;
  s.embedding_norm = true;
  return s;
}

SpecialIds draw_ids(const ModelSpec& spec, Draw& draw) {
  const auto id = [&] {
    return draw.between(draw.chance(0.3) ? -1 : 0, spec.vocab_size - 1 + draw.chance(0.1));
  };
  SpecialIds ids;
  ids.bos = id();
  ids.pad = id();
  if (draw.chance(0.7)) ids.eos = {draw.between(0, spec.vocab_size)};
  if (draw.chance(0.7)) ids.decoder_start = id();
  return ids;
}

std::string description_of(const ModelSpec& spec) {
  const OrderedJson all = native_family().write_config(spec)["qkv"],
                    usual = native_family().write_config(ModelSpec())["qkv"];
  OrderedJson out;
  for (const auto& [key, value] : all.items())
    if (!usual.contains(key) || usual[key] != value) out[key] = value;
  if (!spec.family.empty()) out["family"] = spec.family;
  return out.dump();
}

}  // namespace qkv::testing
