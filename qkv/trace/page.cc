#include "qkv/trace/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/base64.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/infer/predict.h"
#include "qkv/report/html.h"
#include "qkv/trace/lens.h"
#include "qkv/trace/page_assets.h"
#include "qkv/trace/step.h"
#include "qkv/trace/tuned_lens.h"

namespace qkv {
namespace {

constexpr int64_t kNeurons = 8;  // most active ones of a token that are shown

double shortened(double x) {
  return std::round(x * 1e4) / 1e4;
}

OrderedJson tokens_of(const std::vector<int32_t>& ids, const std::vector<std::string>& pieces) {
  OrderedJson out = OrderedJson::array();
  for (size_t t = 0; t < pieces.size(); ++t) out.push_back({{"id", ids[t]}, {"piece", pieces[t]}});
  return out;
}

// The likeliest tokens by a row of logits: [piece, probability].
OrderedJson likeliest(const Tensor& logits, int64_t row, const WalkLabels& labels, int64_t count) {
  const std::vector<double> probabilities = probabilities_of(logits, row);
  OrderedJson out = OrderedJson::array();
  for (const int64_t v : highest_places(logits.row<float>(row), count))
    out.push_back({labels.piece ? labels.piece(v) : std::to_string(v),
                   shortened(probabilities[static_cast<size_t>(v)])});
  return out;
}

// One kind of attention in all layers that have it, a byte for each probability.
struct AttentionSet {
  std::string name, rows, columns;
  std::vector<int64_t> layers, numbers;  // heads of each, and its number in the stack
  int64_t queries = 0, keys = 0;
  std::string bytes;
};

OrderedJson attention_of(const ModelSpec& spec, const Trace& trace) {
  std::vector<AttentionSet> sets;
  for (const TracedValue& value : trace.values()) {
    if (value.heads.empty() || !value.name.ends_with("attention.probabilities")) continue;
    const bool cross = value.name.find(".cross_attention.") != std::string::npos,
               encoder = value.name.starts_with("encoder.");
    const bool two = trace.find("decoder.embedding") != nullptr;
    const std::string name = cross            ? "cross-attention"
                             : two && encoder ? "encoder self-attention"
                                              : "self-attention";
    auto at = std::ranges::find(sets, name, &AttentionSet::name);
    if (at == sets.end()) {
      const std::string own = two && encoder ? "source" : "tokens";
      at = sets.insert(at, {name,
                            own,
                            cross ? "source" : own,
                            {},
                            {},
                            value.heads[0].value.dim(0),
                            value.heads[0].value.dim(1),
                            {}});
    }
    at->layers.push_back(std::ssize(value.heads));
    at->numbers.push_back(step_of(spec, value.name).layer);
    for (const HeadValue& head : value.heads)
      for (const float p : head.value.values<float>())
        at->bytes +=
            static_cast<char>(static_cast<unsigned char>(std::lround(std::clamp(p, 0.0F, 1.0F) * 255)));
  }
  OrderedJson out = OrderedJson::array();
  for (const AttentionSet& s : sets)
    out.push_back({{"name", s.name},
                   {"rows", s.rows},
                   {"columns", s.columns},
                   {"layers", s.layers},
                   {"numbers", s.numbers},
                   {"queries", s.queries},
                   {"keys", s.keys},
                   {"data", to_base64(s.bytes)}});
  return out;
}

// For each layer and token the neurons that are most active.
void add_neurons(const ModelSpec& spec, const Trace& trace, OrderedJson& data) {
  data["neurons"] = data["most_active"] = data["neurons_of"] = OrderedJson::array();
  const std::string stack = last_stack_of(spec);
  for (const TracedValue& value : trace.values()) {
    if (!value.name.starts_with(stack) || !value.name.ends_with(".feed_forward.hidden")) continue;
    OrderedJson layer = OrderedJson::array();
    double most = 1e-9;
    for (int64_t t = 0; t < value.rows.rows(); ++t) {
      const auto x = value.rows.row<float>(t);
      std::vector<int64_t> order(x.size());
      std::iota(order.begin(), order.end(), 0);
      const auto kept = std::min<int64_t>(kNeurons, std::ssize(order));
      std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                        [&](int64_t a, int64_t b) { return std::abs(x[a]) > std::abs(x[b]); });
      OrderedJson best = OrderedJson::array();
      for (int64_t i = 0; i < kept; ++i) best.push_back({order[i], shortened(x[order[i]])});
      most = std::max(most, std::abs(double{x[order[0]]}));
      layer.push_back(std::move(best));
    }
    data["neurons"].push_back(std::move(layer));
    data["most_active"].push_back(shortened(most));
    data["neurons_of"].push_back(step_of(spec, value.name).layer);
  }
}

// By layer and token, the likeliest pieces.
OrderedJson lens_of(const Transformer& model, const ModelInput& input, const WalkLabels& labels,
                    const std::string& tuned = "") {
  OrderedJson out = OrderedJson::array();
  if (!has_lens(model.spec())) return out;
  const auto by_file = [&] {
    TunedLens lens(model.spec());
    lens.load(tuned);
    return lens.logits(model, input);
  };
  for (const Tensor& logits : tuned.empty() ? logit_lens(model, input) : by_file()) {
    OrderedJson layer = OrderedJson::array();
    for (int64_t t = 0; t < logits.rows(); ++t) layer.push_back(likeliest(logits, t, labels, 3));
    out.push_back(std::move(layer));
  }
  return out;
}

void add_contributions(const Transformer& model, const ModelInput& input, const WalkLabels& labels,
                       OrderedJson& data) {
  data["contributions"] = data["parts"] = OrderedJson::array();
  if (!why_no_contributions(model.spec()).empty()) return;
  for (const LogitParts& parts : contributions_to_likeliest(model, input)) {
    OrderedJson values = OrderedJson::array();
    for (const Contribution& c : parts.parts) values.push_back(shortened(c.value));
    if (data["parts"].empty())
      for (const Contribution& c : parts.parts) data["parts"].push_back(c.name);
    data["contributions"].push_back(
        {{"piece", labels.piece ? labels.piece(parts.token) : std::to_string(parts.token)},
         {"logit", shortened(parts.logit)},
         {"parts", values}});
  }
}

std::string section(const std::string& title, const std::string& words, const std::string& body, bool open) {
  return fmt::format("<details{}><summary><h2>{}</h2></summary><p>{}</p>{}</details>\n", open ? " open" : "",
                     title, words, body);
}

}  // namespace

OrderedJson attention_and_lens(const Transformer& model, const ModelInput& input, const WalkLabels& labels) {
  Trace trace({"*.embedding", "*attention.probabilities"});
  run_traced(model, input, trace);
  return {{"tokens", tokens_of(labels.ids, labels.tokens)},
          {"attention", attention_of(model.spec(), trace)},
          {"lens", lens_of(model, input, labels)}};
}

std::string trace_page(const Transformer& model, const ModelInput& input, const WalkLabels& labels,
                       const std::string& title, const std::string& text, const std::string& tuned) {
  const ModelSpec& spec = model.spec();
  Trace trace({"*.embedding", "*attention.probabilities", "*.feed_forward.hidden", "logits"});
  run_traced(model, input, trace);
  OrderedJson data = {{"tokens", tokens_of(labels.ids, labels.tokens)},
                      {"attention", attention_of(model.spec(), trace)}};
  data["source"] =
      input.source.defined() ? tokens_of(labels.source_ids, labels.source) : OrderedJson::array();
  data["causal"] = spec.causal();
  data["next"] = OrderedJson::array();
  if (const TracedValue* logits = trace.find("logits"))
    for (int64_t t = 0; t < logits->rows.rows(); ++t)
      data["next"].push_back(likeliest(logits->rows, t, labels, 5));
  add_neurons(spec, trace, data);
  data["lens"] = lens_of(model, input, labels, tuned);
  add_contributions(model, input, labels, data);
  std::string json = data.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");

  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n<style>{1}</style></head>\n"
      "<body><h1>{0}</h1>\n<p class=\"text\">{6}</p><p>{2}, {3} blocks, width {4}. Arrow keys choose a "
      "token, j and k a block, "
      "n and p a head.</p>\n<div class=\"bar\">{5}<div class=\"tokens\" id=\"tokens\"></div></div>\n"
      "<div class=\"read\" id=\"next\"></div>\n",
      escape_html(title), kTraceStyle, algorithm_of(spec), spec.layers, spec.width,
      input.source.defined() ? "<div class=\"tokens\" id=\"source\"></div>" : "", escape_html(text));
  if (!data["attention"].empty()) {
    out += section(
        "Attention of a head",
        "Rows are queries and columns are keys. A line joins a token to what it attends to. The chosen "
        "token's lines are strong.",
        "<div class=\"controls\"><select id=\"set\" aria-label=\"kind\"></select><select id=\"layer\" "
        "aria-label=\"block\"></select>"
        "<select id=\"head\" aria-label=\"head\"></select><button class=\"plain\" id=\"pin\"></button></div>"
        "<div class=\"pair\" id=\"heads\"></div>",
        true);
    out += section("All heads", "Each picture is the matrix of one head. A click shows it above.",
                   "<div id=\"model\"></div>", true);
  }
  if (!data["lens"].empty())
    out += section(
        tuned.empty() ? "Logit lens" : "Tuned lens",
        spec.causal()
            ? "The likeliest next token if the model ended with this layer. Darker is surer."
            : "The likeliest token in each place if the model ended with this layer. Darker is surer.",
        "<div class=\"scroll\" id=\"lens\"></div>", true);
  if (!data["contributions"].empty())
    out += section(
        "Contributions",
        "The parts of the model that made the likeliest token likely, by what each adds to its logit.",
        "<div class=\"read\" id=\"parts-of\"></div><div class=\"parts\" id=\"parts\"></div>", true);
  if (!data["neurons"].empty())
    out += section("Neurons",
                   "The most active neurons of the chosen token in each block, by number and activation.",
                   "<div class=\"scroll\" id=\"neurons\"></div>", false);
  return out +
         fmt::format(
             "<script type=\"application/json\" id=\"data\">{}</script>\n<script>{}</script></body></html>\n",
             json, kTraceScript);
}

}  // namespace qkv
