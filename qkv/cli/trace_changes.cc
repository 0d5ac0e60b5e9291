// qkv trace: what a model says when its values are changed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/rng.h"
#include "qkv/cli/console.h"
#include "qkv/cli/trace_questions.h"
#include "qkv/infer/predict.h"
#include "qkv/models/stack.h"
#include "qkv/trace/gradients.h"
#include "qkv/trace/lens.h"
#include "qkv/trace/step.h"

namespace qkv {
namespace {

// ---- Leaving out, and adding

// The changes of --ablate, each by zeros, the mean or other rows of the text.
std::vector<Change> ablations(const TraceOptions& o, const TracedModel& m, const ModelInput& input) {
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
  if (o.by != "resample") return changes;
  std::vector<std::string> names;
  for (const Change& change : changes) names.push_back(change.name);
  Trace trace(names);
  run_traced(m.model(), input, trace);
  for (uint64_t i = 0; i < changes.size(); ++i) {
    Change& change = changes[i];
    const Tensor& x = trace.at(change.name).rows;
    const RandomStream random{o.seed, i, 0};
    change.kind = Change::Kind::set;
    change.with = Tensor::empty(x.shape(), DType::f32);
    for (int64_t r = 0; r < x.rows(); ++r) {
      const auto other = static_cast<int64_t>(random.uniform(r) * static_cast<double>(x.rows()));
      change.with.mutable_row<float>(r).copy(x.row<float>(other));
    }
  }
  return changes;
}

// The row that a block leaves at a text's last token, or in an encoder the mean of its rows: [1, D].
Tensor direction_of(const TraceOptions& o, const TracedModel& m, const std::string& name,
                    const std::string& given_text) {
  WalkLabels its;
  const ModelInput input = traced_input(o, m, given_text, its);
  Trace trace({name});
  run_traced(m.model(), input, trace);
  const Tensor& x = trace.at(name).rows;
  if (!name.starts_with("encoder")) return x.slice_rows(x.rows() - 1, x.rows()).clone();
  Tensor out = Tensor::zeros({1, x.width()}, DType::f32);
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t c = 0; c < x.width(); ++c)
      out.mutable_row<float>(0)[c] += x.row<float>(r)[c] / static_cast<float>(x.rows());
  return out;
}

// The change of --add: a vector for all tokens behind a block.
Change addition(const TraceOptions& o, const TracedModel& m) {
  const ModelSpec& model = m.model().spec();
  const bool both = model.architecture == Architecture::encoder_decoder;
  const std::string stack = both ? "encoder" : last_stack_of(model);
  const ModelSpec spec = both ? model.encoder_spec() : model;
  const int64_t layers = both ? model.encoder_layers : model.layers;
  check(spec.has_blocks(), "--add: {} has no blocks", o.dir);
  const int64_t layer = o.given("--at") ? o.at : layers / 2;
  if (layer >= layers)
    throw UsageError(fmt::format("--at: block {} of {} (they count from 0)", layer, layers));
  Change change{block_output(spec, stack, layer), Change::Kind::add};
  change.with = direction_of(o, m, change.name, o.add);
  const Tensor less = o.minus.empty() ? Tensor::zeros(change.with.shape(), DType::f32)
                                      : direction_of(o, m, change.name, o.minus);
  for (int64_t c = 0; c < less.width(); ++c) {
    float& x = change.with.mutable_row<float>(0)[c];
    x = static_cast<float>(o.times * (double{x} - less.row<float>(0)[c]));
    if (!std::isfinite(x)) throw UsageError(fmt::format("--times: {} makes the vector infinite", o.times));
  }
  return change;
}

// The likeliest continuation of a text while values are changed.
std::string continued(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                      const std::vector<Change>& changes) {
  ModelInput so_far = input;
  std::vector<int32_t> ids(input.ids.values().begin(), input.ids.values().end());
  const auto begun = std::ssize(ids);
  const std::vector<int32_t> ends = m.text ? m.text->generation.drawing.eos : std::vector<int32_t>();
  while (std::ssize(ids) < std::min(begun + o.write, m.model().spec().longest())) {
    const Tensor logits = logits_with(m.model(), so_far, changes);
    ids.push_back(static_cast<int32_t>(highest(logits.row<float>(logits.rows() - 1))));
    if (std::ranges::find(ends, ids.back()) != ends.end()) break;
    so_far.ids = ids;
    so_far.layout = Layout::of({static_cast<int32_t>(ids.size())});
  }
  const std::span<const int32_t> written(ids.begin() + begun, ids.end());
  if (!m.text) return fmt::format("{}", fmt::join(written, " "));
  const std::vector<text::TokenId> tokens(written.begin(), written.end());
  return m.text->tokenizer.decode(tokens, true);
}

// The answers of a row: probabilities of tokens or classes, or the numbers of a regression.
std::vector<double> answers_of(const ModelSpec& spec, const Tensor& logits, int64_t row) {
  return spec.output == Output::tokens ? probabilities_of(logits, row) : class_values(spec, logits, row);
}

// KL(before | after) in nats: of one distribution, or the sum over labels that apply or not by themselves.
double divergence_of(const std::vector<double>& after, const std::vector<double>& before, bool labels) {
  double sum = 0;
  const auto add = [&](double p, double q) {
    if (p > 0) sum += p * (std::log(p) - std::log(std::max(q, 1e-300)));
  };
  for (size_t v = 0; v < before.size(); ++v) {
    add(before[v], after[v]);
    if (labels) add(1 - before[v], 1 - after[v]);
  }
  return sum;
}

}  // namespace

void answer_change(const TraceOptions& o, const TracedModel& m, const ModelInput& input,
                   const WalkLabels& labels) {
  if (!o.picture.empty()) throw UsageError("--picture: of values, and of answers that are matrices");
  const ModelSpec& spec = m.model().spec();
  const int64_t row = row_of(o, m, input);
  if (o.write > 0 && (spec.output != Output::tokens || !spec.causal() || spec.order == Order::prefix))
    throw UsageError("--write: of models that write from left to right");
  if (o.write > 0 && o.by == "resample")
    throw UsageError("--write: the rows of --by resample are those of the text alone");
  const std::vector<Change> changes =
      o.add.empty() ? ablations(o, m, input) : std::vector<Change>{addition(o, m)};
  const std::vector<double> before = answers_of(spec, logits_with(m.model(), input, {}), row),
                            after = answers_of(spec, logits_with(m.model(), input, changes), row);
  const bool of_classes = spec.output != Output::tokens,
             numbers = of_classes && spec.problem == Problem::regression;
  // The likeliest answers of both.
  std::vector<size_t> order(before.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](size_t v) { return std::max(before[v], after[v]); });
  order.resize(std::min<size_t>(order.size(), static_cast<size_t>(o.walk.best)));
  const double divergence =
      numbers ? 0 : divergence_of(after, before, of_classes && spec.problem == Problem::multi_label);
  std::string texts[2];
  if (o.write > 0) {
    texts[0] = continued(o, m, input, {});
    texts[1] = continued(o, m, input, changes);
  }
  if (o.json) {
    OrderedJson json = {{"position", row}};
    if (!numbers) json["kl_divergence"] = divergence;
    if (o.add.empty())
      json.update(OrderedJson{{"ablated", o.ablate}, {"by", o.by}});
    else
      json.update(
          OrderedJson{{"added", o.add}, {"minus", o.minus}, {"at", changes[0].name}, {"times", o.times}});
    for (const size_t v : order)
      json["tokens"].push_back({{"id", v},
                                {"piece", m.answer_name(static_cast<int64_t>(v))},
                                {"before", before[v]},
                                {"after", after[v]}});
    if (o.write > 0) json["written"] = {{"before", texts[0]}, {"after", texts[1]}};
    return print_json(json);
  }
  std::vector<std::vector<std::string>> table = {
      {spec.output == Output::tokens ? "token" : "class", "before", "after"}};
  for (const size_t v : order)
    table.push_back({m.answer_name(static_cast<int64_t>(v)), fmt::format("{:.4f}", before[v]),
                     fmt::format("{:.4f}", after[v])});
  const std::string how = o.by == "mean"       ? "each has its mean over the text"
                          : o.by == "resample" ? "rows of other tokens in their place"
                                               : "zeros in their place";
  const char* what = numbers ? "Values" : "Probabilities";
  std::string out =
      o.add.empty() ? fmt::format("{} {} without {} ({}):\n", what, behind(m, labels, row),
                                  fmt::join(o.ablate, ", "), how)
                    : fmt::format("{} {} with {} times the vector of '{}'{} added to {}:\n", what,
                                  behind(m, labels, row), o.times, o.add,
                                  o.minus.empty() ? "" : fmt::format(" less '{}'", o.minus), changes[0].name);
  out += table_text(table);
  if (!numbers) out += fmt::format("KL divergence of after from before {:.4f} nats\n", divergence);
  if (o.write > 0)
    out += fmt::format("Written before: {}\nWritten after:  {}\n", one_line(texts[0]), one_line(texts[1]));
  print(out);
}

namespace {

// ---- Patching

// How far a patch takes the text's answer towards that of the other text: 0 not at all, 1 all the way.
struct Effects {
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> share;
};

// The two texts of --patch-from, and the answers to the question in both.
struct Patching {
  const ModelInput &input, &other;
  Question question;
  double here = 0, there = 0;

  double share(double answer) const { return (answer - here) / (there - here); }
};

// The names of the values to patch in a stack.
std::vector<std::string> patched_values(const ModelSpec& spec, const std::string& stack, int64_t layers,
                                        bool heads, bool cross) {
  std::vector<std::string> names;
  if (!heads) names.push_back(stack + ".embedding");
  for (int64_t l = 0; l < layers; ++l) {
    if (!heads) names.push_back(block_output(spec, stack, l));
    if (!heads || !spec.block(l).attention.head_sizes.empty()) continue;
    if (spec.block(l).mixer.attends()) names.push_back(fmt::format("{}.block.{}.attention.heads", stack, l));
    if (cross) names.push_back(fmt::format("{}.block.{}.cross_attention.heads", stack, l));
  }
  return names;
}

Effects sweep(const TraceOptions& o, const TracedModel& m, const Patching& p, const WalkLabels& labels,
              const std::string& stack) {
  const bool two = p.input.source.defined(), of_source = two && stack == "encoder",
             heads = o.sweep == "heads";
  const ModelSpec spec = of_source ? m.model().spec().encoder_spec() : m.model().spec();
  const int64_t layers = of_source ? m.model().spec().encoder_layers : spec.layers;
  const std::vector<std::string>& tokens = of_source ? labels.source : labels.tokens;
  const std::vector<std::string> names = patched_values(spec, stack, layers, heads, two && !of_source);
  check(!names.empty(), "{}: none of its layers has heads of one size", o.dir);
  Trace values(names);
  run_traced(m.model(), p.other, values);
  Gradients gradients;
  if (o.estimate) gradients = gradients_of(m.model(), p.input, p.question, names);
  Effects out;
  int64_t most_heads = 0;
  for (const std::string& name : names) {
    const Tensor& rows = values.at(name).rows;
    out.rows.push_back(name);
    out.share.emplace_back();
    // Patches some rows (all: -1) and columns, or estimates what that does.
    const auto patch = [&](int64_t row, int64_t column, int64_t columns) {
      if (!o.estimate) {
        Change change{name, Change::Kind::set, {}, column, columns, rows};
        if (row >= 0) change.rows = {row};
        return out.share.back().push_back(
            p.share(answer_in(logits_with(m.model(), p.input, {change}), p.question)));
      }
      const auto& [value, gradient] = gradients.at(name);
      double sum = 0;
      for (int64_t r = std::max<int64_t>(row, 0); r < (row < 0 ? rows.rows() : row + 1); ++r)
        for (int64_t c = column; c < column + columns; ++c)
          sum +=
              (double{rows.row<float>(r)[c]} - value.rows.row<float>(r)[c]) * gradient.rows.row<float>(r)[c];
      out.share.back().push_back(p.share(p.here + sum));
    };
    if (!heads) {
      for (int64_t t = 0; t < std::ssize(tokens); ++t) patch(t, 0, rows.width());
      continue;
    }
    const int64_t count = spec.block(step_of(m.model().spec(), name).layer).attention.heads,
                  d = rows.width() / count;
    most_heads = std::max(most_heads, count);
    for (int64_t h = 0; h < count; ++h) patch(-1, h * d, d);
  }
  if (!heads) out.columns = tokens;
  for (int64_t h = 0; h < most_heads; ++h) out.columns.push_back(fmt::format("head {}", h));
  return out;
}

}  // namespace

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
  const Tensor here = logits_with(m.model(), input, {}), there = logits_with(m.model(), other, {});
  Patching p{input, other, {row_of(o, m, input)}};
  const auto chosen = [&](const std::string& given, const std::string& before, const char* option,
                          const Tensor& logits) {
    return given.empty() ? highest(logits.row<float>(p.question.row)) : m.answer(given, before, option);
  };
  p.question.column = chosen(o.of, o.text, "--of", here);
  p.question.instead = chosen(o.instead, o.patch_from, "--instead", there);
  check(p.question.column != p.question.instead,
        "--patch-from: both answers are {}: name two with --of and --instead",
        m.answer_name(p.question.column));
  p.here = answer_in(here, p.question);
  p.there = answer_in(there, p.question);
  check(std::abs(p.there - p.here) > 1e-9,
        "--patch-from: both texts have the same difference of these logits, {:.4f}", p.here);
  std::vector<std::string> stacks = {last_stack_of(m.model().spec())};
  if (input.source.defined()) stacks.insert(stacks.begin(), "encoder");
  OrderedJson json = asked_json(m, p.question);
  std::string out = fmt::format(
      "A value of the other text takes the logit of {}\nfrom this text's (0) so far towards the other's "
      "(1){}:\n",
      asked_text(m, labels, p.question), o.estimate ? ", by the gradient" : "");
  json["values"] = json["columns"] = json["share"] = OrderedJson::array();
  std::vector<Panel> panels;
  for (const std::string& stack : stacks) {
    const Effects e = sweep(o, m, p, labels, stack);
    std::vector<std::vector<std::string>> table = {{stack}};
    panels.push_back({fmt::format("{}: effect of a patch", stack), e.rows, e.columns, e.share});
    panels.back().full = 1;
    for (auto& row : panels.back().values) row.resize(e.columns.size(), std::nan(""));
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
  if (!o.picture.empty()) return write_picture(o, panels);
  o.json ? print_json(json) : print(out);
}

}  // namespace qkv
