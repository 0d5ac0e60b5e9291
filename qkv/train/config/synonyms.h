// Names of settings that other tools use.
#pragma once

#include <string_view>
#include <utility>

namespace qkv {

// Keys as other tools call them, each with our key. Sections are left out.
inline constexpr std::pair<std::string_view, std::string_view> kKeySynonyms[] = {
    {"lr", "learning_rate"},
    {"max_lr", "learning_rate"},
    {"batch_size", "batch"},
    {"max_steps", "steps"},
    {"max_iters", "steps"},
    {"iterations", "steps"},
    {"num_epochs", "epochs"},
    {"num_train_epochs", "epochs"},
    {"grad_clip", "clip"},
    {"max_grad_norm", "clip"},
    {"warmup", "warmup_steps"},
    {"gradient_clip", "clip"},
    {"gradient_clipping", "clip"},
    {"save_every", "checkpoint_every"},
    {"save_steps", "checkpoint_every"},
    {"eval_steps", "eval_every"},
    {"logging_steps", "log_every"},
    {"text", "text_column"},
    {"label", "label_column"},
    {"gradient_accumulation_steps", "accumulate"},
    {"n_layer", "layers"},
    {"n_layers", "layers"},
    {"num_layers", "layers"},
    {"num_hidden_layers", "layers"},
    {"depth", "layers"},
    {"n_head", "heads"},
    {"n_heads", "heads"},
    {"num_heads", "heads"},
    {"num_attention_heads", "heads"},
    {"n_embd", "width"},
    {"d_model", "width"},
    {"hidden_size", "width"},
    {"dim", "width"},
    {"n_kv_head", "kv_heads"},
    {"num_key_value_heads", "kv_heads"},
    {"block_size", "context"},
    {"n_ctx", "context"},
    {"max_length", "context"},
    {"max_seq_len", "context"},
    {"ctx_size", "context"},
    {"n_inner", "hidden"},
    {"d_ff", "hidden"},
    {"intermediate_size", "hidden"},
    {"output_dir", "out"},
    {"file", "train"},
    {"path", "train"},
};

}  // namespace qkv
