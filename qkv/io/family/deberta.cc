// DeBERTa, the first version: Hugging Face's DebertaForMaskedLM and so on.

#include "qkv/base/json_value.h"
#include "qkv/io/family/deberta_parts.h"

namespace qkv {
namespace {

ModelSpec read_deberta(const JsonField& c) {
  check(!c.boolean_or("talking_head", false), "{}: talking_head: only false is supported", c.place());
  ModelSpec s = read_deberta(c, "Deberta");
  check(s.problem != Problem::multiple_choice,
        "{}: architectures: there is no DebertaForMultipleChoice (DebertaV2ForMultipleChoice is supported)",
        c.place());
  s.attention.key_bias = false;
  return s;
}

// One tensor has the rows of each head's query, key and value in turn, without biases.
void add_deberta_attention(WeightNames& n, const ModelSpec& s, const std::string& engine,
                           const std::string& file) {
  const RelativeSpec& r = s.attention.relative;
  const int64_t d = s.attention.d_qk;
  n.tensor(engine + "qkv.weight", file + "in_proj.weight");
  for (int64_t row = 0; row < 3 * s.width; ++row) {
    const int64_t part = row / s.width, head = row % s.width / d;
    n.all.back().row_order.push_back((3 * head + part) * d + row % d);
  }
  int64_t first = 0;
  for (const char* bias : {"q_bias", "", "v_bias"}) {
    n.all.push_back({engine + "qkv.bias", *bias ? file + bias : "", false, first, s.width});
    first += s.width;
  }
  if (r.by_content) n.tensor(engine + "distance_key.weight", file + "pos_proj.weight");
  if (r.by_position) n.linear(engine + "distance_query", file + "pos_q_proj");
}

}  // namespace

const Family& deberta_family() {
  static const Family family = deberta_like(
      "deberta", read_deberta, [](const ModelSpec& s) { return write_deberta(s, "deberta", "Deberta"); },
      [](const ModelSpec& s) { return deberta_stack(s, add_deberta_attention).all; });
  return family;
}

}  // namespace qkv
