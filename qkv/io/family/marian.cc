// Marian: Hugging Face's MarianMTModel.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"

namespace qkv {

const Family& marian_family() {
  static const Family family = {"marian",
                                [](const JsonField& c) {
                                  ModelSpec s = read_bart_like(c);
                                  s.positions = Positions::sinusoidal_halves;
                                  check(c.boolean_or("share_encoder_decoder_embeddings", true),
                                        "{}: share_encoder_decoder_embeddings: only true is supported",
                                        c.place());
                                  return s;
                                },
                                [](const ModelSpec& s) {
                                  OrderedJson config = write_bart_like(s, "marian", "MarianMTModel");
                                  config["decoder_vocab_size"] = s.vocab_size;
                                  config["share_encoder_decoder_embeddings"] = true;
                                  return config;
                                },
                                [](const ModelSpec& s) {
                                  return is_bart_like(s) && s.positions == Positions::sinusoidal_halves &&
                                         !s.stacks_apart && !s.embedding_norm;
                                },
                                weights_named_as_marian,
                                "model.",
                                is_extra_in_marian};
  return family;
}

}  // namespace qkv
