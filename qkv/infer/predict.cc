#include "qkv/infer/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/data/length_batches.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

// Batches of texts of similar lengths.
std::vector<std::vector<int64_t>> batches_of(const std::vector<EncodedText>& texts, int64_t tokens) {
  std::vector<int64_t> lengths;
  for (const EncodedText& t : texts) lengths.push_back(static_cast<int64_t>(t.encoding.size()));
  return batches_by_length(lengths, tokens);
}

// Calls f(texts of a batch, the batch, its hidden states) for batches of similar lengths. `mask`: the mask
// token, which is hidden from a model trained on permutations; -1: texts have none.
void for_batches(const Transformer& model, const std::vector<EncodedText>& texts, int64_t tokens,
                 const std::function<void(const std::vector<int64_t>&, const ModelInput&, const Tensor&)>& f,
                 int32_t mask = -1) {
  const NoGrad guard;
  for (const std::vector<int64_t>& which : batches_of(texts, tokens)) {
    ModelInput input = input_of(texts, which);
    if (mask >= 0 && model.spec().order == Order::permuted) input.visibility = ranks_without(input.ids, mask);
    f(which, input, model.hidden(input, {}));
  }
}

}  // namespace

std::vector<Tensor> class_scores(const Transformer& model, const std::vector<EncodedText>& texts,
                                 int64_t tokens, Communicator& ranks) {
  const NoGrad guard;
  const Output output = model.spec().output;
  const bool one_row = output == Output::sequence_classes || output == Output::tokens;
  const auto batches = batches_of(texts, tokens);
  std::vector<Tensor> out(texts.size());
  const auto scores = ranks.share(std::ssize(batches), [&](int64_t i) {
    const std::vector<int64_t>& which = batches[static_cast<size_t>(i)];
    const ModelInput input = input_of(texts, which);
    const Tensor all = model.classes(model.hidden(input, {}), input, {});
    for (size_t t = 0; t < which.size() && ranks.alone(); ++t) {
      const auto s = static_cast<int64_t>(t);
      out[static_cast<size_t>(which[t])] =
          one_row ? all.slice_rows(s, s + 1)
                  : all.slice_rows(input.layout.offsets[t], input.layout.offsets[t + 1]);
    }
    if (ranks.alone()) return std::vector<double>();
    const auto values = all.values<float>();
    return std::vector<double>(values.begin(), values.end());
  });
  for (size_t b = 0; b < batches.size() && !ranks.alone(); ++b) {
    int64_t rows = 0;
    const auto rows_of = [&](int64_t t) {
      return one_row ? int64_t{1} : std::ssize(texts[static_cast<size_t>(t)].encoding.ids);
    };
    for (const int64_t t : batches[b]) rows += rows_of(t);
    const int64_t width = std::ssize(scores[b]) / rows;
    auto from = scores[b].begin();
    for (const int64_t t : batches[b]) {
      Tensor& to = out[static_cast<size_t>(t)] = Tensor::empty({rows_of(t), width}, DType::f32);
      for (float& x : to.mutable_values<float>()) x = static_cast<float>(*from++);
    }
  }
  return out;
}

Tensor scores_of_choices(std::span<const Tensor> each) {
  Tensor out = Tensor::empty({1, std::ssize(each)}, DType::f32);
  for (size_t c = 0; c < each.size(); ++c) {
    check(each[c].shape() == Shape{1, 1}, "scores_of_choices: expected [1, 1], got {}", each[c].shape());
    out.mutable_values<float>()[c] = each[c].values<float>()[0];
  }
  return out;
}

std::vector<double> probabilities_of(const Tensor& scores, int64_t row) {
  const auto z = scores.row<float>(row);
  if (scores.width() == 1) return {1 / (1 + std::exp(-double{z[0]}))};  // a single class
  std::vector<double> p(z.begin(), z.end());
  const double most = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = std::exp(x - most);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

std::vector<double> class_values(const ModelSpec& spec, const Tensor& scores, int64_t row) {
  if (spec.problem == Problem::single_label || spec.problem == Problem::multiple_choice)
    return probabilities_of(scores, row);
  const auto z = scores.row<float>(row);
  std::vector<double> values(z.begin(), z.end());
  if (spec.problem == Problem::multi_label)
    for (double& v : values) v = 1 / (1 + std::exp(-v));
  return values;
}

std::string said_of(const ModelSpec& spec, const Tensor& scores) {
  const std::vector<double> values = class_values(spec, scores, 0);
  std::vector<std::string> said;
  if (spec.problem == Problem::single_label)
    said = {spec.labels[static_cast<size_t>(std::ranges::max_element(values) - values.begin())]};
  for (size_t c = 0; c < values.size(); ++c) {
    if (spec.problem == Problem::regression) said.push_back(fmt::format("{:.4f}", values[c]));
    if (spec.problem == Problem::multi_label && values[c] >= kApplies) said.push_back(spec.labels[c]);
  }
  return said.empty() ? "none" : fmt::format("{}", fmt::join(said, ", "));
}

Tensor span_scores(const std::vector<Tensor>& models) {
  check(!models.empty(), "span_scores: expected the scores of at least one model");
  if (models.size() == 1) return models[0];
  const int64_t tokens = models[0].rows();
  for (const Tensor& z : models)
    check(z.shape().rank() == 2 && z.dim(0) == tokens && z.dim(1) == 2,
          "span_scores: expected [{}, 2], got {}", tokens, z.shape());
  Tensor out = Tensor::empty({tokens, 2}, DType::f32);
  const auto to = out.mutable_values<float>();
  for (int64_t end = 0; end < 2; ++end) {
    std::vector<std::vector<double>> log_p;
    for (const Tensor& scores : models) {
      const auto z = scores.values<float>();
      double most = z[end], sum = 0;
      for (int64_t t = 1; t < tokens; ++t) most = std::max(most, double{z[2 * t + end]});
      for (int64_t t = 0; t < tokens; ++t) sum += std::exp(z[2 * t + end] - most);
      auto& its = log_p.emplace_back();
      for (int64_t t = 0; t < tokens; ++t) its.push_back(z[2 * t + end] - most - std::log(sum));
    }
    for (int64_t t = 0; t < tokens; ++t) {
      double most = log_p[0][t], sum = 0;
      for (const auto& its : log_p) most = std::max(most, its[t]);
      for (const auto& its : log_p) sum += std::exp(its[t] - most);
      to[2 * t + end] = static_cast<float>(most + std::log(sum / static_cast<double>(models.size())));
    }
  }
  return out;
}

TokenSpan best_span(const Tensor& scores, std::span<const int32_t> types, int64_t longest) {
  const auto first = std::find(types.begin(), types.end(), 1) - types.begin();
  const int64_t rows = scores.rows(), begin = first < std::ssize(types) ? first : 0,
                end = first < std::ssize(types) ? std::max<int64_t>(rows - 1, begin + 1) : rows;
  const auto z = scores.values<float>();
  TokenSpan best{begin, begin + 1, -std::numeric_limits<double>::infinity()};
  for (int64_t b = begin; b < end; ++b)
    for (int64_t e = b; e < std::min(end, b + longest); ++e)
      if (const double score = double{z[2 * b]} + z[2 * e + 1]; score > best.score) best = {b, e + 1, score};
  return best;
}

Answer best_answer(const Tensor& scores, const EncodedText& encoded, const TextPair& text, int64_t longest) {
  const TokenSpan span = best_span(scores, encoded.encoding.type_ids, longest);
  const std::string& where = text.second;
  // A span chosen among all tokens may lie in the first text, which can be longer.
  size_t end = std::min(encoded.encoding.offsets[span.end - 1].end, where.size());
  size_t begin = std::min(encoded.encoding.offsets[span.begin].begin, end);
  while (begin < end && where[begin] == ' ') ++begin;
  // Tokens of bytes may end inside a character.
  const auto continues = [&](size_t at) {
    return at < where.size() && (static_cast<unsigned char>(where[at]) & 0xC0) == 0x80;
  };
  while (begin > 0 && continues(begin)) --begin;
  while (continues(end)) ++end;
  return {where.substr(begin, end - begin), begin, end, span.score};
}

Tensor embed_texts(const Transformer& model, const std::vector<EncodedText>& texts, int64_t tokens) {
  return unit_rows(pooled_texts(model, texts, tokens));
}

Tensor pooled_texts(const Transformer& model, const std::vector<EncodedText>& texts, int64_t tokens) {
  const int64_t width = model.spec().pooled_width();
  Tensor out = Tensor::empty({std::ssize(texts), width}, DType::f32);
  for_batches(model, texts, tokens,
              [&](const std::vector<int64_t>& which, const ModelInput& input, const Tensor& hidden) {
                const Tensor rows = convert(model.pooled(hidden, input), DType::f32);
                for (int64_t i = 0; i < std::ssize(which); ++i)
                  out.mutable_row<float>(which[i]).copy(rows.row<float>(i));
              });
  return out;
}

std::vector<std::vector<std::vector<Candidate>>> fill_masks(const Transformer& model,
                                                            const std::vector<EncodedText>& texts,
                                                            int32_t mask, int64_t best, int64_t tokens,
                                                            int64_t vocabulary) {
  std::vector<std::vector<std::vector<Candidate>>> out(texts.size());
  for_batches(
      model, texts, tokens,
      [&](const std::vector<int64_t>& which, const ModelInput& input, const Tensor& hidden) {
        std::vector<int32_t> rows;
        const auto ids = input.ids.values();
        for (size_t r = 0; r < ids.size(); ++r)
          if (ids[r] == mask) rows.push_back(static_cast<int32_t>(r));
        if (rows.empty()) return;
        const Tensor logits = model.logits(select_rows(hidden, rows));
        for (size_t m = 0; m < rows.size(); ++m) {
          const std::vector<double> p = probabilities_of(logits, static_cast<int64_t>(m));
          std::vector<int32_t> order(vocabulary > 0 ? std::min(p.size(), static_cast<size_t>(vocabulary))
                                                    : p.size());
          std::iota(order.begin(), order.end(), 0);
          const auto kept = std::min<int64_t>(best, std::ssize(order));
          std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                            [&](int32_t a, int32_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); });
          const auto& offsets = input.layout.offsets;
          const auto s = std::upper_bound(offsets.begin(), offsets.end(), rows[m]) - offsets.begin() - 1;
          auto& found = out[which[s]].emplace_back();
          for (int64_t k = 0; k < kept; ++k) found.push_back({order[k], p[order[k]]});
        }
      },
      mask);
  return out;
}

}  // namespace qkv
