// One function for each subcommand, which declares its options and its action.
#pragma once

#include <string>

#include "qkv/cli/options.h"
#include "qkv/tensor/dtype.h"

namespace qkv {

// Type for the value of --dtype: "bf16", or anything else for f32.
inline DType compute_type(const std::string& name) {
  return name == "bf16" ? DType::bf16 : DType::f32;
}

void add_init_command(Command& app);
void add_train_command(Command& app);
void add_config_command(Command& app);
void add_plan_command(Command& app);
void add_eval_command(Command& app);
void add_generate_command(Command& app);
void add_chat_command(Command& app);
void add_report_command(Command& app);
void add_score_command(Command& app);
void add_trace_command(Command& app);
void add_inspect_command(Command& app);
void add_forward_command(Command& app);
void add_translate_command(Command& app);
void add_fill_command(Command& app);
void add_choose_command(Command& app);
void add_classify_command(Command& app);
void add_tag_command(Command& app);
void add_answer_command(Command& app);
void add_embed_command(Command& app);
void add_rerank_command(Command& app);
void add_tokenizer_command(Command& app);
void add_average_command(Command& app);
void add_merge_command(Command& app);
void add_quantize_command(Command& app);
void add_convert_command(Command& app);

}  // namespace qkv
