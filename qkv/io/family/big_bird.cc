// BigBird: Hugging Face's BigBirdForMaskedLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

bool is_masked_lm(const ModelSpec& s) {
  return is_bert(s) && s.architecture == Architecture::encoder && s.output == Output::tokens &&
         s.labels.empty();
}

}  // namespace

const Family& big_bird_family() {
  static const Family family = {
      "big_bird",
      [](const JsonField& c) {
        const auto type = c.string_or("attention_type", "block_sparse");
        check(type == "original_full" || type == "block_sparse",
              "{}: attention_type: '{}' is not supported (original_full, block_sparse are)", c.place(), type);
        check(c.boolean_or("use_bias", true), "{}: use_bias: only true is supported", c.place());
        ModelSpec s = read_bert_like(c, "BigBird", 0);
        check(s.output == Output::tokens && s.labels.empty(),
              "{}: architectures: of BigBird only BigBirdForMaskedLM is supported", c.place());
        s.activation = read_activation(c, "hidden_act", "gelu_new");
        s.embedding_scaled = c.boolean_or("rescale_embeddings", false);
        if (type == "block_sparse") {
          // At inference its random blocks are always the first ones; short sequences attend to all tokens.
          const auto block = c.integer_or("block_size", 64, 1, 1 << 20),
                     random = c.integer_or("num_random_blocks", 3, 0, 1024);
          s.attention.patterns = {{.block = block,
                                   .neighbours = 1,
                                   .ends = true,
                                   .beyond = (5 + 2 * random) * block,
                                   .first_block = 1 + random}};
        }
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_bert_like(s, "big_bird", "BigBird", 0);
        c["attention_type"] = s.attention.patterns.empty() ? "original_full" : "block_sparse";
        if (!s.attention.patterns.empty()) {
          c["block_size"] = s.attention.patterns[0].block;
          c["num_random_blocks"] = s.attention.patterns[0].first_block - 1;
        }
        c["use_bias"] = true;
        if (s.embedding_scaled) c["rescale_embeddings"] = true;
        return c;
      },
      [](const ModelSpec& s) {
        ModelSpec unscaled = s;
        unscaled.embedding_scaled = false;
        return s.family == "big_bird" && is_masked_lm(unscaled);
      },
      weights_named_as_bert,
      "bert.",
      [](const ModelSpec& s, const std::string& name) {  // its pooler has no "dense"
        return is_extra_in_bert(s, name) || name.starts_with("bert.pooler.");
      }};
  return family;
}

}  // namespace qkv
