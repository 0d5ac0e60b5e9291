// A training run as a TOML file: [data], [tokenizer], [model], [train].
#pragma once

#include <string>
#include <vector>

#include "qkv/models/spec.h"

namespace qkv {

// [data]: the texts.
struct DataConfig {
  std::vector<std::string> train;  // text files
  std::vector<std::string> valid;  // text files; empty: the last part of `train`
  double valid_fraction = 0.1;     // of the characters, taken from the end, where `valid` is empty
  std::string separator;           // divides a file into documents; empty: a file is one
};

// [tokenizer]: an existing one, or how to train one.
struct TokenizerConfig {
  std::string path;          // an existing tokenizer; empty: train one
  std::string type = "bpe";  // bpe, char, byte or word
  int64_t vocab_size = 4096;
  int64_t min_frequency = 2;
};

// The part of [train] that decides how parameters move.
struct OptimizerConfig {
  std::string name = "adamw";  // adamw or sgd (the paper's)
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;  // where the cosine ends
  int64_t warmup_steps = 100;
  std::string schedule = "cosine";  // cosine or constant, after the warm-up
  double weight_decay = 0.1;        // of matrices; norms and biases are exempt
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;
  double clip = 1.0;  // of the gradient's norm; 0: none
};

// A whole run.
struct TrainConfig {
  DataConfig data;
  TokenizerConfig tokenizer;
  ModelSpec model;  // vocab_size 0 until the tokenizer is known
  OptimizerConfig optimizer;
  std::string out = "runs/model";
  int64_t steps = 1000;
  int64_t batch = 16;      // windows of a micro-batch
  int64_t accumulate = 1;  // micro-batches of a step
  uint64_t seed = 1;
  std::string precision = "auto";  // f32, bf16, or auto: bf16 where the processor gains from it
  bool recompute = false;          // activation checkpointing
  int64_t log_every = 10;
  int64_t eval_every = 250;
  int64_t eval_windows = 64;  // of the validation text, for the evaluations on the way; 0: all
  int64_t checkpoint_every = 500;
};

// Reads `path` and applies overrides ("train.steps=10"). Unknown or mistyped keys are UsageErrors that name
// file, line and key.
TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides);

// Every setting as TOML, defaults included: what read_train_config() reads back as the same configuration.
std::string to_toml(const TrainConfig& config);

// The part of it that decides what a run computes: a run is resumed only with the same.
std::string fingerprint(const TrainConfig& config);

}  // namespace qkv
