// qkv trace: answers of layers, by the logit lens or a tuned one.
#include <fmt/format.h>

#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/cli/console.h"
#include "qkv/cli/trace_questions.h"
#include "qkv/cli/trace_texts.h"
#include "qkv/infer/predict.h"
#include "qkv/trace/lens.h"
#include "qkv/trace/tuned_lens.h"

namespace qkv {

std::vector<Tensor> lens_logits(const TraceOptions& o, const TracedModel& m, const ModelInput& input) {
  if (o.tuned.empty()) return logit_lens(m.model(), input);
  TunedLens lens(m.model().spec());
  lens.load(o.tuned);
  return lens.logits(m.model(), input);
}

void answer_lens(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                 const WalkLabels& labels) {
  const std::vector<Tensor> lens = lens_logits(o, m, input);
  const std::string stack = last_stack_of(m.model().spec());
  std::vector<int64_t> rows = o.walk.tokens;
  if (rows.empty()) {
    rows.resize(static_cast<size_t>(input.ids.count()));
    std::iota(rows.begin(), rows.end(), 0);
  }
  OrderedJson json = OrderedJson::array();
  std::vector<std::vector<std::string>> table = {{"layer"}};
  Panel panel{o.tuned.empty() ? "logit lens" : "tuned lens"};
  panel.full = 1;
  for (const int64_t row : rows)
    table[0].push_back(fmt::format("{} {}", row, labels.tokens[static_cast<size_t>(row)]));
  for (size_t l = 0; l < lens.size(); ++l) {
    const std::string name = l == 0 ? stack + ".embedding" : fmt::format("{}.block.{}", stack, l - 1);
    table.push_back({l == 0 ? "embedding" : fmt::format("block {}", l - 1)});
    panel.rows.push_back(table.back()[0]);
    panel.values.emplace_back();
    panel.texts.emplace_back();
    OrderedJson of_layer = {{"layer", name}, {"tokens", OrderedJson::array()}};
    for (const int64_t row : rows) {
      const std::vector<double> p = probabilities_of(lens[l], row);
      const int64_t best = highest(lens[l].row<float>(row));
      table.back().push_back(fmt::format("{} {:.2f}", m.piece(best), p[static_cast<size_t>(best)]));
      panel.values.back().push_back(p[static_cast<size_t>(best)]);
      panel.texts.back().push_back(m.piece(best));
      of_layer["tokens"].push_back({{"position", row},
                                    {"id", best},
                                    {"piece", m.piece(best)},
                                    {"probability", p[static_cast<size_t>(best)]}});
    }
    json.push_back(std::move(of_layer));
  }
  if (!o.picture.empty()) {
    for (const int64_t row : rows) panel.columns.push_back(labels.tokens[static_cast<size_t>(row)]);
    return write_picture(o, {panel});
  }
  if (o.json) return print_json({{"lens", json}});
  print(fmt::format("The likeliest token {} each token, if the model ended with this layer ({} lens):\n{}",
                    m.model().spec().causal() ? "behind" : "in the place of",
                    o.tuned.empty() ? "logit" : "tuned", table_text(table)));
}

void answer_fit_lens(const TraceOptions& o, const TracedModel& m) {
  expect_one_stack(m, "--fit-lens");
  if (o.out.empty()) throw UsageError("--fit-lens: expected --out FILE.safetensors for the fitted maps");
  constexpr int64_t kRows = 64;  // rows of a pass that are used: others would say much the same
  constexpr double kLearningRate = 1e-3;
  constexpr int64_t kCompared = 4000;  // tokens at the beginning of the file
  const int64_t limit = o.given("--limit") ? o.limit : 100000;
  TunedLens lens(m.model().spec());
  const int64_t tokens =
      for_each_pass(m, o.fit_lens, limit, true, [&](const ModelInput& input, int64_t before) {
        const double left = 1 - static_cast<double>(before) / static_cast<double>(limit);
        lens.fit(m.model(), input, kRows, kLearningRate * left);
      });
  lens.save(o.out);
  // Both lenses on the same texts.
  const TunedLens plain(m.model().spec());
  double first = 0, last = 0, passes = 0;
  for_each_pass(m, o.fit_lens, std::min<int64_t>(limit, kCompared), false,
                [&](const ModelInput& input, int64_t) {
                  first += plain.divergence(m.model(), input, kRows);
                  last += lens.divergence(m.model(), input, kRows);
                  ++passes;
                });
  first /= passes;
  last /= passes;
  if (o.json) return print_json({{"tokens", tokens}, {"divergence_before", first}, {"divergence", last}});
  print(
      fmt::format("{}: fitted on {} tokens. KL divergence of the layers' answers from the model's at the "
                  "file's beginning:\n"
                  "  {:.3f} nats by the logit lens, {:.3f} by the tuned one\n",
                  o.out, tokens, first, last));
}

}  // namespace qkv
