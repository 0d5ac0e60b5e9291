// How a model's makers generate with it: generation_config.json.
#pragma once

#include <string>

#include "qkv/infer/beam.h"

namespace qkv {

// Sets what DIR/generation_config.json says, where it is there: do_sample (false: the most likely token;
// absent: as the options have it), temperature, top_k, top_p, min_p, typical_p, repetition_penalty,
// suppress_tokens, begin_suppress_tokens, bad_words_ids of one token, forced_eos_token_id, max_new_tokens,
// max_length, min_new_tokens, min_length; of beams num_beams, length_penalty, early_stopping,
// no_repeat_ngram_size. Ends of texts and forced_bos_token_id are SpecialIds'. Throws Error naming file and
// field for what is mistyped. Returns whether num_beams says to search. `refused`: what would change outputs
// and is not supported, a line that names file and field.
bool read_generation_config(const std::string& dir, GenerateOptions& options, BeamOptions& beam,
                            std::string& refused);

}  // namespace qkv
