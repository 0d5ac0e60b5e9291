#include "qkv/metrics/scores.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

namespace qkv {
namespace {

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

int64_t ConfusionMatrix::total() const {
  return std::accumulate(missed.begin(), missed.end(),
                         std::accumulate(count.begin(), count.end(), int64_t{0}));
}

int64_t ConfusionMatrix::gold(int64_t c) const {
  const auto row = count.begin() + c * classes;
  return std::accumulate(row, row + classes, missed[c]);
}

int64_t ConfusionMatrix::predicted(int64_t c) const {
  int64_t n = 0;
  for (int64_t k = 0; k < classes; ++k) n += count[k * classes + c];
  return n;
}

double ConfusionMatrix::precision(int64_t c) const {
  return ratio(static_cast<double>(count[c * classes + c]), static_cast<double>(predicted(c)));
}

double ConfusionMatrix::recall(int64_t c) const {
  return ratio(static_cast<double>(count[c * classes + c]), static_cast<double>(gold(c)));
}

double ConfusionMatrix::accuracy() const {
  int64_t right = 0;
  for (int64_t c = 0; c < classes; ++c) right += count[c * classes + c];
  return ratio(static_cast<double>(right), static_cast<double>(total()));
}

double ConfusionMatrix::f1(int64_t c) const {
  return ratio(2 * static_cast<double>(count[c * classes + c]), static_cast<double>(gold(c) + predicted(c)));
}

double ConfusionMatrix::macro_f1() const {
  double sum = 0;
  int64_t present = 0;
  for (int64_t c = 0; c < classes; ++c) {
    if (gold(c) + predicted(c) == 0) continue;
    ++present;
    sum += f1(c);
  }
  return ratio(sum, static_cast<double>(present));
}

double ConfusionMatrix::micro_f1() const {
  int64_t right = 0, found = 0;
  for (int64_t c = 0; c < classes; ++c) {
    right += count[c * classes + c];
    found += predicted(c);
  }
  return ratio(2 * static_cast<double>(right), static_cast<double>(total() + found));
}

double LabelSets::Count::f1() const {
  return ratio(2 * static_cast<double>(right), static_cast<double>(gold + predicted));
}

void LabelSets::add(const std::vector<bool>& gold, const std::vector<bool>& predicted) {
  for (size_t l = 0; l < counts_.size(); ++l) {
    counts_[l].gold += gold[l];
    counts_[l].predicted += predicted[l];
    counts_[l].right += gold[l] && predicted[l];
  }
  ++texts_;
  exact_ += gold == predicted;
}

double LabelSets::precision(int64_t label) const {
  const Count& c = counts_[static_cast<size_t>(label)];
  return ratio(static_cast<double>(c.right), static_cast<double>(c.predicted));
}

double LabelSets::recall(int64_t label) const {
  const Count& c = counts_[static_cast<size_t>(label)];
  return ratio(static_cast<double>(c.right), static_cast<double>(c.gold));
}

double LabelSets::f1(int64_t label) const {
  return counts_[static_cast<size_t>(label)].f1();
}

double LabelSets::macro_f1() const {
  double sum = 0;
  int64_t present = 0;
  for (const Count& c : counts_) {
    sum += c.f1();
    present += c.gold + c.predicted > 0;
  }
  return ratio(sum, static_cast<double>(present));
}

double LabelSets::micro_f1() const {
  Count all;
  for (const Count& c : counts_) {
    all.gold += c.gold;
    all.predicted += c.predicted;
    all.right += c.right;
  }
  return all.f1();
}

double LabelSets::exact_match() const {
  return ratio(static_cast<double>(exact_), static_cast<double>(texts_));
}

namespace {

double mean_of(const std::vector<double>& x) {
  return ratio(std::accumulate(x.begin(), x.end(), 0.0), static_cast<double>(x.size()));
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const double mx = mean_of(x), my = mean_of(y);
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
    xy += (x[i] - mx) * (y[i] - my);
  }
  return ratio(xy, std::sqrt(xx) * std::sqrt(yy));
}

// From 1; equal numbers share the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& x) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return x[i]; });
  std::vector<double> ranks(x.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    end = begin + 1;  // a NaN is equal to nothing
    while (end < order.size() && x[order[end]] == x[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
  }
  return ranks;
}

}  // namespace

double NumberPairs::rmse() const {
  double sum = 0;
  for (size_t i = 0; i < gold.size(); ++i) sum += (gold[i] - predicted[i]) * (gold[i] - predicted[i]);
  return std::sqrt(ratio(sum, static_cast<double>(gold.size())));
}

double NumberPairs::mae() const {
  double sum = 0;
  for (size_t i = 0; i < gold.size(); ++i) sum += std::abs(gold[i] - predicted[i]);
  return ratio(sum, static_cast<double>(gold.size()));
}

double NumberPairs::pearson() const {
  return correlation(gold, predicted);
}

double NumberPairs::spearman() const {
  return correlation(ranks_of(gold), ranks_of(predicted));
}

double ConfusionMatrix::matthews() const {
  double right = 0, both = 0, gold_squares = 0;
  const auto n = static_cast<double>(total());
  // Missed examples count as predictions of one more class, which never occurs.
  const auto lost = static_cast<double>(std::accumulate(missed.begin(), missed.end(), int64_t{0}));
  double predicted_squares = lost * lost;
  for (int64_t c = 0; c < classes; ++c) {
    const auto g = static_cast<double>(gold(c)), p = static_cast<double>(predicted(c));
    right += static_cast<double>(count[c * classes + c]);
    both += g * p;
    gold_squares += g * g;
    predicted_squares += p * p;
  }
  return ratio(right * n - both, std::sqrt((n * n - predicted_squares) * (n * n - gold_squares)));
}

std::vector<Chunk> chunks_of(std::span<const std::string> tags) {
  std::vector<Chunk> out;
  bool open = false;
  for (size_t i = 0; i < tags.size(); ++i) {
    const std::string& tag = tags[i];
    const auto at = static_cast<int64_t>(i);
    const bool formed =
        tag.size() > 2 && tag[1] == '-' && std::string("BIES").find(tag[0]) != std::string::npos;
    if (tag == "O") {
      open = false;
      continue;
    }
    const std::string type = formed ? tag.substr(2) : tag;
    const char kind = formed ? tag[0] : 'S';
    const bool continues = (kind == 'I' || kind == 'E') && open && out.back().type == type;
    if (continues)
      out.back().end = at + 1;
    else
      out.push_back({at, at + 1, type});
    open = kind == 'B' || kind == 'I';
  }
  return out;
}

bool describe_chunks(std::span<const std::string> tags) {
  return std::ranges::any_of(
      tags, [](const std::string& t) { return t.size() > 2 && (t[0] == 'B' || t[0] == 'I') && t[1] == '-'; });
}

void ChunkCounts::add(std::span<const std::string> gold_tags, std::span<const std::string> predicted_tags) {
  const std::vector<Chunk> g = chunks_of(gold_tags), p = chunks_of(predicted_tags);
  gold += std::ssize(g);
  predicted += std::ssize(p);
  for (const Chunk& c : p) correct += std::find(g.begin(), g.end(), c) != g.end();
}

double ChunkCounts::precision() const {
  return ratio(static_cast<double>(correct), static_cast<double>(predicted));
}

double ChunkCounts::recall() const {
  return ratio(static_cast<double>(correct), static_cast<double>(gold));
}

double ChunkCounts::f1() const {
  return ratio(2 * static_cast<double>(correct), static_cast<double>(gold + predicted));
}

namespace {

// Words in lower case, without punctuation and articles.
std::vector<std::string> answer_words(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::ispunct(u) == 0) plain += static_cast<char>(std::tolower(u));
  }
  std::istringstream in(plain);
  std::vector<std::string> words;
  for (std::string w; in >> w;)
    if (w != "a" && w != "an" && w != "the") words.push_back(w);
  return words;
}

}  // namespace

double answer_f1(const std::string& gold, const std::string& predicted) {
  const auto g = answer_words(gold), p = answer_words(predicted);
  if (g.empty() || p.empty()) return g == p ? 1 : 0;
  std::map<std::string, int64_t> left;
  for (const std::string& w : g) ++left[w];
  int64_t shared = 0;
  for (const std::string& w : p) shared += left[w]-- > 0;
  return ratio(2 * static_cast<double>(shared), static_cast<double>(g.size() + p.size()));
}

bool answer_matches(const std::string& gold, const std::string& predicted) {
  return answer_words(gold) == answer_words(predicted);
}

}  // namespace qkv
