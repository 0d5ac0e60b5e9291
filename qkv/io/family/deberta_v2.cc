// DeBERTa V2 and V3: Hugging Face's DebertaV2For....

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/deberta_parts.h"

namespace qkv {
namespace {

ModelSpec read_deberta_v2(const JsonField& c) {
  check(c.integer_or("conv_kernel_size", 0, 0, kMost) == 0, "{}: conv_kernel_size: only 0 is supported",
        c.place());
  check(c.boolean_or("legacy", true), "{}: legacy: only true is supported", c.place());
  ModelSpec s = read_deberta(c, "DebertaV2");
  RelativeSpec& r = s.attention.relative;
  r.buckets = std::max<int64_t>(0, c.integer_or("position_buckets", -1, -1, kMost));
  r.shared_projections = c.boolean_or("share_att_key", false);
  const auto norm = c.string_or("norm_rel_ebd", "none");
  check(norm == "none" || norm == "layer_norm",
        "{}: norm_rel_ebd: '{}' is not supported (none, layer_norm are)", c.place(), norm);
  r.normed = norm == "layer_norm";
  return s;
}

OrderedJson write_deberta_v2(const ModelSpec& s) {
  const RelativeSpec& r = s.attention.relative;
  OrderedJson config = write_deberta(s, "deberta-v2", "DebertaV2");
  config["position_buckets"] = r.buckets > 0 ? r.buckets : -1;
  config["share_att_key"] = r.shared_projections;
  config["norm_rel_ebd"] = r.normed ? "layer_norm" : "none";
  return config;
}

void add_deberta_v2_attention(WeightNames& n, const ModelSpec& s, const std::string& engine,
                              const std::string& file) {
  const RelativeSpec& r = s.attention.relative;
  n.parts(engine + "qkv", {file + "query_proj", file + "key_proj", file + "value_proj"},
          {s.width, s.width, s.width});
  if (!r.shared_projections && r.by_content) n.linear(engine + "distance_key", file + "pos_key_proj");
  if (!r.shared_projections && r.by_position) n.linear(engine + "distance_query", file + "pos_query_proj");
}

}  // namespace

const Family& deberta_v2_family() {
  static const Family family =
      deberta_like("deberta-v2", read_deberta_v2, write_deberta_v2,
                   [](const ModelSpec& s) { return deberta_stack(s, add_deberta_v2_attention).all; });
  return family;
}

}  // namespace qkv
