// States on disk: found by their tokens, equal to what reading them again gives, and dropped when damaged.
// Covers: qkv/base/cache_folder.cc
#include "qkv/infer/prompt_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "qkv/autograd/graph.h"
#include "qkv/base/file.h"
#include "qkv/infer/engine.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::prompt_cache_test {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

std::unique_ptr<Transformer> model_of(uint64_t seed = 3, bool recurrent = false) {
  ModelSpec s = gpt2_spec(29, 60, 16, 2, 4);
  if (recurrent) {
    s.mixer = LstmMixer();
    s.positions = Positions::none;
  }
  s.init_std = 0.5F;
  auto model = std::make_unique<Transformer>(s);
  model->parameters().draw(seed, DType::f32);
  return model;
}

Tokens counted(int64_t n, int32_t first = 1) {
  Tokens out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>((first + i * 7) % 29));
  return out;
}

class PromptCacheTest : public ::testing::Test {
 protected:
  EnsembleState read(const Tokens& tokens) {
    EnsembleState state(ensemble_, 1);
    state.advance({tokens});
    return state;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder_.path())) out.push_back(entry.path());
    return out;
  }
  // The logits after one more token have the bits that they have without a cache.
  void expect_state(PromptCache::Entry& entry, int64_t length) {
    entry.state.truncate(0, length);
    const Tokens tokens(entry.tokens.begin(), entry.tokens.begin() + length);
    EnsembleState fresh = read(tokens);
    const Tensor got = entry.state.advance({{5}}), want = fresh.advance({{5}});
    EXPECT_EQ(std::memcmp(got.values<float>().data(), want.values<float>().data(), got.bytes()), 0);
  }

  std::unique_ptr<Transformer> model_ = model_of();
  Ensemble ensemble_{*model_};
  testing::ScratchDir folder_;
  NoGrad guard_;
};

TEST_F(PromptCacheTest, FindsTheLongestBeginning) {
  PromptCache cache(folder_.path(), ensemble_);
  EXPECT_FALSE(cache.find(counted(30), 0));
  Tokens other = counted(20);
  other[12] = 0;
  cache.add(counted(20), read(counted(20)));
  cache.add(other, read(other));
  Tokens asked = counted(18);
  asked.push_back(28);
  auto found = cache.find(asked, 3);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tokens, counted(20));
  expect_state(*found, 18);
  EXPECT_FALSE(cache.find(asked, 18));
  EXPECT_FALSE(cache.find(counted(9, 2), 0));
  // The last token's logits are wanted, so that it is not taken from the cache.
  EXPECT_TRUE(cache.find(counted(20), 18));
  EXPECT_FALSE(cache.find(counted(20), 19));
}

TEST_F(PromptCacheTest, LongerEntriesReplaceTheirBeginnings) {
  PromptCache cache(folder_.path(), ensemble_), beside(folder_.path(), ensemble_);
  cache.add(counted(10), read(counted(10)));
  EXPECT_EQ(files().size(), 1);
  beside.add(counted(25), read(counted(25)));
  EXPECT_EQ(files().size(), 1);
  cache.add(counted(10), read(counted(10)));  // it is there already
  EXPECT_EQ(files().size(), 1);
  EXPECT_EQ(cache.find(counted(30), 0)->tokens, counted(25));
}

TEST_F(PromptCacheTest, OtherModelsHaveEntriesOfTheirOwn) {
  PromptCache(folder_.path(), ensemble_).add(counted(20), read(counted(20)));
  const auto other = model_of(4);
  const Ensemble others(*other), both({model_.get(), other.get()});
  EXPECT_FALSE(PromptCache(folder_.path(), others).find(counted(20), 0));
  EXPECT_FALSE(PromptCache(folder_.path(), both).find(counted(20), 0));
  EXPECT_TRUE(PromptCache(folder_.path(), ensemble_).find(counted(20), 0));
  // A single number of a weight, another type of the activations, another field of the spec.
  const auto changed = [&](auto change) {
    const auto model = model_of();
    change(*model);
    return fingerprint_of(*model) != fingerprint_of(ensemble_);
  };
  EXPECT_FALSE(changed([](Transformer&) {}));
  EXPECT_TRUE(changed([](Transformer& m) { m.parameters().all()[3].value.mutable_values<float>()[1] += 1; }));
  EXPECT_TRUE(changed([](Transformer& m) { m.parameters().compute = DType::bf16; }));
  // Also of a large one.
  ModelSpec wide = model_->spec();
  wide.vocab_size = 3000;
  std::string prints[2];
  for (int n = 0; n < 2; ++n) {
    Transformer large(wide);
    large.parameters().draw(3, DType::f32);
    for (Parameter& p : large.parameters().all())
      if (p.shape.count() == 3000 * 16) p.value.mutable_values<float>()[20'011] += static_cast<float>(n);
    prints[n] = fingerprint_of(large);
  }
  EXPECT_NE(prints[0], prints[1]);
  ModelSpec s = model_->spec();
  s.norm_epsilon *= 2;
  Transformer again(s);
  again.parameters().draw(3, DType::f32);
  EXPECT_NE(fingerprint_of(again), fingerprint_of(ensemble_));
}

TEST_F(PromptCacheTest, AnEnsembleHasTheStatesOfAllModels) {
  const auto other = model_of(4);
  const Ensemble both({model_.get(), other.get()});
  EnsembleState state(both, 1);
  state.advance({counted(12)});
  PromptCache cache(folder_.path(), both);
  cache.add(counted(12), state);
  auto found = cache.find(counted(14), 0);
  ASSERT_TRUE(found);
  const Tensor got = found->state.advance({{5}}), want = state.advance({{5}});
  EXPECT_EQ(std::memcmp(got.values<float>().data(), want.values<float>().data(), got.bytes()), 0);
}

// A recurrence goes back by a few tokens only.
TEST_F(PromptCacheTest, StatesThatCannotGoBackAreNotFound) {
  const auto lstm = model_of(3, true);
  const Ensemble ensemble(*lstm);
  EnsembleState state(ensemble, 1);
  state.advance({counted(50)});
  PromptCache cache(folder_.path(), ensemble);
  cache.add(counted(50), state);
  EXPECT_TRUE(cache.find(counted(55), 0));
  EXPECT_TRUE(cache.find(counted(45), 0));
  EXPECT_FALSE(cache.find(counted(20), 0));
  EXPECT_EQ(files().size(), 1);
}

// Any damage makes an entry absent; no damage is read as something else.
TEST_F(PromptCacheTest, DamagedEntriesAreDropped) {
  PromptCache cache(folder_.path(), ensemble_);
  std::mt19937 random(1);
  for (int n = 0; n < 150; ++n) {
    cache.add(counted(12), read(counted(12)));
    ASSERT_EQ(files().size(), 1);
    const std::string path = files()[0].string();
    std::string bytes = read_file(path);
    if (n % 3 == 0)
      bytes.resize(random() % bytes.size());
    else
      bytes[n % 3 == 1 ? random() % 900 : random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    std::ofstream(path, std::ios::binary) << bytes;
    if (auto found = cache.find(counted(20), 0)) {  // padding, or spaces of the header
      ASSERT_EQ(found->tokens, counted(12));
      expect_state(*found, 12);
    }
    for (const auto& file : files()) fs::remove(file);
  }
  // A file of that name and another kind.
  cache.add(counted(12), read(counted(12)));
  const std::string path = files()[0].string();
  std::ofstream(path) << "a letter to a friend";
  std::ofstream(folder_.path() + "/letter.safetensors") << "another";
  EXPECT_FALSE(cache.find(counted(20), 0));
  ASSERT_EQ(files().size(), 1);
  EXPECT_EQ(files()[0].filename(), "letter.safetensors");
}

// The entry that was not used for longest goes first; files that a killed process has left go after an hour.
TEST_F(PromptCacheTest, HasABound) {
  PromptCache cache(folder_.path(), ensemble_);
  cache.add(counted(10, 0), read(counted(10, 0)));
  const auto size = static_cast<int64_t>(fs::file_size(files()[0]));
  PromptCache bounded(folder_.path(), ensemble_, 3 * size + 10);
  const auto age = [&] {  // file systems tell times apart by milliseconds at best
    for (const auto& file : files())
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(2));
  };
  age();
  for (const int32_t first : {1, 2}) bounded.add(counted(10, first), read(counted(10, first))), age();
  EXPECT_TRUE(bounded.find(counted(12, 0), 0));  // which makes it the last used
  std::ofstream(folder_.path() + "/prompt-0-1.safetensors.77.tmp") << "half a fil";
  age();
  EXPECT_TRUE(bounded.find(counted(12, 0), 0));
  bounded.add(counted(10, 3), read(counted(10, 3)));
  EXPECT_EQ(files().size(), 3);
  EXPECT_FALSE(bounded.find(counted(12, 1), 0));
  for (const int32_t first : {0, 2, 3}) EXPECT_TRUE(bounded.find(counted(12, first), 0)) << first;
}

TEST_F(PromptCacheTest, AFolderThatCannotBeWrittenIsEmpty) {
  std::ofstream(folder_.path() + "/file") << "no folder";
  PromptCache cache(folder_.path() + "/file", ensemble_);
  cache.add(counted(10), read(counted(10)));
  EXPECT_FALSE(cache.find(counted(12), 0));
}

// A second run reads only what is new, and writes the same.
TEST_F(PromptCacheTest, EnginesGoOnWithWhatOthersRead) {
  Tokens first;
  for (int run = 0; run < 2; ++run) {
    PromptCache cache(folder_.path(), ensemble_);
    Engine engine(*model_, {.kept_tokens = 60, .prompt_cache = &cache});
    engine.add({.prompt = counted(20), .max_new_tokens = 8});
    Tokens written;
    while (engine.step([&](const NewToken& t) {
      written.push_back(t.token);
      return true;
    })) {
    }
    engine.save_kept(cache);
    EXPECT_EQ(engine.spared(), run == 0 ? 0 : 19);
    if (run == 0) first = written;
    EXPECT_EQ(written, first);
  }
}

// A prompt from a file replaces another that was kept, or is itself not kept.
TEST_F(PromptCacheTest, EnginesKeepNoMoreThanTheyMayBesideIt) {
  PromptCache cache(folder_.path(), ensemble_);
  Engine writer(*model_, {.kept_tokens = 60});
  writer.add({.prompt = counted(20), .max_new_tokens = 4});
  while (writer.step(nullptr)) {
  }
  writer.save_kept(cache);
  for (const int64_t kept_tokens : {0, 30}) {
    Engine engine(*model_, {.kept_tokens = kept_tokens, .prompt_cache = &cache});
    engine.add({.prompt = Tokens(12, 3), .max_new_tokens = 4});
    while (engine.step(nullptr)) {
    }
    EXPECT_EQ(engine.kept(), kept_tokens > 0 ? 15 : 0);
    engine.add({.prompt = counted(20), .max_new_tokens = 4});
    while (engine.step(nullptr)) {
    }
    EXPECT_EQ(engine.spared(), 19);
    EXPECT_LE(engine.kept(), kept_tokens);
    EXPECT_TRUE(engine.kept() > 0 || engine.bytes() == 0);
  }
}

}  // namespace
}  // namespace qkv::prompt_cache_test
