// The options and the model that the files of qkv trace share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkv/api/text_model.h"
#include "qkv/trace/walk.h"

namespace qkv {

struct TraceOptions {
  std::string dir, text, second, target, ids, target_ids, out, page, dtype = "f32";
  std::string layers, heads, tokens;
  std::vector<std::string> values;
  bool json = false, example = false;
  WalkOptions walk;
  // Questions in place of the walk.
  bool lens = false;
  bool attributes = false;
  std::string attribute, patch_from, sweep = "layers", answer, instead;
  std::vector<std::string> ablate;
  std::string by = "zero";
  std::function<bool(const char*)> given;

  bool asks() const { return lens || attributes || !ablate.empty() || !patch_from.empty(); }
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
};

// The input of a model that reads o.text (or another text of the same kind).
ModelInput traced_input(const TraceOptions& o, const TracedModel& m, const std::string& text,
                        WalkLabels& labels);

// Answers --lens, --why, --ablate or --patch-from: prints text, or JSON.
void answer_trace_questions(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                            const WalkLabels& labels);

}  // namespace qkv
