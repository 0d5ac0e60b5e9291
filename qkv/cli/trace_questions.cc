// qkv trace: the parts of a model, and of a text, that make an answer.
#include "qkv/cli/trace_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/cli/console.h"
#include "qkv/infer/predict.h"
#include "qkv/models/feature_embedding.h"
#include "qkv/text/unicode.h"
#include "qkv/trace/gradients.h"
#include "qkv/trace/lens.h"

namespace qkv {

int64_t highest(Span<const float> values) {
  return std::ranges::max_element(values) - values.begin();
}

int64_t row_of(const TraceOptions& o, const TracedModel& m, const ModelInput& input) {
  const ModelSpec& spec = m.model().spec();
  if (o.walk.tokens.size() > 1) throw UsageError("--tokens: one token for this question");
  if (spec.output == Output::sequence_classes) {
    if (!o.walk.tokens.empty()) throw UsageError("--tokens: the model classifies the text, not its tokens");
    return 0;
  }
  if (!o.walk.tokens.empty()) return o.walk.tokens[0];
  if (spec.output == Output::tokens && spec.architecture != Architecture::encoder)
    return input.ids.count() - 1;
  const auto ids = input.ids.values();
  if (const auto mask = m.mask_token(); mask && spec.output == Output::tokens)
    if (const auto at = std::ranges::find(ids, *mask); at != ids.end()) return at - ids.begin();
  throw UsageError(
      spec.output == Output::tokens
          ? "--tokens: name the token to ask about (or mask one in the text): an encoder predicts each in "
            "its place"
          : "--tokens: name the token to ask about: the model classifies each");
}

Question question_of(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                     const Tensor& logits) {
  Question q{row_of(o, m, input)};
  q.column = o.of.empty() ? highest(logits.row<float>(q.row)) : m.answer(o.of, o.text, "--of");
  if (!o.instead.empty()) q.instead = m.answer(o.instead, o.text, "--instead");
  if (q.column == q.instead)
    throw UsageError(fmt::format("--instead: {} is the answer itself", m.answer_name(q.column)));
  return q;
}

std::string behind(const TracedModel& m, const WalkLabels& labels, int64_t row) {
  const ModelSpec& spec = m.model().spec();
  if (spec.output == Output::sequence_classes) return "of the text";
  const char* where = spec.output != Output::tokens                ? "of"
                      : spec.architecture == Architecture::encoder ? "in the place of"
                                                                   : "behind";
  return fmt::format("{} token {} ({})", where, row, labels.tokens[static_cast<size_t>(row)]);
}

std::string asked_text(const TracedModel& m, const WalkLabels& labels, const Question& question) {
  const std::string than =
      question.instead < 0 ? "" : fmt::format(" less that of {}", m.answer_name(question.instead));
  return fmt::format("{}{} {}", m.answer_name(question.column), than, behind(m, labels, question.row));
}

OrderedJson asked_json(const TracedModel& m, const Question& question) {
  OrderedJson json = {
      {"position", question.row}, {"id", question.column}, {"piece", m.answer_name(question.column)}};
  if (question.instead >= 0) json["instead"] = m.answer_name(question.instead);
  return json;
}

std::string bars_text(const std::vector<std::string>& labels, const std::vector<double>& values) {
  size_t width = 3;
  double most = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    width = std::max(width, text::display_width(labels[i]));
    most = std::max(most, std::abs(values[i]));
  }
  std::string out;
  const auto line = [&](const std::string& label, double value, double share) {
    out += fmt::format("  {}{} {:9.3f}", label, std::string(width - text::display_width(label), ' '), value);
    if (share != 0) out += "  ";
    for (int64_t i = 0; i < std::lround(std::abs(share) * 20); ++i) out += share < 0 ? "░" : "█";
    out += "\n";
  };
  for (size_t i = 0; i < labels.size(); ++i) line(labels[i], values[i], most > 0 ? values[i] / most : 0);
  line("sum", std::accumulate(values.begin(), values.end(), 0.0), 0);
  return out;
}

namespace {

// Numbers as the rows of a panel, each written in its cell; or as its only row.
Panel panel_of(const std::string& title, const std::vector<double>& values, bool in_one_row) {
  Panel p{title};
  for (const double v : values) {
    if (p.values.empty() || !in_one_row) {
      p.values.emplace_back();
      p.texts.emplace_back();
    }
    p.values.back().push_back(v);
    p.texts.back().push_back(fmt::format("{:.2f}", v));
  }
  return p;
}

}  // namespace

void answer_attribution(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                        const WalkLabels& labels) {
  const Tensor logits = logits_with(m.model(), input, {});
  const Question question = question_of(o, m, input, logits);
  std::vector<Contribution> parts = contributions_to(m.model(), input, question.row, question.column);
  if (question.instead >= 0) {
    const auto others = contributions_to(m.model(), input, question.row, question.instead);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].value -= others[i].value;
  }
  std::vector<std::string> names;
  std::vector<double> values;
  for (const Contribution& c : parts) {
    names.push_back(c.name);
    values.push_back(c.value);
  }
  const double answer = answer_in(logits, question);
  if (!o.picture.empty()) {
    Panel panel = panel_of("logit of " + asked_text(m, labels, question), values, false);
    panel.rows = names;
    return write_picture(o, {panel});
  }
  if (o.json) {
    OrderedJson json = asked_json(m, question);
    json["logit"] = answer;
    json["sum"] = std::accumulate(values.begin(), values.end(), 0.0);
    for (const Contribution& c : parts)
      json["contributions"].push_back({{"name", c.name}, {"value", c.value}});
    return print_json(json);
  }
  print(fmt::format("The logit of {} is {:.3f}. Each part adds:\n", asked_text(m, labels, question), answer) +
        bars_text(names, values));
}

namespace {

// The input with one token in the place of all that stand for text.
ModelInput with_one_token(const TracedModel& m, const ModelInput& input, int32_t token, bool source) {
  ModelInput out = input;
  Indices& ids = source ? out.source : out.ids;
  std::vector<int32_t> all(ids.values().begin(), ids.values().end());
  const bool features = std::ranges::find(all, kFeature) != all.end();
  if (features) out.features = Tensor::zeros(input.features.shape(), DType::f32);  // black, silent
  for (int32_t& id : all)
    if (!features && !(m.text && m.text->tokenizer.is_special(static_cast<text::TokenId>(id)))) id = token;
  ids = std::move(all);
  return out;
}

// The token that says least: that of --baseline, or the first of a mask, padding, the unknown token and an
// end of text that the model has.
int32_t baseline_token(const TraceOptions& o, const TracedModel& m) {
  if (!o.baseline.empty()) return m.token(o.baseline, "", "--baseline");
  if (!m.text) return 0;
  if (const auto mask = m.mask_token()) return *mask;
  if (m.text->special.pad >= 0) return static_cast<int32_t>(m.text->special.pad);
  if (m.text->tokenizer.unknown() != text::kNoToken) return static_cast<int32_t>(m.text->tokenizer.unknown());
  return m.text->special.eos.empty() ? 0 : static_cast<int32_t>(m.text->special.eos[0]);
}

}  // namespace

void answer_saliency(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                     const WalkLabels& labels) {
  const Question question = question_of(o, m, input, logits_with(m.model(), input, {}));
  const int32_t baseline = baseline_token(o, m);
  std::vector<std::string> stacks = {last_stack_of(m.model().spec())};
  if (input.source.defined()) stacks.insert(stacks.begin(), "encoder");
  OrderedJson json = asked_json(m, question);
  std::vector<Panel> panels;
  std::string out = fmt::format("The logit of {}. ", asked_text(m, labels, question));
  out += o.steps == 0 ? "Its gradient times the embedding of each token:\n"
                      : fmt::format("Each token adds, compared with {} in its place:\n", m.piece(baseline));
  for (const std::string& stack : stacks) {
    const bool of_source = input.source.defined() && stack == "encoder";
    const Saliency s =
        o.steps == 0 ? gradient_times_input(m.model(), input, question, stack)
                     : integrated_gradients(m.model(), input, with_one_token(m, input, baseline, of_source),
                                            question, stack, o.steps);
    std::vector<std::string> tokens;
    OrderedJson& list = json[of_source ? "source" : "tokens"] = OrderedJson::array();
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const std::string& piece = (of_source ? labels.source : labels.tokens)[t];
      tokens.push_back(fmt::format("{:>3} {}", t, piece));
      list.push_back({{"piece", piece}, {"value", s.tokens[t]}});
    }
    panels.push_back(
        panel_of(of_source ? "source" : "logit of " + asked_text(m, labels, question), s.tokens, true));
    panels.back().columns = of_source ? labels.source : labels.tokens;
    if (stacks.size() > 1) out += of_source ? "source\n" : "target\n";
    out += bars_text(tokens, s.tokens);
    json["logit"] = s.answer;
    if (o.steps == 0) continue;
    const double sum = std::accumulate(s.tokens.begin(), s.tokens.end(), 0.0);
    if (std::abs(sum - (s.answer - s.without)) > 0.05 * std::max(std::abs(s.answer - s.without), 0.1))
      out +=
          "  The shares do not sum to the change: give more --steps. (They cannot where experts are "
          "chosen.)\n";
    out += fmt::format("  The logit goes from {:.3f} to {:.3f}, by {:.3f}.\n", s.without, s.answer,
                       s.answer - s.without);
    json[of_source ? "source_baseline" : "baseline"] = s.without;
  }
  if (!o.picture.empty()) return write_picture(o, panels);
  o.json ? print_json(json) : print(out);
}

void answer_trace_questions(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                            const WalkLabels& labels) {
  const ModelSpec& spec = m.model().spec();
  check(spec.output == Output::tokens || spec.classes() > 0,
        "{}: it has no logits of tokens or classes to ask about", o.dir);
  check(spec.output != Output::span, "{}: the logits of answers' ends are not asked about yet", o.dir);
  check(spec.output == Output::tokens || !(o.lens || o.attributes),
        "{}: --lens and --why need logits of tokens, and it has classes (--saliency and --ablate read them)",
        o.dir);
  if (o.questions() > 1)
    throw UsageError("--lens, --why, --saliency, --ablate, --add, --patch-from: one question at a time");
  if (!o.out.empty()) throw UsageError("--out: has the values of the walk, not answers to questions");
  if (o.lens) answer_lens(o, m, input, labels);
  if (o.attributes) answer_attribution(o, m, input, labels);
  if (o.saliency) answer_saliency(o, m, input, labels);
  if (!o.ablate.empty() || !o.add.empty()) answer_change(o, m, input, labels);
  if (!o.patch_from.empty()) answer_patching(o, m, input, labels);
}

}  // namespace qkv
