// qkv trace: texts of a file as passes of a model.
#pragma once

#include <string>
#include <vector>

#include "qkv/cli/trace_command.h"

namespace qkv {

// Throws Error naming the option for a model that does not read one text in order.
void expect_one_stack(const TracedModel& m, const char* option);

// The most tokens of a pass.
int64_t longest_pass(const TracedModel& m);
// The tokens of a text as the model reads them.
text::Encoding tokens_of(const TracedModel& m, const std::string& text);
ModelInput input_of_tokens(const TracedModel& m, const std::vector<text::TokenId>& tokens);
// The special tokens that begin a text.
std::vector<text::TokenId> begin_of_texts(const TracedModel& m);

// Calls f with consecutive passes of a file's text, read as they are needed, until they have `limit` tokens,
// over and over if `again`, and shows the progress. Returns the number of tokens. Throws Error if the text
// has less than two.
int64_t for_each_pass(const TracedModel& m, const std::string& file, int64_t limit, bool again,
                      const std::function<void(const ModelInput& input, int64_t tokens_before)>& f);

}  // namespace qkv
