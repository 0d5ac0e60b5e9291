// One function a subcommand: it declares its options and what to run.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "qkv/tensor/dtype.h"

namespace qkv {

// What --dtype means: "bf16", or anything else for f32.
inline DType compute_type(const std::string& name) {
  return name == "bf16" ? DType::bf16 : DType::f32;
}

void add_train_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_chat_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_score_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_forward_command(CLI::App& app);
void add_translate_command(CLI::App& app);
void add_fill_command(CLI::App& app);
void add_classify_command(CLI::App& app);
void add_tag_command(CLI::App& app);
void add_answer_command(CLI::App& app);
void add_embed_command(CLI::App& app);
void add_average_command(CLI::App& app);
void add_merge_command(CLI::App& app);

}  // namespace qkv
