// Defaults that follow from other keys, and combinations that are rejected.
// Covers: qkv/train/config/config_rules.cc
// Covers: qkv/train/config/objective.cc
#include <fmt/format.h>

#include <filesystem>

#include "qkv/io/model_dir.h"
#include "qkv/train/config/config.h"
#include "tests/unit/train/train_config_testing.h"

namespace qkv::config_rules_test {
namespace {

TEST_F(TrainConfigTest, KeysOfTheOtherArchitectureAreRefused) {
  for (const char* text : {"data.train_target=b.txt", "data.source_column=x", "train.batch_tokens=100"})
    EXPECT_THROW(read(kLeast, {text}), UsageError) << text;
  for (const char* text : {"train.batch=3", "train.batch=fit", "data.separator=x"})
    EXPECT_THROW(read(kLeast, {"model.architecture=encoder_decoder", text}), UsageError) << text;
}

constexpr const char* kEncoderObjectives[] = {"masked", "classify", "tag", "answer"};

TEST_F(TrainConfigTest, DefaultsOfAnEncoder) {
  const auto of = [&](const std::string& objective, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = {"model.architecture=encoder", "train.objective=" + objective};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return read(kLeast, overrides);
  };
  EXPECT_EQ(read(kLeast, {"model.architecture=encoder"}).objective, Objective::masked);
  for (const char* objective : kEncoderObjectives) {
    const TrainConfig c = of(objective);
    EXPECT_EQ(name_of(c.objective), objective);
    EXPECT_EQ(c.model.norm_placement, NormPlacement::post);
    EXPECT_EQ(c.model.activation, Activation::gelu);
    EXPECT_EQ(c.model.norm_epsilon, 1e-12F);
    EXPECT_TRUE(c.model.embedding_norm);
    EXPECT_EQ(c.model.segments, 2);
    EXPECT_FLOAT_EQ(c.model.init_std, 1 / std::sqrt(static_cast<float>(c.model.width)));
    EXPECT_EQ(c.tokenizer.type, "wordpiece");
    EXPECT_EQ(of(objective, {"tokenizer.type=char"}).tokenizer.type, "char");
  }
  const ModelSpec masked = of("masked").model, classify = of("classify").model, tag = of("tag").model,
                  answer = of("answer").model;
  EXPECT_EQ(masked.output, Output::tokens);
  EXPECT_EQ(masked.head_width, masked.width);
  EXPECT_TRUE(masked.unembedding_bias);
  EXPECT_EQ(of("masked", {"model.head_width=0", "model.unembedding_bias=false"}).model.head_width, 0);
  EXPECT_EQ(classify.output, Output::sequence_classes);
  EXPECT_TRUE(classify.pooler);
  EXPECT_FALSE(of("classify", {"model.pooling=mean"}).model.pooler);
  EXPECT_TRUE(of("classify", {"model.pooling=mean", "model.pooler=true"}).model.pooler);
  EXPECT_EQ(tag.output, Output::token_classes);
  EXPECT_EQ(answer.output, Output::span);
  for (const ModelSpec& m : {classify, tag, answer}) {
    EXPECT_EQ(m.head_width, 0);
    EXPECT_FALSE(m.unembedding_bias);
  }
  for (const ModelSpec& m : {masked, tag, answer}) EXPECT_FALSE(m.pooler);
  EXPECT_EQ(of("tag", {"model.dropout=0.25"}).model.head_dropout, 0.25F);
  EXPECT_EQ(of("tag", {"model.dropout=0.25", "model.head_dropout=0"}).model.head_dropout, 0);
  EXPECT_EQ(of("classify").data.text_column, "text");
  EXPECT_EQ(of("answer").data.text_column, "question");
  EXPECT_EQ(of("answer").data.second_column, "context");
  EXPECT_EQ(of("answer").data.label_column, "answer");
  for (const char* key : {"text_column", "second_column", "label_column"}) {
    const DataConfig d = of("answer", {std::string("data.") + key + "=q"}).data;
    EXPECT_EQ((d.text_column == "q") + 2 * (d.second_column == "q") + 4 * (d.label_column == "q"),
              key[0] == 't'   ? 1
              : key[0] == 's' ? 2
                              : 4);
  }
}

TEST_F(TrainConfigTest, WhatIsWrittenOfAnEncoderIsReadBack) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> more = {
      {"masked",
       {"train.mask_rate=0.3", "train.mask_keep=0", "train.mask_whole_words=true", "data.separator=x",
        "model.head_width=0"}},
      {"classify",
       {"data.second_column=b", "data.columns=['text', 'b', 'label']", "data.test=t.tsv",
        "model.pooling=mean", "train.best_by=matthews", "model.head_dropout=0.5", "data.split_seed=9"}},
      {"tag", {"data.word_column=2", "data.tag_column=4", "data.test_fraction=0.2", "train.best_by=f1"}},
      {"answer", {"data.label_column=a", "train.best_by=exact_match", "train.patience=3", "model.norm=pre"}}};
  for (const auto& [objective, keys] : more)
    for (const bool all : {false, true}) {
      std::vector<std::string> overrides = {
          "model.architecture=encoder", std::string("train.objective=") + objective, "train.batch_tokens=77"};
      if (all) overrides.insert(overrides.end(), keys.begin(), keys.end());
      const TrainConfig c = read(kLeast, overrides), again = read(to_toml(c));
      EXPECT_EQ(to_toml(again), to_toml(c)) << objective;
      EXPECT_EQ(again.model, c.model) << objective;
      EXPECT_EQ(fingerprint(again), fingerprint(c)) << objective;
    }
}

TEST_F(TrainConfigTest, ObjectivesNeedTheirArchitecture) {
  const auto refuse = [&](const char* architecture, const char* objective, const char* wanted) {
    testing::expect_error<UsageError>(
        [&] {
          read(kLeast, {std::string("model.architecture=") + architecture,
                        std::string("train.objective=") + objective});
        },
        {"run.toml", "train.objective", objective, std::string("\"") + wanted + "\"", architecture});
  };
  for (const char* objective : kEncoderObjectives) refuse("encoder_decoder", objective, "encoder");
  for (const char* objective : {"masked", "permutation", "answer"}) refuse("decoder", objective, "encoder");
  for (const char* architecture : {"encoder", "encoder_decoder"})
    refuse(architecture, "next_token", "decoder");
  for (const char* objective : {"sequence_to_sequence", "span_corruption", "denoise"})
    refuse("encoder", objective, "encoder_decoder");
  refuse_override("train.objective=guess", {"train.objective", "classify", "'guess'"});
}

TEST_F(TrainConfigTest, TheOrderIsTheObjectives) {
  const auto order = [&](const std::vector<std::string>& overrides) {
    return read(kLeast, overrides).model.order;
  };
  EXPECT_EQ(order({}), Order::stack);
  EXPECT_EQ(order({"model.order=prefix"}), Order::prefix);
  EXPECT_EQ(order({"train.objective=sequence_to_sequence"}), Order::prefix);
  EXPECT_EQ(order({"train.objective=span_corruption", "model.order=stack"}), Order::stack);
  EXPECT_EQ(order({"train.objective=sequence_to_sequence", "model.architecture=encoder_decoder"}),
            Order::stack);
  EXPECT_EQ(order({"train.objective=permutation", "model.architecture=encoder"}), Order::permuted);
  refuse_override("model.order=permuted", {"model.order", "permutation", "next_token"});
  testing::expect_error<UsageError>(
      [&] {
        read(kLeast, {"train.objective=classify", "model.order=prefix", "model.pooling=last"});
      },
      {"model.order", "prefix", "classify"});
  testing::expect_error<UsageError>(
      [&] {
        read(kLeast, {"train.objective=permutation", "model.architecture=encoder", "model.order=stack"});
      },
      {"model.order", "permutation"});
  testing::expect_error<UsageError>(
      [&] {
        read(kLeast, {"model.architecture=encoder", "model.order=prefix"});
      },
      {"order prefix", "decoder"});
}

TEST_F(TrainConfigTest, KeysOfOtherObjectivesAreRefused) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> of = {
      {"data.text_column=x", {"classify", "tag", "answer", "next_token", "masked"}},
      {"train.label_smoothing=0.1", {"classify", "tag", "next_token", "masked", "sequence_to_sequence"}},
      {"train.z_loss=0.1", {"classify", "tag", "next_token", "masked", "sequence_to_sequence"}},
      {"data.deduplicate=true",
       {"classify", "tag", "answer", "next_token", "masked", "sequence_to_sequence"}},
      {"data.min_characters=3", {"next_token", "masked", "sequence_to_sequence"}},
      {"data.max_characters=3", {"next_token", "masked", "sequence_to_sequence"}},
      {"data.max_ratio=3", {"sequence_to_sequence"}},
      {"data.second_column=x", {"classify", "answer"}},
      {"data.label_column=x", {"classify", "tag", "answer"}},
      {"data.columns=['a']", {"classify", "answer", "next_token", "masked", "sequence_to_sequence"}},
      {"data.word_column=1", {"tag"}},
      {"data.tag_column=1", {"tag"}},
      {"data.test=x", {"classify", "tag", "answer"}},
      {"data.test_fraction=0.5", {"classify", "tag", "answer"}},
      {"data.separator=x", {"masked", "next_token"}},
      {"data.source_column=x", {"sequence_to_sequence"}},
      {"tokenizer.separate=true", {"sequence_to_sequence"}},
      {"data.train_target=x", {"sequence_to_sequence"}},
      {"train.batch=3", {"next_token"}},
      {"train.batch_tokens=9", {"masked", "classify", "tag", "answer", "sequence_to_sequence"}},
      {"train.mask_rate=0.5", {"masked"}},
      {"train.mask_random=0", {"masked"}},
      {"train.mask_keep=0", {"masked"}},
      {"train.mask_whole_words=true", {"masked"}},
      {"train.best_by=accuracy", {"classify", "tag"}},
      {"train.best_by=macro_f1", {"classify", "tag"}},
      {"train.best_by=matthews", {"classify"}},
      {"train.best_by=f1", {"tag", "answer"}},
      {"train.best_by=exact_match", {"answer"}},
      {"train.best_by=loss", {"next_token", "masked", "sequence_to_sequence", "classify", "tag", "answer"}}};
  const auto of_architecture = [](Objective o) {
    return o == Objective::next_token ? Architecture::decoder
           : writes_targets(o)        ? Architecture::encoder_decoder
                                      : Architecture::encoder;
  };
  for (const Objective objective : {Objective::next_token, Objective::masked, Objective::sequence_to_sequence,
                                    Objective::classify, Objective::tag, Objective::answer})
    for (const auto& [text, right] : of) {
      const std::vector<std::string> overrides = {"model.architecture=" + name_of(of_architecture(objective)),
                                                  "train.objective=" + name_of(objective), "data.train=a.csv",
                                                  text};
      const std::string key = std::string(text).substr(0, std::string(text).find('='));
      if (std::find(right.begin(), right.end(), name_of(objective)) != right.end())
        EXPECT_NO_THROW(read(kLeast, overrides)) << text << " of " << name_of(objective);
      else
        testing::expect_error<UsageError>([&] { read(kLeast, overrides); }, {"run.toml", key});
    }
  refuse_override("train.mask_rate=0", {"train.mask_rate", "between"});
  refuse_override("tokenizer.source_path=x", {"tokenizer.source_path", "sequence_to_sequence"});
  testing::expect_error<UsageError>(
      [&] {
        read(kLeast, {"model.architecture=encoder", "train.mask_keep=0.5", "train.mask_random=0.6"});
      },
      {"mask_keep", "mask_random", "more than 1"});
}

// A key without effect is rejected even with its default value; a run's own configuration gives every key.
TEST_F(TrainConfigTest, KeysOfOtherObjectivesAreRefusedWithTheirDefaults) {
  const TrainConfig defaults;
  const std::string classify = "model.architecture=encoder", objective = "train.objective=classify";
  for (const std::string& text :
       {fmt::format("train.batch={}", defaults.batch),
        fmt::format("train.mask_rate={}", defaults.masking.rate), std::string("data.source_column=source"),
        std::string("data.separator=''"), std::string("data.word_column=0"), std::string("train.eval_bleu=0"),
        std::string("tokenizer.separate=false")}) {
    const std::string key = text.substr(0, text.find('='));
    testing::expect_error<UsageError>([&] { read(kLeast, {classify, objective, text}); }, {"run.toml", key});
    const std::string whole = to_toml(read(kLeast, {classify, objective}));
    EXPECT_NE(whole.find(key.substr(key.find('.') + 1) + " ="), std::string::npos) << key;
    EXPECT_NO_THROW(read(whole));
    testing::expect_error<UsageError>([&] { read(whole, {text}); }, {"run.toml", key});
  }
  refuse_override(fmt::format("train.batch_tokens={}", defaults.batch_tokens), {"train.batch_tokens"});
}

// Each key, with the settings next to it, has no effect, even with its default value.
TEST_F(TrainConfigTest, KeysWithoutEffectAreRejected) {
  using Overrides = std::vector<std::string>;
  const Overrides encoder = {"model.architecture=encoder"},
                  classify = {encoder[0], "train.objective=classify"},
                  pairs = {"model.architecture=encoder_decoder", "data.train_target=b.txt"},
                  embed = {encoder[0], "train.objective=embed", "data.train=a.tsv"};
  struct Case {
    Overrides beside;
    std::vector<const char*> keys;
  };
  const Case cases[] = {
      {{}, {"model.rotary_width=4",        "model.rotary_base=1e5",
            "model.rotary_layout=halves",  "model.rotary_scaling=linear",
            "model.rotary_factor=2",       "model.rotary_original_context=9",
            "model.rotary_low=1",          "model.rotary_high=4",
            "model.rotary_magnitude=1",    "model.relative_buckets=32",
            "model.relative_distance=128", "model.bidirectional=true",
            "model.local_window=3",        "model.pooling=last",
            "model.pooler=false",          "model.pooler_activation=tanh",
            "model.classifier_bias=true",  "model.head_dropout=0.1",
            "model.head_activation=relu",  "data.split_seed=2",
            "data.text_column=text",       "data.columns=text"}},
      {{"model.positions=rotary"},
       {"model.rotary_factor=2", "model.rotary_low=1", "model.relative_buckets=32"}},
      {classify,
       {"model.tied=true", "model.head_width=0", "model.unembedding_bias=false",
        "model.unembedding_scaled=true", "train.sample_prompt=a", "train.eval_windows=3"}},
      {embed,
       {"model.logit_cap=3", "model.logit_multiplier=2", "model.classifier_bias=true", "model.pooler=true",
        "data.split_seed=2"}},
      {pairs,
       {"data.columns=a", "data.source_column=a", "data.target_column=b", "data.delimiter=;",
        "train.eval_windows=4"}},
      {{"train.optimizer=sgd"}, {"train.beta1=0.9", "train.beta2=0.9", "train.epsilon=1e-8"}},
      {{"train.optimizer=adafactor"}, {"train.beta1=0.9", "train.epsilon=1e-8"}},
      {{"train.schedule=constant"}, {"train.min_learning_rate=0.1"}},
      {{"train.schedule=inverse_sqrt"}, {"train.min_learning_rate=0.1"}},
      {{"tokenizer.path=tok"},
       {"tokenizer.type=bpe", "tokenizer.vocab_size=99", "tokenizer.min_frequency=2",
        "tokenizer.lowercase=true"}},
  };
  for (const Case& c : cases) {
    EXPECT_NO_THROW(read(kLeast, c.beside)) << fmt::format("{}", fmt::join(c.beside, " "));
    for (const std::string text : c.keys) {
      Overrides all = c.beside;
      all.push_back(text);
      SCOPED_TRACE(fmt::format("{}", fmt::join(all, " ")));
      testing::expect_error<UsageError>([&] { read(kLeast, all); },
                                        {"run.toml", text.substr(0, text.find('='))});
    }
  }
  // --set cannot remove a key from a file.
  EXPECT_NO_THROW(read(kLeast + "[train]\neval_windows = 2\n", {"train.objective=masked", encoder[0]}));
  EXPECT_NO_THROW(read(kLeast + "[model]\npreset = 'llama'\nrotary_base = 5e3\n", {"model.preset=gpt2"}));
  EXPECT_NO_THROW(read(kLeast + "[train]\nbeta2 = 0.98\n", {"train.optimizer=sgd"}));
  EXPECT_NO_THROW(
      read(kLeast + "[model]\npositions = 'rotary'\nrotary_base = 1e5\n", {"model.positions=learned"}));
  EXPECT_NO_THROW(read(kLeast + "[tokenizer]\nvocab_size = 99\n", {"tokenizer.path=tok"}));
  testing::expect_error<UsageError>([&] { read(kLeast + "[train]\nbeta2 = 0.98\noptimizer = 'sgd'\n"); },
                                    {"run.toml: train.beta2", "sgd"});
  // These have an effect; keys of a preset do not count as chosen; a run's own file has every key.
  for (const Overrides& good :
       {Overrides{"model.positions=rotary", "model.rotary_base=1e5"},
        Overrides{"model.positions=rotary", "model.rotary_scaling=linear", "model.rotary_factor=2"},
        Overrides{"model.preset=gpt-j", "model.positions=learned"},
        Overrides{"model.positions=toeplitz", "model.relative_distance=9"},
        Overrides{classify[0], classify[1], "model.pooling=mean", "model.head_dropout=0.2"}})
    EXPECT_NO_THROW(read(to_toml(read(kLeast, good)))) << fmt::format("{}", fmt::join(good, " "));
}

// A model to start from.
class FromTest : public TrainConfigTest {
 protected:
  void SetUp() override {
    Transformer model(spec_);
    model.parameters().draw(1, DType::f32);
    std::filesystem::create_directories(from_);
    save_model(from_, model);
  }
  TrainConfig from(const std::vector<std::string>& overrides) {
    return read(kLeast + "[model]\nfrom = '" + from_ + "'\n", overrides);
  }
  const ModelSpec spec_ = bert_spec(13, 8, 12, 2, 3);
  const std::string from_ = dir_.path() + "/from";
};

TEST_F(FromTest, TheBodyIsTheOtherModels) {
  for (const char* objective : kEncoderObjectives) {
    const TrainConfig c = from({std::string("train.objective=") + objective});
    EXPECT_EQ(c.model.vocab_size, 13);
    EXPECT_EQ(c.model.context, 8);
    EXPECT_EQ(c.model.width, 12);
    EXPECT_EQ(c.model.layers, 2);
    EXPECT_EQ(c.model.attention.heads, 3);
    EXPECT_EQ(c.model.hidden, 48);
    EXPECT_EQ(c.model.norm_epsilon, 1e-12F);
    EXPECT_TRUE(c.model.labels.empty());
    EXPECT_EQ(to_toml(read(to_toml(c))), to_toml(c)) << objective;
  }
  EXPECT_EQ(from({}).model, spec_);  // masked, like the other
  EXPECT_EQ(from({"train.objective=classify"}).model.head_width, 0);
  EXPECT_TRUE(from({"train.objective=classify"}).model.pooler);
  // May differ from the other model: dropout, pooling, the head.
  const TrainConfig c = from({"train.objective=classify", "model.dropout=0.25", "model.pooling=mean"});
  EXPECT_EQ(c.model.residual_dropout, 0.25F);
  EXPECT_EQ(c.model.pooling, Pooling::mean);
}

// Keys that are not given stay those of the other model, not the defaults of a new one.
TEST_F(FromTest, WhatIsNotSaidStays) {
  const auto saved = [&](const ModelSpec& spec) {
    Transformer model(spec);
    model.parameters().draw(1, DType::f32);
    save_model(from_, model);
  };
  ModelSpec spec = gpt2_spec(13, 8, 12, 2, 3);
  spec.attention.dropout = 0.25F;
  spec.embedding_dropout = 0.5F;
  saved(spec);
  const auto next = [&](std::vector<std::string> more) {
    more.push_back("train.objective=next_token");
    return from(more);
  };
  TrainConfig c = next({});
  EXPECT_EQ(c.model.attention, spec.attention);
  EXPECT_EQ(c.model.embedding_dropout, 0.5F);
  EXPECT_EQ(to_toml(read(to_toml(c))), to_toml(c));
  EXPECT_EQ(read(to_toml(c)).model.attention, spec.attention);
  EXPECT_EQ(read(to_toml(c)).model.embedding_dropout, 0.5F);
  c = next({"model.dropout=0.125", "model.embedding_dropout=0"});
  EXPECT_EQ(c.model.attention.dropout, 0.125F);
  EXPECT_EQ(c.model.embedding_dropout, 0);
  spec = gpt2_spec(13, 8, 12, 2, 3);
  spec.positions = Positions::rotary;
  spec.attention.rotary = {
      .width = 4, .scaling = RotaryScaling::yarn, .factor = 4, .original_context = 4, .low = 1, .high = 4};
  saved(spec);
  EXPECT_EQ(next({}).model.attention, spec.attention);
  EXPECT_EQ(read(to_toml(next({}))).model.attention, spec.attention);
}

TEST_F(FromTest, MismatchesAreRefusedNamingTheKey) {
  const auto refuse = [&](const std::string& text, std::initializer_list<std::string> parts) {
    testing::expect_error<UsageError>([&] { from({"train.objective=classify", text}); }, parts);
    testing::expect_error<UsageError>(
        [&] {
          from({"train.objective=classify", text});
        },
        {text.substr(0, text.find('=')), "run.toml"});
  };
  for (const char* text :
       {"model.context=9", "model.width=24", "model.layers=3", "model.heads=4", "model.kv_heads=1",
        "model.d_qk=5", "model.d_vo=5", "model.hidden=5", "model.attention_bias=false",
        "model.activation=relu", "model.norm=pre", "model.positions=sinusoidal",
        "model.embedding_scaled=true", "model.embedding_norm=false", "model.segments=1",
        "model.norm_epsilon=1e-5", "model.final_norm=false"})
    refuse(text, {"does not fit the model that the run begins with"});
  refuse("model.width=24", {"24", "12"});
  testing::expect_error<UsageError>([&] { from({"model.logit_multiplier=0.5"}); },
                                    {"model.logit_multiplier", "0.5"});
  ModelSpec spec = spec_;
  spec.experts = {.count = 3, .chosen = 1, .hidden = 5, .capacity = 7};
  Transformer model(spec);
  model.parameters().draw(1, DType::f32);
  save_model(from_, model);
  refuse("model.expert_capacity=8", {"does not fit the model that the run begins with", "7"});
  refuse("tokenizer.path=x", {"model.from", "its own tokenizer"});
  testing::expect_error<UsageError>([&] { from({"train.objective=next_token"}); },
                                    {"train.objective", "\"decoder\"", "encoder"});
  testing::expect_error<UsageError>([&] { from({"model.architecture=decoder"}); }, {"model.architecture"});
  testing::expect_error<UsageError>([&] { read(kLeast, {"model.from=nowhere"}); },
                                    {"run.toml", "model.from", "nowhere"});
}

TEST_F(TrainConfigTest, RecurrencesBringTheirDefaults) {
  const auto of = [&](std::vector<std::string> overrides) {
    overrides.push_back("model.architecture=encoder_decoder");
    return read(kLeast, overrides).model;
  };
  const ModelSpec search = of({"model.encoder=gru", "model.decoder=gru", "model.width=250"});
  EXPECT_EQ(search.recurrence, (RecurrenceSpec{Cell::gru, Cell::gru, true, SourceAttention::dot, 10}));
  EXPECT_EQ(search.positions, Positions::none);
  EXPECT_FALSE(search.source_reversed);
  const ModelSpec plain = of({"model.encoder=lstm", "model.decoder=lstm", "model.source_attention=none",
                              "model.reverse_source=true"});
  EXPECT_EQ(plain.recurrence, (RecurrenceSpec{Cell::lstm, Cell::lstm, false, SourceAttention::none, 10}));
  EXPECT_TRUE(plain.source_reversed);
  const ModelSpec mixed = of({"model.decoder=lstm", "model.source_attention=local", "model.local_window=3"});
  EXPECT_EQ(mixed.recurrence, (RecurrenceSpec{Cell::none, Cell::lstm, false, SourceAttention::local, 3}));
  EXPECT_EQ(mixed.positions, Positions::learned);
  refuse_override("model.decoder=rnn", {"--set", "model.decoder", "transformer, lstm, gru"});
  refuse_override("model.decoder=gru", {"run.toml", "recurrence", "encoder_decoder"});
  refuse_override("model.reverse_source=true", {"run.toml", "reverse_source"});
  const std::string recurrent = kLeast +
                                "[model]\narchitecture = 'encoder_decoder'\nencoder = 'gru'\n"
                                "decoder = 'gru'\n[train]\n";
  for (const char* key : {"recompute = true", "layer_drop = 0.1"})
    testing::expect_error<UsageError>([&] { read(recurrent + key); }, {"train.", "blocks of attention"});
}

// Contradictory variations are rejected by name.
TEST_F(TrainConfigTest, CombinationsThatMakeNoSense) {
  const auto refuse_all = [&](const std::vector<std::string>& keys,
                              std::initializer_list<std::string> parts) {
    testing::expect_error<UsageError>([&] { read(kLeast, keys); }, parts);
  };
  refuse_all({"model.branches=parallel", "model.norm=post"}, {"branches", "pre-norms"});
  refuse_all({"model.branches=one_norm", "model.architecture=encoder_decoder"}, {"branches", "source"});
  refuse_all({"model.branches=reversible"}, {"reversible", "both streams", "tied"});
  refuse_all({"model.branches=reversible", "model.tied=false", "model.norm=post"},
             {"reversible", "post-norms"});
  refuse_all({"model.branches=reversible", "model.tied=false", "model.norm=stream"},
             {"reversible", "stream-norms"});
  refuse_all({"model.final_norm=false", "model.norm=post"}, {"final_norm", "post"});
  refuse_all({"model.branches=parallel", "model.norm=stream"}, {"branches", "pre-norms"});
  refuse_all({"model.axial_width=4"}, {"axial_width", "grid", "in a row"});
  refuse_all({"model.axial_width=4", "model.grid=4", "model.positions=sinusoidal"},
             {"axial_width", "sinusoidal"});
  refuse_all({"model.axial_width=500", "model.grid=4"}, {"axial_width", "width"});
  refuse_all({"model.hashed_beyond=4"}, {"hashed_beyond", "shared_query_key"});
  refuse_all({"model.hash_rounds=2"}, {"hash_rounds", "hashed_beyond"});
  const std::vector<std::string> hashed = {"model.shared_query_key=[0, 1]", "model.hashed_beyond=4"};
  const auto refuse_hashed = [&](const std::vector<std::string>& with,
                                 std::initializer_list<std::string> says) {
    std::vector<std::string> all = hashed;
    all.insert(all.end(), with.begin(), with.end());
    refuse_all(all, says);
  };
  refuse_hashed({"model.hash_buckets=[4, 3]"}, {"hash_buckets", "even", "3"});
  refuse_hashed({"model.hash_buckets=[1048576, 2]"}, {"hash_buckets", "more than"});
  refuse_hashed({"model.attention_sinks=true"}, {"hashed_beyond", "attention_sinks"});
  refuse_hashed({"model.positions=alibi"}, {"hashed_beyond", "alibi"});
  refuse_hashed({"model.patterns=[\"all\", \"window 4\"]"}, {"patterns", "layer 1"});
  refuse_hashed({"model.architecture=encoder_decoder"}, {"hashed_beyond", "encoder-decoder"});
  refuse_all({"model.shared_query_key=[2]"}, {"shared_query_key", "2"});
  refuse_all({"model.shared_query_key=[1]", "model.heads=2", "model.kv_heads=1"},
             {"shared_query_key", "kv_heads"});
  refuse_all(
      {"model.positions=rotary", "model.rotary_width=8", "model.kv_latent=16", "model.attention_clip=8"},
      {"kv_latent", "attention_clip"});
  refuse_all({"model.shared_query_key=[1]", "model.query_key_norm=heads"},
             {"shared_query_key", "norm already"});
  refuse_all({"model.shared_query_key=[1]", "model.relative_attention=shaw"}, {"shared_query_key", "shaw"});
  refuse_all({"model.shared_query_key=[1, 0]", "model.layers=2", "model.layer_groups=1"},
             {"layer_groups", "shared_query_key"});
  refuse_all({"model.patterns=[\"window 4\"]", "model.order=prefix"}, {"patterns", "prefix"});
  refuse_all({"model.patterns=[\"window -4\"]"}, {"patterns", "needs a number from 0"});
  refuse_all({"model.patterns=[\"window\"]"}, {"patterns", "window needs a number"});
  refuse_all({"model.patterns=[\"widow 4\"]"}, {"patterns", "'widow'", "window, dilated"});
  refuse_all({"model.patterns=[\"dilated 4\"]"}, {"patterns", "shows no key"});
  refuse_all({"model.patterns=[\"window 4 ends\"]"}, {"patterns", "are of blocks"});
  refuse_all({"model.patterns=[\"block 4 summary 5\"]"}, {"patterns", "no 5 last keys"});
  refuse_all({"model.patterns=[\"stride 4 dilated 2\"]"}, {"patterns", "of a window"});
  refuse_all({"model.patterns=[\"block 4 ends first_block 2\"]"}, {"patterns", "encoder"});
  refuse_all({"model.rotary_width=4"}, {"positions", "rotary_width"});
  refuse_all({"model.positions=rotary", "model.rotary_width=5"}, {"rotary_width", "even"});
  refuse_all({"model.positions=rotary", "model.rotary_width=500"}, {"rotary_width", "d_qk"});
  refuse_all({"model.positions=rotary", "model.rotary_scaling=llama3", "model.rotary_low=9"}, {"rotary_low"});
  refuse_all({"model.residual_multiplier=0"}, {"multiplier", "0"});
  refuse_all({"model.patterns=[3]"}, {"patterns", "string"});
  refuse_all({"model.memory=8"}, {"memory", "positions learned", "window's begin"});
  refuse_all({"model.memory=8", "model.positions=sinusoidal"}, {"memory", "positions sinusoidal"});
  refuse_all({"model.memory=8", "model.positions=rotary", "train.layer_drop=0.1"}, {"layer_drop", "memory"});
  refuse_all({"model.memory=8", "model.positions=rotary", "train.adversarial=1"}, {"adversarial", "memory"});
  refuse_all({"model.memory=8", "model.positions=rotary", "model.order=prefix"}, {"memory", "in order"});
  refuse_all(
      {"model.memory=8", "model.positions=relative", "model.architecture=encoder", "train.objective=masked"},
      {"memory", "masked"});
  refuse_all({"model.memory=8", "model.positions=rotary", "model.rotary_width=4", "model.kv_latent=8"},
             {"memory", "kv_latent"});
  refuse_all({"model.memory=8", "model.positions=rotary", "model.rotary_width=4", "model.grid=4"},
             {"memory", "grid"});
  refuse_all({"model.head_sizes=3"}, {"head_sizes", "list of integers"});
  refuse_all({"model.head_sizes=[3, 0]"}, {"head_sizes", "0"});
  refuse_all({"model.heads=3", "model.head_sizes=[16, 16]"}, {"head_sizes", "2 of 3 heads"});
  refuse_all({"model.heads=2", "model.head_sizes=[16, 8]", "model.d_qk=4"}, {"head_sizes", "widest's 16"});
  refuse_all({"model.heads=2", "model.head_sizes=[16, 8]", "model.kv_heads=1"},
             {"head_sizes", "share no keys"});
  refuse_all({"model.heads=2", "model.head_sizes=[16, 8]", "model.query_key_norm=heads"},
             {"head_sizes", "query_key_norm"});
  refuse_all({"model.heads=2", "model.head_sizes=[16, 8]", "model.positions=rotary", "model.rotary_width=12"},
             {"head_sizes", "narrowest's 8"});
  refuse_all({"model.logit_multiplier=2", "model.unembedding_bias=true"}, {"logit_multiplier"});
}

}  // namespace
}  // namespace qkv::config_rules_test
