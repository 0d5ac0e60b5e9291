// Covers: qkv/train/config/config_text.cc
#include "qkv/train/config/key_help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace qkv::key_help_test {
namespace {

std::vector<std::string> names(const std::vector<KeyHelp>& keys) {
  std::vector<std::string> out;
  for (const KeyHelp& k : keys) out.push_back(k.section + "." + k.key);
  return out;
}
using Names = std::vector<std::string>;

TEST(KeyHelp, FindsASectionAKeyAndOtherToolsNames) {
  EXPECT_GT(find_keys("train").size(), 40U);
  EXPECT_EQ(names(find_keys("learning_rate")), Names{"train.learning_rate"});
  EXPECT_EQ(names(find_keys("train.learning_rate")), Names{"train.learning_rate"});
  EXPECT_EQ(names(find_keys("lr")), Names{"train.learning_rate"});
  EXPECT_EQ(names(find_keys("hidden_size")), Names{"model.width"});
  EXPECT_EQ(find_keys("mix").at(0).section, "mix.NAME");
  EXPECT_TRUE(find_keys("zebra").empty());
  EXPECT_TRUE(find_keys("").empty());
}

// Search phrases, each with the key that it must find.
TEST(KeyHelp, FindsWords) {
  for (const auto& [words, key] : {std::pair("gradient accumulation", "train.accumulate"),
                                   {"Learning rate schedule", "train.schedule"},
                                   {"random seed", "train.seed"},
                                   {"weight tying", "model.tied"},
                                   {"KV cache", "model.kv_latent"},
                                   {"activation checkpointing", "train.recompute"},
                                   {"early stopping", "train.patience"},
                                   {"grouped-query", "model.kv_heads"},
                                   {"LoRA scaling", "model.lora_alpha"},
                                   {"cross-validation", "data.folds"},
                                   {"sparse attention", "model.patterns"},
                                   {"vocabulary size", "tokenizer.vocab_size"}}) {
    const Names found = names(find_keys(words));
    EXPECT_NE(std::ranges::find(found, key), found.end()) << words;
    EXPECT_LE(found.size(), 6U) << words;
  }
}

TEST(KeyHelp, WritesKeysWithTheirMeaning) {
  const std::vector<KeyHelp> keys = find_keys("train.precision");
  EXPECT_EQ(
      lines_of(keys),
      "  [train]\n  precision = 'auto'\n"
      "      # precision of matrix products (auto: bf16 if the processor is faster with it) (one of auto,\n"
      "      # f32, bf16)\n");
  EXPECT_EQ(lines_of(find_keys("train.steps")),
            "  [train]\n  steps = 1000                    # number of optimizer steps (at least 1)\n");
  EXPECT_EQ(find_keys("train.steps").at(0).range, "at least 1");
  EXPECT_EQ(find_keys("train.dropout").size(), 0U);
  EXPECT_EQ(find_keys("model.dropout").at(0).range, "0 to 0.95");
  EXPECT_EQ(find_keys("train.clip").at(0).range, "0 or more");
  EXPECT_EQ(find_keys("train.mask_rate").at(0).objectives, "masked, permutation");
  EXPECT_EQ(common_keys().size(), 15U);
}

// Help must be one readable line in a terminal.
TEST(KeyHelp, IsInPlainWords) {
  for (const KeyHelp& k : key_helps()) {
    EXPECT_LE(k.help.size(), 180U) << k.key;
    for (const char* headless : {"of ", "what ", "where ", "whether ", "likewise", "that ", "and ", "those "})
      EXPECT_FALSE(k.help.starts_with(headless)) << k.key << ": " << k.help;
  }
}

}  // namespace
}  // namespace qkv::key_help_test
