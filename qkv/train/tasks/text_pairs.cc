#include "qkv/train/tasks/text_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/data/table.h"
#include "qkv/infer/predict.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/rows.h"
#include "qkv/train/corpora/documents.h"
#include "qkv/train/tasks/baseline.h"

namespace qkv {

std::vector<TextPair> read_text_pairs(const std::vector<std::string>& files, const DataConfig& data,
                                      Notes* notes, int64_t* empty) {
  std::vector<TextPair> out;
  for (const std::string& path : files) {
    Table table = read_table(path, file_options(data), notes);
    const size_t first = table.column(data.text_column),
                 second = data.second_column.empty() ? first : table.column(data.second_column);
    for (const auto& row : table.rows) {
      const bool whole = !row[first].empty() && !row[second].empty();
      if (whole) out.push_back({row[first], row[second]});
      if (!whole && empty != nullptr) ++*empty;
    }
  }
  check(out.size() > 1, "{}: there are no two texts to tell apart", fmt::join(files, ", "));
  return out;
}

EncodedPairs::EncodedPairs(const std::vector<TextPair>& pairs, const text::Tokenizer& tokenizer,
                           const ModelSpec& spec) {
  for (const TextPair& p : pairs) {
    first.push_back(encode_text({p.first, ""}, tokenizer, spec));
    second.push_back(encode_text({p.second, ""}, tokenizer, spec));
  }
}

std::vector<int64_t> EncodedPairs::lengths() const {
  std::vector<int64_t> out;
  for (size_t i = 0; i < first.size(); ++i)
    out.push_back(static_cast<int64_t>(first[i].encoding.size() + second[i].encoding.size()));
  return out;
}

int64_t EncodedPairs::cut() const {
  int64_t out = 0;
  for (size_t i = 0; i < first.size(); ++i) out += first[i].cut || second[i].cut;
  return out;
}

Batch text_pair_batch(const EncodedPairs& pairs, const std::vector<int64_t>& which) {
  std::vector<EncodedText> texts;
  for (const int64_t i : which) texts.push_back(pairs.first[i]);
  for (const int64_t i : which) texts.push_back(pairs.second[i]);
  std::vector<int64_t> all(texts.size());
  std::iota(all.begin(), all.end(), 0);
  Batch b;
  static_cast<ModelInput&>(b) = input_of(texts, all);
  b.target_count = std::ssize(which);
  return b;
}

namespace {

// Calls f(first, end) for each group of pairs that compete with each other.
template <typename F>
void for_groups(int64_t pairs, const F& f) {
  for (int64_t first = 0; first < pairs; first += kPairsToChooseFrom)
    f(first, std::min(pairs, first + kPairsToChooseFrom));
}

}  // namespace

Evaluation evaluate_pairs(const Transformer& model, const EncodedPairs& pairs, Communicator& ranks) {
  const NoGrad guard;
  Evaluation e;
  const int64_t groups = (pairs.size() + kPairsToChooseFrom - 1) / kPairsToChooseFrom;
  const auto losses = ranks.share(groups, [&](int64_t group) {
    const int64_t first = group * kPairsToChooseFrom,
                  end = std::min(pairs.size(), first + kPairsToChooseFrom);
    std::vector<int64_t> which(static_cast<size_t>(end - first));
    std::iota(which.begin(), which.end(), first);
    const Batch b = text_pair_batch(pairs, which);
    const Tensor vectors = unit_rows(convert(model.pooled(model.hidden(b, {}), b), DType::f32));
    const auto n = std::ssize(which);
    const ContrastiveLoss c =
        contrastive_cross_entropy(vectors.slice_rows(0, n), vectors.slice_rows(n, 2 * n), 0.05F, 1);
    return std::vector<double>{c.total, static_cast<double>(n), static_cast<double>(c.found)};
  });
  double found = 0;
  for (const std::vector<double>& numbers : losses) {
    e.total += numbers[0];
    e.tokens += std::llround(numbers[1]);
    found += numbers[2];
  }
  e.of_tokens = e.tokens;
  e.examples = e.tokens;
  e.cut = pairs.cut();
  if (e.tokens > 0) e.scores = {{"accuracy", found / static_cast<double>(e.tokens)}};
  return e;
}

Retrieval retrieve(const Transformer& model, const EncodedPairs& pairs, int64_t tokens) {
  const Tensor first = embed_texts(model, pairs.first, tokens),
               second = embed_texts(model, pairs.second, tokens);
  const int64_t n = pairs.size();
  const auto cosine = [&](int64_t i, int64_t j) {
    const auto x = first.row<float>(i), y = second.row<float>(j).first(std::ssize(x));
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0F);
  };
  std::vector<int64_t> ranks(n, 1);  // texts as near as a text's own pair rank before it
  parallel_for(n, 1, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const float own = cosine(i, i);
      for (int64_t j = 0; j < n; ++j) ranks[i] += j != i && cosine(i, j) >= own;
    }
  });
  Retrieval out;
  for (const int64_t rank : ranks) {
    out.first += rank == 1;
    out.among_ten += rank <= 10;
    out.reciprocal_rank += 1 / static_cast<double>(rank);
  }
  for (double* mean : {&out.first, &out.among_ten, &out.reciprocal_rank}) *mean /= static_cast<double>(n);
  return out;
}

double found_by_words(const std::vector<TextPair>& pairs) {
  using Counts = std::map<std::string, double>;
  const auto unit = [](const std::string& text) {
    Counts counts;
    for (const std::string& word : words_of({text, ""})) ++counts[word];
    double squares = 0;
    for (const auto& [word, n] : counts) squares += n * n;
    for (auto& [word, n] : counts) n /= std::sqrt(squares);
    return counts;
  };
  const auto cosine = [](const Counts& a, const Counts& b) {
    double sum = 0;
    for (const auto& [word, n] : a)
      if (const auto at = b.find(word); at != b.end()) sum += n * at->second;
    return sum;
  };
  int64_t found = 0;
  for_groups(std::ssize(pairs), [&](int64_t begin, int64_t end) {
    std::vector<Counts> seconds;
    for (int64_t i = begin; i < end; ++i) seconds.push_back(unit(pairs[i].second));
    for (int64_t i = begin; i < end; ++i) {
      const Counts first = unit(pairs[i].first);
      const double own = cosine(first, seconds[i - begin]);
      // A text is found only if no other is as near.
      found += own > 0 &&
               std::ranges::count_if(seconds, [&](const Counts& s) { return cosine(first, s) >= own; }) == 1;
    }
  });
  return pairs.empty() ? 0 : static_cast<double>(found) / static_cast<double>(pairs.size());
}

}  // namespace qkv
