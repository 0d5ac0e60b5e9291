// Common to the questions of qkv trace: the token or class asked about, and how it is named.
#pragma once

#include <string>
#include <vector>

#include "qkv/base/json_value.h"
#include "qkv/cli/trace_command.h"
#include "qkv/trace/intervention.h"

namespace qkv {

// Index of the highest number.
int64_t highest(Span<const float> values);

// The row of the logits that a question is about: the only one of --tokens, else the last; an encoder's is
// that of its mask. Throws UsageError where there is no such row.
int64_t row_of(const TraceOptions& o, const TracedModel& m, const ModelInput& input);
// The question about --of (default: the likeliest there) and --instead, by the logits of a text.
Question question_of(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                     const Tensor& logits);

// "behind token 3 (the)", "in the place of token 3 ([MASK])", "of the text".
std::string behind(const TracedModel& m, const WalkLabels& labels, int64_t row);
// "mat behind token 3 (the)", "mat less that of hat behind ...".
std::string asked_text(const TracedModel& m, const WalkLabels& labels, const Question& question);
OrderedJson asked_json(const TracedModel& m, const Question& question);

// A line for each label with a number and a bar of its size, and their sum.
std::string bars_text(const std::vector<std::string>& labels, const std::vector<double>& values);

// The answer to --lens, by --tuned if that is given, and to --fit-lens (trace_lens.cc).
void answer_lens(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                 const WalkLabels& labels);
void answer_fit_lens(const TraceOptions& o, const TracedModel& m);
// The logits of each layer by that lens.
std::vector<Tensor> lens_logits(const TraceOptions& o, const TracedModel& m, const ModelInput& input);
// The answers to --why and --saliency.
void answer_attribution(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                        const WalkLabels& labels);
void answer_saliency(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                     const WalkLabels& labels);
// The answers to --ablate and --add, and to --patch-from (trace_changes.cc).
void answer_change(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                   const WalkLabels& labels);
void answer_patching(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                     const WalkLabels& labels);

}  // namespace qkv
