// Reading configurations in tests.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "qkv/train/config/config.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv {

class TrainConfigTest : public ::testing::Test {
 protected:
  TrainConfig read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return read_train_config(dir_.write("run.toml", text), overrides);
  }
  // Expects a UsageError about `text` that names file and line.
  void refuse(const std::string& text, int line, std::initializer_list<std::string> parts) {
    testing::expect_error<UsageError>([&] { read(text); }, {"run.toml:" + std::to_string(line) + ":"});
    testing::expect_error<UsageError>([&] { read(text); }, parts);
  }
  void refuse_override(const std::string& text, std::initializer_list<std::string> parts) {
    testing::expect_error<UsageError>([&] { read(kLeast, {text}); }, parts);
  }

  testing::ScratchDir dir_;
  const std::string kLeast = "[data]\ntrain = 'a.txt'\n";
};

}  // namespace qkv
