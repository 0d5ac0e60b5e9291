// qkv trace: questions about why a model says what it says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/cli/console.h"
#include "qkv/cli/trace_command.h"
#include "qkv/infer/predict.h"
#include "qkv/models/stack.h"
#include "qkv/trace/intervention.h"
#include "qkv/trace/lens.h"
#include "qkv/trace/step.h"

namespace qkv {
namespace {

template <typename Range>
int64_t highest(const Range& values) {
  return std::ranges::max_element(values) - values.begin();
}

// The row that a question is about: the only one of --tokens, or the last. An encoder's last token says
// nothing: there it is that of its mask.
int64_t row_of(const TraceOptions& o, const TracedModel& m, const ModelInput& input) {
  if (o.walk.tokens.size() > 1) throw UsageError("--tokens: one token for this question");
  if (!o.walk.tokens.empty()) return o.walk.tokens[0];
  if (m.model().spec().architecture != Architecture::encoder) return input.ids.count() - 1;
  const auto ids = input.ids.values();
  for (const char* mask : {"[MASK]", "<mask>"})
    if (const auto id = m.text ? m.text->tokenizer.token_to_id(mask) : std::nullopt)
      if (const auto at = std::ranges::find(ids, static_cast<int32_t>(*id)); at != ids.end())
        return at - ids.begin();
  throw UsageError(
      "--tokens: name the token to ask about (or mask one in the text): an encoder predicts each in its "
      "place");
}

std::string behind(const TracedModel& m, const WalkLabels& labels, int64_t row) {
  const bool in_place = m.model().spec().architecture == Architecture::encoder;
  return fmt::format("{} token {} ({})", in_place ? "in the place of" : "behind", row,
                     labels.tokens[static_cast<size_t>(row)]);
}

// ---- The logit lens

void answer_lens(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                 const WalkLabels& labels) {
  const std::vector<Tensor> lens = logit_lens(m.model(), input);
  const std::string stack = last_stack_of(m.model().spec());
  std::vector<int64_t> rows = o.walk.tokens;
  if (rows.empty()) {
    rows.resize(static_cast<size_t>(input.ids.count()));
    std::iota(rows.begin(), rows.end(), 0);
  }
  OrderedJson json = OrderedJson::array();
  std::vector<std::vector<std::string>> table = {{"layer"}};
  for (const int64_t row : rows)
    table[0].push_back(fmt::format("{} {}", row, labels.tokens[static_cast<size_t>(row)]));
  for (size_t l = 0; l < lens.size(); ++l) {
    const std::string name = l == 0 ? stack + ".embedding" : fmt::format("{}.block.{}", stack, l - 1);
    table.push_back({l == 0 ? "embedding" : fmt::format("block {}", l - 1)});
    OrderedJson of_layer = {{"layer", name}, {"tokens", OrderedJson::array()}};
    for (const int64_t row : rows) {
      const std::vector<double> p = probabilities_of(lens[l], row);
      const int64_t best = highest(p);
      table.back().push_back(fmt::format("{} {:.2f}", m.piece(best), p[static_cast<size_t>(best)]));
      of_layer["tokens"].push_back({{"position", row},
                                    {"id", best},
                                    {"piece", m.piece(best)},
                                    {"probability", p[static_cast<size_t>(best)]}});
    }
    json.push_back(std::move(of_layer));
  }
  if (o.json) return print(OrderedJson{{"lens", json}}.dump() + "\n");
  print("The likeliest token " + std::string(m.model().spec().causal() ? "behind" : "in the place of") +
        " each token, if the model ended with this layer (logit lens):\n" + table_text(table));
}

// ---- Attribution

// A bar of up to 20 columns.
std::string bar(double share) {
  std::string out;
  for (int i = 0; i < static_cast<int>(std::lround(std::min(1.0, std::abs(share)) * 20)); ++i)
    out += share < 0 ? "░" : "█";
  return out;
}

void answer_attribution(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                        const WalkLabels& labels) {
  const int64_t row = row_of(o, m, input);
  const Tensor logits = logits_with(m.model(), input, {});
  const int64_t token =
      !o.given("--of") ? highest(logits.row<float>(row)) : m.token(o.attribute, o.text, "--of");
  const std::vector<Contribution> parts = contributions_to(m.model(), input, row, token);
  const double logit = logits.row<float>(row)[token];
  double most = 0, sum = 0;
  for (const Contribution& c : parts) {
    most = std::max(most, std::abs(c.value));
    sum += c.value;
  }
  if (o.json) {
    OrderedJson json = {
        {"position", row}, {"id", token}, {"piece", m.piece(token)}, {"logit", logit}, {"sum", sum}};
    for (const Contribution& c : parts)
      json["contributions"].push_back({{"name", c.name}, {"value", c.value}});
    return print(json.dump() + "\n");
  }
  std::string out = fmt::format("The logit of {} {} is {:.3f}. Each part adds:\n", m.piece(token),
                                behind(m, labels, row), logit);
  size_t width = 0;
  for (const Contribution& c : parts) width = std::max(width, c.name.size());
  for (const Contribution& c : parts)
    out += fmt::format("  {:<{}} {:9.3f}  {}\n", c.name, width, c.value, bar(most > 0 ? c.value / most : 0));
  print(out + fmt::format("  {:<{}} {:9.3f}\n", "sum", width, sum));
}

// ---- Ablation

void answer_ablation(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                     const WalkLabels& labels) {
  const int64_t row = row_of(o, m, input);
  std::vector<Change> changes;
  for (const std::string& part : o.ablate)
    for (Change& change :
         naming_option("--ablate: ", [&] { return changes_of_part(m.model().spec(), part); })) {
      if (o.by == "mean") change.kind = Change::Kind::mean;
      for (const int64_t r : change.rows) {
        const int64_t rows = change.name.starts_with("encoder") && input.source.defined()
                                 ? input.source.count()
                                 : input.ids.count();
        if (r >= rows)
          throw UsageError(fmt::format("--ablate: '{}': token {} of {} (they count from 0)", part, r, rows));
      }
      changes.push_back(std::move(change));
    }
  const std::vector<double> before = probabilities_of(logits_with(m.model(), input, {}), row),
                            after = probabilities_of(logits_with(m.model(), input, changes), row);
  double divergence = 0;
  for (size_t v = 0; v < before.size(); ++v)
    if (before[v] > 0) divergence += before[v] * (std::log(before[v]) - std::log(std::max(after[v], 1e-300)));
  // The likeliest tokens of both.
  std::vector<int64_t> order(before.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](int64_t v) {
    return std::max(before[static_cast<size_t>(v)], after[static_cast<size_t>(v)]);
  });
  order.resize(std::min<size_t>(order.size(), static_cast<size_t>(o.walk.best)));
  if (o.json) {
    OrderedJson json = {
        {"position", row}, {"ablated", o.ablate}, {"by", o.by}, {"kl_divergence", divergence}};
    for (const int64_t v : order)
      json["tokens"].push_back({{"id", v},
                                {"piece", m.piece(v)},
                                {"before", before[static_cast<size_t>(v)]},
                                {"after", after[static_cast<size_t>(v)]}});
    return print(json.dump() + "\n");
  }
  std::vector<std::vector<std::string>> table = {{"token", "before", "after"}};
  for (const int64_t v : order)
    table.push_back({m.piece(v), fmt::format("{:.4f}", before[static_cast<size_t>(v)]),
                     fmt::format("{:.4f}", after[static_cast<size_t>(v)])});
  print(fmt::format("Probabilities {} without {} ({}):\n{}KL divergence of after from before {:.4f} nats\n",
                    behind(m, labels, row), fmt::join(o.ablate, ", "),
                    o.by == "mean" ? "each has its mean over the text" : "zeros in their place",
                    table_text(table), divergence));
}

// ---- Patching

// How far a patch takes the text's answer towards that of the other text: 0 not at all, 1 all the way.
struct Effects {
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> share;
};

// A difference of two logits behind one row, and its value in both texts.
struct Difference {
  int64_t row, answer, instead;
  double here = 0, there = 0;
  double of(const Tensor& logits) const {
    return double{logits.row<float>(row)[answer]} - logits.row<float>(row)[instead];
  }
};

Effects sweep(const TraceOptions& o, const TracedModel& m, const ModelInput& input, const WalkLabels& labels,
              const ModelInput& other, const Difference& difference, const std::string& stack) {
  const bool of_source = input.source.defined() && stack == "encoder", heads = o.sweep == "heads";
  const ModelSpec spec = of_source ? m.model().spec().encoder_spec() : m.model().spec();
  const int64_t layers = of_source ? m.model().spec().encoder_layers : spec.layers;
  const std::vector<std::string>& tokens = of_source ? labels.source : labels.tokens;
  std::vector<std::string> names;
  if (!heads) names.push_back(stack + ".embedding");
  for (int64_t l = 0; l < layers; ++l) {
    if (!heads) names.push_back(block_output(spec, stack, l));
    if (!heads || !spec.block(l).attention.head_sizes.empty()) continue;
    if (spec.block(l).mixer.attends()) names.push_back(fmt::format("{}.block.{}.attention.heads", stack, l));
    if (input.source.defined() && !of_source)
      names.push_back(fmt::format("{}.block.{}.cross_attention.heads", stack, l));
  }
  check(!names.empty(), "{}: none of its layers has heads of one size", o.dir);
  Trace values(names);
  run_traced(m.model(), other, values);
  Effects out;
  int64_t most_heads = 0;
  for (size_t n = 0; n < names.size(); ++n) {
    const Tensor& rows = values.at(names[n]).rows;
    out.rows.push_back(names[n]);
    out.share.emplace_back();
    const auto patch = [&](Change change) {
      change.name = names[n];
      change.kind = Change::Kind::set;
      change.with = rows;
      out.share.back().push_back((difference.of(logits_with(m.model(), input, {change})) - difference.here) /
                                 (difference.there - difference.here));
    };
    if (!heads) {
      for (int64_t t = 0; t < std::ssize(tokens); ++t) {
        Change change;
        change.rows = {t};
        patch(std::move(change));
      }
      continue;
    }
    const int64_t count = spec.block(step_of(m.model().spec(), names[n]).layer).attention.heads,
                  d = rows.width() / count;
    most_heads = std::max(most_heads, count);
    for (int64_t h = 0; h < count; ++h) {
      Change change;
      change.column = h * d;
      change.columns = d;
      patch(std::move(change));
    }
  }
  if (!heads) out.columns = tokens;
  for (int64_t h = 0; h < most_heads; ++h) out.columns.push_back(fmt::format("head {}", h));
  return out;
}

void answer_patching(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                     const WalkLabels& labels) {
  WalkLabels its;
  const ModelInput other = traced_input(o, m, o.patch_from, its);
  check(its.tokens.size() == labels.tokens.size(),
        "--patch-from: {} tokens, but the text has {}: each takes the place of one{}", its.tokens.size(),
        labels.tokens.size(),
        input.source.defined() && !o.given("--target") ? " (give both the same --target)" : "");
  check(!input.source.defined() || its.source.size() == labels.source.size(),
        "--patch-from: {} source tokens, but the text has {}", its.source.size(), labels.source.size());
  const int64_t row = row_of(o, m, input);
  const Tensor here = logits_with(m.model(), input, {}), there = logits_with(m.model(), other, {});
  const auto likeliest = [&](const Tensor& logits) { return highest(logits.row<float>(row)); };
  Difference difference{row, o.answer.empty() ? likeliest(here) : m.token(o.answer, o.text, "--answer"),
                        o.instead.empty() ? likeliest(there) : m.token(o.instead, o.patch_from, "--instead")};
  check(difference.answer != difference.instead,
        "--patch-from: both texts are followed by {}: name two tokens with --answer and --instead",
        m.piece(difference.answer));
  difference.here = difference.of(here);
  difference.there = difference.of(there);
  check(std::abs(difference.there - difference.here) > 1e-9,
        "--patch-from: both texts have the same difference of these logits, {:.4f}", difference.here);
  std::vector<std::string> stacks = {last_stack_of(m.model().spec())};
  if (input.source.defined()) stacks.insert(stacks.begin(), "encoder");
  OrderedJson json = {
      {"answer", m.piece(difference.answer)}, {"instead", m.piece(difference.instead)}, {"position", row}};
  std::string out = fmt::format(
      "A value of the other text takes the logit of {} less that of {} {}\n"
      "from this text's (0) so far towards the other's (1):\n",
      m.piece(difference.answer), m.piece(difference.instead), behind(m, labels, row));
  json["values"] = json["columns"] = json["share"] = OrderedJson::array();
  for (const std::string& stack : stacks) {
    const Effects e = sweep(o, m, input, labels, other, difference, stack);
    std::vector<std::vector<std::string>> table = {{stack}};
    for (size_t c = 0; c < e.columns.size(); ++c)
      table[0].push_back(o.sweep == "heads" ? e.columns[c] : fmt::format("{} {}", c, e.columns[c]));
    for (size_t r = 0; r < e.rows.size(); ++r) {
      table.push_back({e.rows[r]});
      for (const double share : e.share[r])
        table.back().push_back(fmt::format("{:.2f}", std::abs(share) < 0.005 ? 0.0 : share));
      table.back().resize(table[0].size());
      json["values"].push_back(e.rows[r]);
      json["columns"].push_back(e.columns);
      json["share"].push_back(e.share[r]);
    }
    out += "\n" + table_text(table);
  }
  print(o.json ? json.dump() + "\n" : out);
}

}  // namespace

void answer_trace_questions(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                            const WalkLabels& labels) {
  check(m.model().spec().output == Output::tokens, "{}: it has no logits of tokens to ask about", o.dir);
  const int questions = o.lens + o.attributes + !o.ablate.empty() + !o.patch_from.empty();
  if (questions > 1) throw UsageError("--lens, --why, --ablate, --patch-from: one question at a time");
  if (!o.out.empty()) throw UsageError("--out: has the values of the walk, not answers to questions");
  if (o.lens) answer_lens(o, m, input, labels);
  if (o.attributes) answer_attribution(o, m, input, labels);
  if (!o.ablate.empty()) answer_ablation(o, m, input, labels);
  if (!o.patch_from.empty()) answer_patching(o, m, input, labels);
}

}  // namespace qkv
