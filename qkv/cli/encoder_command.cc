#include "qkv/cli/encoder_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/model_notes.h"
#include "qkv/io/adapter_dir.h"

namespace qkv {
namespace {

const char* what_it_is(const ModelSpec& s) {
  if (s.architecture == Architecture::decoder && s.output == Output::tokens) return "a language model";
  if (s.architecture == Architecture::encoder_decoder) return "an encoder-decoder";
  switch (s.output) {
    case Output::tokens:
      return "a masked language model";
    case Output::sequence_classes:
      return "a classifier of texts";
    case Output::token_classes:
      return "a tagger of words";
    case Output::span:
      return "a model that finds answers";
    case Output::embedding:
      return "an encoder without a head";
  }
  return "?";
}

// Names a model with this output and says how to train it.
const char* wanted_for(Output output) {
  switch (output) {
    case Output::tokens:
      return "an encoder trained with train.objective = \"masked\"";
    case Output::sequence_classes:
      return "a model trained with train.objective = \"classify\"";
    case Output::token_classes:
      return "a model trained with train.objective = \"tag\"";
    case Output::span:
      return "an encoder trained with train.objective = \"answer\"";
    case Output::embedding:
      break;
  }
  return "an encoder, best one trained with train.objective = \"embed\", or a model with classes";
}

}  // namespace

void add_encoder_options(Command& c, EncoderOptions& o) {
  c.add_option("DIR", o.dir, "Model directory or run")->required();
  add_text_input(c, o);
  c.add_option("--batch-tokens", o.batch_tokens, "Tokens per batch")->show_default()->range(1, 1 << 24);
  c.add_option("--dtype", o.dtype, "Precision of matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c.add_flag("--strict", o.strict,
             "Reject texts that are longer than the model's context instead of truncating them");
}

void add_ensemble_option(Command& c, EncoderOptions& o) {
  c.add_option("--ensemble", o.ensemble, "More models: average their probabilities");
}

TextModel load_encoder(const std::string& dir, const std::string& dtype, std::initializer_list<Output> wanted,
                       const char* command) {
  TextModel m = load(dir, compute_type(dtype));
  print_model_notes(dir, *m.model);
  const ModelSpec& s = m.model->spec();
  const Output wanted_first = std::find(wanted.begin(), wanted.end(), Output::embedding) != wanted.end()
                                  ? Output::embedding
                                  : *wanted.begin();
  const auto is_wanted = [&](Output output) {
    return std::find(wanted.begin(), wanted.end(), output) != wanted.end();
  };
  // BERT's pre-training also classifies each sequence: whether its second text follows the first.
  const bool tells_next =
      s.output == Output::tokens && !s.labels.empty() && is_wanted(Output::sequence_classes);
  // An encoder's modules say what to do with a decoder's rows, too.
  const bool as_vectors = m.sentence && is_wanted(Output::embedding);
  check(tells_next || as_vectors ||
            ((s.architecture == Architecture::encoder || s.output != Output::tokens) && is_wanted(s.output)),
        "{}: this checkpoint is {}; {} needs {}", dir, what_it_is(s), command, wanted_for(wanted_first));
  return m;
}

std::vector<TextModel> load_encoders(const EncoderOptions& o, Output wanted, const char* command) {
  std::vector<TextModel> models;
  models.push_back(load_encoder(o.dir, o.dtype, {wanted}, command));
  for (const std::string& dir : o.ensemble) {
    models.push_back(load_encoder(dir, o.dtype, {wanted}, command));
    check(same_labels(models.back().model->spec(), models[0].model->spec()),
          "{}: its classes are not those of {}, in their order", dir, o.dir);
  }
  return models;
}

void MeanProbabilities::add(const std::vector<double>& p) {
  sum_.resize(p.size());
  for (size_t c = 0; c < p.size(); ++c) sum_[c] += p[c];
  ++models_;
}

std::vector<double> MeanProbabilities::mean() const {
  std::vector<double> out = sum_;
  for (double& p : out) p /= models_;
  return out;
}

std::vector<EncodedText> encode_texts(const EncoderOptions& o, const TextModel& m,
                                      const std::vector<InputText>& texts, std::vector<size_t>& which,
                                      int64_t& cut) {
  std::vector<EncodedText> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const TextPair& text = texts[i].text;
    if (text.first.find_first_not_of(" \t") == std::string::npos) continue;
    EncodedText e =
        naming_place(texts[i].place, [&] { return encode_text(text, m.tokenizer, m.model->spec()); });
    check(!o.strict || !e.cut, "{}: longer than the model's {} tokens (without --strict it is cut)",
          texts[i].place, m.model->spec().context);
    cut += e.cut;
    which.push_back(i);
    out.push_back(std::move(e));
  }
  return out;
}

void RankedLines::print_best(int64_t best, const char* name, bool json) {
  std::ranges::stable_sort(lines_, std::greater{}, [](const auto& line) { return line.first; });
  if (best > 0 && std::ssize(lines_) > best) lines_.resize(static_cast<size_t>(best));
  for (const auto& [score, text] : lines_) {
    const OrderedJson line = {{name, score}, {"text", text}};
    print(json ? json_line(line) : fmt::format("{:.4f}\t{}\n", score, one_line(text)));
  }
}

void note_cut(int64_t cut, const TextModel& m) {
  note_cut(cut, m.model->spec().context);
}

void note_cut(const std::vector<int64_t>& cut, const std::vector<TextModel>& models) {
  const auto most = std::max_element(cut.begin(), cut.end()) - cut.begin();
  note_cut(cut[most], models[most]);
}

}  // namespace qkv
