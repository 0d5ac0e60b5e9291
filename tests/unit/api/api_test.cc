// The API for programs that embed a model: from C++ and from C.
// Covers: qkv/api/generation_config.cc, qkv/api/qkv.cc, qkv/api/text_model.cc, qkv/base/version.cc
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>

#include "qkv/api/qkv.h"
#include "qkv/api/text_model.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/version.h"
#include "qkv/text/unicode.h"
#include "qkv/trace/intervention.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::api_test {
namespace {

using testing::ScratchDir;

// A random model with a byte tokenizer in a folder.
class ApiTest : public ::testing::Test {
 protected:
  ApiTest() {
    text::TrainerOptions options;
    options.vocab_size = 270;
    options.special_tokens = {"<|endoftext|>"};
    const std::string_view texts[] = {"the cat sat on the mat and the other cat sat there"};
    const text::Tokenizer tokenizer = text::train_byte_level_bpe(texts, options);
    tokenizer.save(dir_.path());
    Transformer model(gpt2_spec(static_cast<int64_t>(tokenizer.vocab_size()), 32, 16, 1, 2));
    model.parameters().draw(5, DType::f32);
    const auto end = static_cast<int64_t>(*tokenizer.token_to_id("<|endoftext|>"));
    save_model(dir_.path(), model, {end, -1, {end}});
  }
  void generation(const std::string& json) { dir_.write("generation_config.json", json); }

  ScratchDir dir_;
};

int append(void* user, int32_t, const char* text, size_t length) {
  static_cast<std::string*>(user)->append(text, length);
  return 1;
}
int stop_at_once(void* user, int32_t, const char*, size_t) {
  ++*static_cast<int*>(user);
  return 0;
}

TEST_F(ApiTest, CDoesWhatCppDoes) {
  const TextModel m = load(dir_.path());
  GenerateOptions g = m.generation.drawing;
  g.max_new_tokens = 12;
  g.seed = 7;
  std::string pieces;
  const std::string want = complete(m, "the cat", g, [&](int32_t, std::string_view text) {
    pieces += text;
    return true;
  });
  EXPECT_EQ(pieces, want);
  EXPECT_FALSE(want.empty());

  qkv_model* model = nullptr;
  ASSERT_EQ(qkv_load(dir_.path().c_str(), nullptr, &model), QKV_OK) << qkv_last_error();
  EXPECT_EQ(std::string(qkv_version()), version());
  EXPECT_EQ(qkv_vocab_size(model), m.model->spec().vocab_size);
  EXPECT_EQ(qkv_context(model), 32);
  EXPECT_EQ(qkv_width(model), 16);
  qkv_generation options;
  qkv_generation_defaults(model, &options, sizeof(options));
  EXPECT_EQ(options.temperature, 1);
  qkv_generation older;  // from a caller with an older struct
  older.top_p = 7;
  qkv_generation_defaults(model, &older, offsetof(qkv_generation, top_p));
  EXPECT_EQ(older.size, offsetof(qkv_generation, top_p));
  EXPECT_EQ(older.top_p, 7);
  options.max_new_tokens = 12;
  options.seed = 7;
  std::string got;
  ASSERT_EQ(qkv_generate(model, "the cat", 7, &options, append, &got), QKV_OK) << qkv_last_error();
  EXPECT_EQ(got, want);
  int calls = 0;
  ASSERT_EQ(qkv_generate(model, "the cat", 7, nullptr, stop_at_once, &calls), QKV_OK);
  EXPECT_LE(calls, 2);  // one more for the rest of a character

  int32_t ids[64];
  size_t count = 0;
  ASSERT_EQ(qkv_tokenize(model, "the cat", 7, 1, ids, 64, &count), QKV_OK);
  EXPECT_EQ(std::vector<int32_t>(ids, ids + count), m.tokenizer.encode("the cat").ids);
  EXPECT_EQ(qkv_tokenize(model, "the cat", 7, 1, nullptr, 0, &count), QKV_TOO_SMALL);
  char text[64];
  size_t length = 0;
  ASSERT_EQ(qkv_detokenize(model, ids, count, text, sizeof(text), &length), QKV_OK);
  EXPECT_EQ(std::string(text, length), "the cat");
  EXPECT_EQ(qkv_detokenize(model, ids, count, text, 3, &length), QKV_TOO_SMALL);
  EXPECT_EQ(length, 7U);

  std::vector<float> logits(count * static_cast<size_t>(qkv_vocab_size(model)));
  ASSERT_EQ(qkv_forward(model, ids, count, logits.data()), QKV_OK) << qkv_last_error();
  const NoGrad guard;
  const auto n = static_cast<int32_t>(count);
  const Tensor z =
      m.model->logits(m.model->hidden({Indices(std::vector<int32_t>(ids, ids + n)), Layout::of({n})}, {}));
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), z.data<float>()));
  qkv_free(model);
}

// Collects values, and doubles those whose name ends with ".branch".
struct Seen {
  std::map<std::string, std::vector<float>> values;
  int calls = 0, most = 1 << 30;
};
int see(void* user, const qkv_value* value) {
  auto& seen = *static_cast<Seen*>(user);
  EXPECT_EQ(value->size, sizeof(qkv_value));
  const auto count = static_cast<size_t>(value->rows * value->columns);
  auto& all = seen.values[value->name];
  all.insert(all.end(), value->data, value->data + count);
  if (std::string_view(value->name).ends_with(".branch"))
    for (size_t i = 0; i < count; ++i) value->data[i] *= 2;
  return ++seen.calls < seen.most;
}

TEST_F(ApiTest, ValuesComeOutAndGoIn) {
  qkv_model* model = nullptr;
  ASSERT_EQ(qkv_load(dir_.path().c_str(), nullptr, &model), QKV_OK) << qkv_last_error();
  const TextModel m = load(dir_.path());
  const int32_t ids[] = {5, 6, 7, 5};
  ModelInput input;
  input.ids = std::vector<int32_t>(ids, ids + 4);
  input.layout = Layout::of({4});
  Trace trace;
  run_traced(*m.model, input, trace);
  std::vector<float> plain(4 * static_cast<size_t>(qkv_vocab_size(model))), logits = plain;
  ASSERT_EQ(qkv_forward(model, ids, 4, plain.data()), QKV_OK);
  Seen seen;
  ASSERT_EQ(qkv_trace(model, nullptr, 0, ids, 4, "*.queries,*.scores", see, &seen, logits.data()), QKV_OK)
      << qkv_last_error();
  const auto& queries = seen.values.at("decoder.block.0.attention.queries");
  const Tensor& want = trace.at("decoder.block.0.attention.queries").rows;
  EXPECT_TRUE(
      std::equal(queries.begin(), queries.end(), want.values<float>().begin(), want.values<float>().end()));
  const Tensor scores = trace.at("decoder.block.0.attention.scores").of_heads();
  const auto& seen_scores = seen.values.at("decoder.block.0.attention.scores");
  EXPECT_TRUE(std::equal(seen_scores.begin(), seen_scores.end(), scores.values<float>().begin(),
                         scores.values<float>().end()));
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(logits[i], plain[i], 1e-4);
  // Written numbers go on.
  ASSERT_EQ(qkv_trace(model, nullptr, 0, ids, 4, "*.0.attention.branch", see, &seen, logits.data()), QKV_OK);
  const std::string name = "decoder.block.0.attention.branch";
  Tensor twice = trace.at(name).rows.clone();
  for (float& x : twice.mutable_values<float>()) x *= 2;
  const Tensor changed = logits_with(*m.model, input, {{name, Change::Kind::set, {}, 0, 0, twice}});
  for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], changed.values<float>()[i], 1e-5);
  seen.most = 0;
  EXPECT_EQ(qkv_trace(model, nullptr, 0, ids, 4, "*", see, &seen, nullptr), QKV_ERROR);
  EXPECT_NE(std::string(qkv_last_error()).find("stopped at decoder."), std::string::npos) << qkv_last_error();
  EXPECT_EQ(qkv_trace(model, ids, 4, ids, 4, "*", see, &seen, nullptr), QKV_ERROR);
  EXPECT_EQ(qkv_trace(model, nullptr, 0, ids, 0, "*", see, &seen, nullptr), QKV_ERROR);
  EXPECT_EQ(qkv_trace(model, nullptr, 0, ids, 4, nullptr, see, &seen, nullptr), QKV_ERROR);
  qkv_free(model);
}

TEST_F(ApiTest, WhatGoesWrongIsSaid) {
  qkv_model* model = reinterpret_cast<qkv_model*>(&dir_);
  EXPECT_EQ(qkv_load("/nowhere", nullptr, &model), QKV_ERROR);
  EXPECT_NE(std::string(qkv_last_error()).find("/nowhere"), std::string::npos);
  EXPECT_EQ(qkv_load(dir_.path().c_str(), "f16", &model), QKV_ERROR);
  EXPECT_EQ(qkv_load(nullptr, nullptr, &model), QKV_ERROR);
  EXPECT_EQ(model, nullptr);
  qkv_free(model);
  ASSERT_EQ(qkv_load(dir_.path().c_str(), "bf16", &model), QKV_OK);
  const int32_t bad[] = {100000};
  float one[1000];
  EXPECT_EQ(qkv_forward(model, bad, 1, one), QKV_ERROR);
  EXPECT_EQ(qkv_forward(model, bad, 0, one), QKV_ERROR);
  EXPECT_EQ(qkv_embed(model, "a", 1, one), QKV_ERROR);
  EXPECT_NE(std::string(qkv_last_error()).find("encoder"), std::string::npos);
  qkv_generation options{};  // without its size
  EXPECT_EQ(qkv_generate(model, "a", 1, &options, append, nullptr), QKV_ERROR);
  EXPECT_EQ(qkv_tokenize(model, nullptr, 3, 0, nullptr, 0, nullptr), QKV_ERROR);
  qkv_free(model);
}

TEST(Api, AnEncoderDecoderWritesForATextWhatItTranslates) {
  const ScratchDir dir;
  text::TrainerOptions options;
  options.vocab_size = 280;
  options.special_tokens = {"<s>", "</s>"};
  const std::string_view texts[] = {"the cat sat on the mat and the other cat sat there"};
  const text::Tokenizer tokenizer = text::train_byte_level_bpe(texts, options);
  tokenizer.save(dir.path());
  ModelSpec spec = gpt2_spec(static_cast<int64_t>(tokenizer.vocab_size()), 24, 16, 1, 2);
  spec.architecture = Architecture::encoder_decoder;
  spec.encoder_layers = 1;
  spec.init_std = 0.3F;
  Transformer transformer(spec);
  transformer.parameters().draw(5, DType::f32);
  SpecialIds special;
  special.bos = special.decoder_start = *tokenizer.token_to_id("<s>");
  special.eos = {*tokenizer.token_to_id("</s>")};
  save_model(dir.path(), transformer, special);
  const std::string generation_file = "generation_config.json";
  Json config = parse_json(read_file(dir.path() + "/" + generation_file), generation_file);
  config["forced_bos_token_id"] = *tokenizer.token_to_id("a");  // not part of the text
  dir.write(generation_file, config.dump());
  const TextModel m = load(dir.path());
  const SequenceModel sequence = sequence_model(m, dir.path());
  EXPECT_EQ(sequence.ends.target_begin.size(), 1U);
  BeamOptions greedy;
  greedy.beams = 1;
  greedy.max_new_tokens = 9;
  const std::string want = translate(sequence, {"the cat"}, greedy).best[0][0].text;
  EXPECT_FALSE(want.empty());

  qkv_model* model = nullptr;
  ASSERT_EQ(qkv_load(dir.path().c_str(), nullptr, &model), QKV_OK) << qkv_last_error();
  qkv_generation generation;
  qkv_generation_defaults(model, &generation, sizeof(generation));
  EXPECT_EQ(generation.temperature, 0);
  generation.max_new_tokens = 9;
  std::string got;
  ASSERT_EQ(qkv_generate(model, "the cat", 7, &generation, append, &got), QKV_OK) << qkv_last_error();
  EXPECT_EQ(got, text::to_valid_utf8(want));
  // Settings by name that request a search.
  BeamOptions three;
  three.beams = 3;
  three.max_new_tokens = 9;
  three.length_penalty = 0.5;
  std::string found;
  const Translations best = translate(sequence, {"the cat"}, three);
  for (const Translation& t : best.best[0]) found += text::to_valid_utf8(t.text);
  generation.settings = "num_beams=3,length_penalty=0.5,num_return_sequences=3";
  got.clear();
  ASSERT_EQ(qkv_generate(model, "the cat", 7, &generation, append, &got), QKV_OK) << qkv_last_error();
  EXPECT_EQ(got, found);
  for (const char* wrong : {"num_beam=3", "top_k=3,num_beams=2", "num_beams=2,num_return_sequences=3",
                            "num_return_sequences=2", "length_penalty=2", "bad_words_ids=99999"}) {
    generation.settings = wrong;
    EXPECT_EQ(qkv_generate(model, "the cat", 7, &generation, append, &got), QKV_ERROR) << wrong;
  }
  // Both stacks' values.
  const int32_t source[] = {3, 4, 5}, target[] = {1, 2};
  Seen seen;
  ASSERT_EQ(qkv_trace(model, source, 3, target, 2, "*.embedding", see, &seen, nullptr), QKV_OK)
      << qkv_last_error();
  EXPECT_EQ(seen.values.at("encoder.embedding").size(), 3U * 16);
  EXPECT_EQ(seen.values.at("decoder.embedding").size(), 2U * 16);
  EXPECT_EQ(qkv_trace(model, nullptr, 0, target, 2, "*", see, &seen, nullptr), QKV_ERROR);
  generation.settings = nullptr;
  const std::string longer(200, 'x');
  EXPECT_EQ(qkv_generate(model, longer.data(), longer.size(), &generation, append, &got), QKV_ERROR);
  EXPECT_NE(std::string(qkv_last_error()).find("200 tokens, the model reads 23"), std::string::npos)
      << qkv_last_error();
  qkv_free(model);
}

TEST(Api, EmbedsByAnEncoder) {
  const ScratchDir dir;
  text::Tokenizer tokenizer = testing::word_pieces({"the cat sat", "a dog ran"});
  tokenizer.save(dir.path());
  ModelSpec spec = bert_spec(static_cast<int64_t>(tokenizer.vocab_size()), 16, 12, 1, 3);
  spec.output = Output::embedding;
  spec.head_width = 0;
  spec.unembedding_bias = false;
  Transformer encoder(spec);
  encoder.parameters().draw(3, DType::f32);
  save_model(dir.path(), encoder);
  qkv_model* model = nullptr;
  ASSERT_EQ(qkv_load(dir.path().c_str(), nullptr, &model), QKV_OK) << qkv_last_error();
  float vector[12];
  ASSERT_EQ(qkv_embed(model, "the cat", 7, vector), QKV_OK) << qkv_last_error();
  float length = 0;
  for (const float x : vector) length += x * x;
  EXPECT_NEAR(length, 1, 1e-5);
  EXPECT_EQ(qkv_generate(model, "a", 1, nullptr, append, nullptr), QKV_ERROR);
  qkv_free(model);
}

TEST_F(ApiTest, GenerationConfigIsObeyed) {
  generation(R"({"do_sample": true, "temperature": 0.5, "top_p": 0.9, "max_new_tokens": 7, "eos_token_id": 3,
                 "suppress_tokens": [1, 2], "num_beams": 1, "length_penalty": 2, "early_stopping": true,
                 "no_repeat_ngram_size": 3, "repetition_penalty": 1.5})");
  const TextModel m = load(dir_.path());
  const SamplerOptions& s = m.generation.drawing.sampler;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 50);
  EXPECT_EQ(s.repetition_penalty, 1.5);
  EXPECT_EQ(s.excluded, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(m.generation.drawing.max_new_tokens, 7);
  EXPECT_EQ(m.generation.drawing.eos, std::vector<int32_t>{3});
  EXPECT_FALSE(m.searches);
  EXPECT_EQ(m.generation.search.beams, 1);
  EXPECT_EQ(m.generation.search_options().repetition_penalty, 1.5);
  EXPECT_EQ(m.generation.search.length_penalty, 2);
  EXPECT_EQ(m.generation.search_options().rules.no_repeat_ngram, 3);
  EXPECT_TRUE(m.generation.search.stop == BeamOptions::Stop::early);
  generation(R"({"num_beams": 6})");
  EXPECT_TRUE(load(dir_.path()).searches);
  EXPECT_EQ(load(dir_.path()).generation.search.beams, 6);
  generation(R"({"max_length": 20, "min_length": 3, "min_new_tokens": 2, "begin_suppress_tokens": [5],
                 "bad_words_ids": [[6], [7]], "forced_bos_token_id": 8, "forced_eos_token_id": 3,
                 "num_beam_groups": 1, "diversity_penalty": 0.0, "force_words_ids": null})");
  const TextModel ruled = load(dir_.path());
  EXPECT_EQ(ruled.generation.drawing.rules.max_length, 20);
  EXPECT_EQ(ruled.generation.drawing.max_new_tokens, 20);
  EXPECT_EQ(ruled.generation.drawing.rules.min_length, 3);
  EXPECT_EQ(ruled.generation.drawing.rules.min_new_tokens, 2);
  EXPECT_EQ(ruled.generation.drawing.rules.not_first, std::vector<int32_t>{5});
  EXPECT_EQ(ruled.generation.drawing.rules.suppressed, (std::vector<std::vector<int32_t>>{{6}, {7}}));
  EXPECT_EQ(ruled.special.forced_bos, 8);
  EXPECT_EQ(ruled.generation.drawing.rules.end, 3);
  EXPECT_TRUE(ruled.generation.search.stop == BeamOptions::Stop::likely);
  generation(R"({"early_stopping": "never", "forced_eos_token_id": [4]})");
  EXPECT_TRUE(load(dir_.path()).generation.search.stop == BeamOptions::Stop::certain);
  EXPECT_EQ(load(dir_.path()).generation.drawing.rules.end, 4);
  generation(R"({"do_sample": false, "temperature": 0.5})");
  EXPECT_EQ(load(dir_.path()).generation.drawing.sampler.temperature, 0);
  generation("{}");
  EXPECT_EQ(load(dir_.path()).generation.drawing.sampler.temperature, 1);
  // Older directories have it in config.json.
  Json config = parse_json(read_file(dir_.path() + "/config.json"), "config.json");
  config.update({{"num_beams", 3}, {"max_length", 21}, {"no_repeat_ngram_size", 2}});
  dir_.write("config.json", config.dump());
  EXPECT_FALSE(load(dir_.path()).searches);
  std::filesystem::remove(dir_.path() + "/generation_config.json");
  EXPECT_TRUE(load(dir_.path()).searches);
  EXPECT_EQ(load(dir_.path()).generation.drawing.rules.max_length, 21);
  EXPECT_EQ(load(dir_.path()).generation.drawing.rules.no_repeat_ngram, 2);
  const auto refuse = [&](const char* json, const char* field) {
    generation(json);
    testing::expect_error([&] { load(dir_.path()); }, {"generation_config.json", field});
  };
  // Code that does not write may use the model.
  const auto refuse_to_write = [&](const char* json, const char* field) {
    generation(json);
    const TextModel loaded = load(dir_.path());
    testing::expect_error([&] { complete(loaded, "the cat", {}); }, {"generation_config.json", field});
  };
  refuse(R"({"max_new_tokens": 0})", "max_new_tokens");
  refuse(R"({"do_sample": true, "temperature": "hot"})", "temperature");
  refuse_to_write(R"({"do_sample": true, "top_p": 7})", "top");
  refuse(R"({"suppress_tokens": [100000]})", "suppress_tokens");
  refuse(R"({"suppress_tokens": [4294967298]})", "4294967298");
  refuse(R"({"num_beams": 100000})", "num_beams");
  refuse(R"({"bad_words_ids": [[6, 7], []]})", "bad_words_ids[1]");
  refuse(R"({"patience": 0})", "patience");
  refuse_to_write(R"({"num_beam_groups": 2})", "num_beam_groups");
  refuse_to_write(R"({"num_beams": 2, "do_sample": true})", "num_beams");
  refuse_to_write(R"({"penalty_alpha": 0.6})", "penalty_alpha");
  refuse_to_write(R"({"constraints": [1]})", "constraints");
  refuse(R"({"early_stopping": "soon"})", "early_stopping");
  refuse(R"({"forced_eos_token_id": [1, 2]})", "forced_eos_token_id");
}

}  // namespace
}  // namespace qkv::api_test
