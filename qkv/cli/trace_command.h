// The options and the model that the files of qkv trace share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkv/api/text_model.h"
#include "qkv/base/json.h"
#include "qkv/trace/picture.h"

namespace qkv {

struct TraceOptions {
  std::string dir, text, second, target, ids, target_ids, inputs, out, page, picture, dtype = "f32";
  std::string layers, heads, tokens;
  std::vector<std::string> values;
  bool json = false, example = false;
  WalkOptions walk;
  // Questions in place of the walk.
  bool lens = false;
  bool attributes = false;
  bool saliency = false, estimate = false;
  std::string of, instead, baseline, patch_from, sweep = "layers", add, minus;
  int64_t steps = 32, at = 0, write = 0;
  double times = 1;
  std::vector<std::string> ablate;
  std::string by = "zero";
  uint64_t seed = 0;
  // Heads, in place of a pass.
  bool circuits = false;
  std::string roles, relation, fit_lens, tuned;
  int64_t limit = 10000;
  std::function<bool(const char*)> given;
  std::function<std::vector<std::string>()> all_given;

  int questions() const {
    return lens + attributes + saliency + !ablate.empty() + !add.empty() + !patch_from.empty();
  }
  bool asks() const { return questions() > 0; }
  bool reads_no_text() const {
    return circuits || given("--roles") || given("--relation") || given("--fit-lens");
  }
};

// A model, with its tokenizer if the input is text.
struct TracedModel {
  std::optional<TextModel> text;
  std::unique_ptr<Transformer> alone;

  const Transformer& model() const { return text ? *text->model : *alone; }
  // The piece of a token, as people see it; its id without a tokenizer.
  std::string piece(int64_t id) const;
  std::vector<std::string> pieces(std::span<const int32_t> ids) const;
  // The only token of a text that goes on behind `before`, or "id:N"; ids alone without a tokenizer. Throws
  // UsageError naming the option if it is several tokens, or none.
  int32_t token(const std::string& text, const std::string& before, const char* option) const;
  // The token that stands for one to be filled in; none: there is none, or no tokenizer.
  std::optional<int32_t> mask_token() const;
  // The name of a column of the model's logits: a token's piece, or a class.
  std::string answer_name(int64_t column) const;
  // The column of a token, named as for token(), or of a class by its name or number. Throws UsageError.
  int64_t answer(const std::string& name, const std::string& before, const char* option) const;
};

// Prints a line of JSON; bytes that are not UTF-8 become signs.
void print_json(const OrderedJson& json);
// Writes panels to the file of --picture, and says so.
void write_picture(const TraceOptions& o, const std::vector<Panel>& panels);

// The input of a model that reads o.text (or another text of the same kind).
ModelInput traced_input(const TraceOptions& o, const TracedModel& m, const std::string& text,
                        WalkLabels& labels);

// The input of the file of --inputs.
ModelInput input_of_file(const TraceOptions& o, const TracedModel& m, WalkLabels& labels);

// Answers --lens, --why, --saliency, --ablate, --add or --patch-from: prints text, or JSON.
void answer_trace_questions(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                            const WalkLabels& labels);

}  // namespace qkv
