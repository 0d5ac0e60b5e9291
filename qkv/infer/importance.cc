#include "qkv/infer/importance.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "qkv/infer/score.h"
#include "qkv/ops/weight_product.h"

namespace qkv {
namespace {

// Sums of squares for the rows of one parameter from `row` on: a layer's own, or an expert's.
struct Sums {
  std::vector<double> squares;
  int64_t count = 0, rows = 0;
};

class Collector {
 public:
  explicit Collector(const Transformer& model) : parameters_(model.parameters().all()) {
    for (size_t p = 0; p < parameters_.size(); ++p) {
      if (!parameters_[p].any_type) continue;
      for (const Weight::Rows& run : parameters_[p].weight().runs())
        runs_[static_cast<const std::byte*>(run.view.data)] = {p, run};
    }
  }

  void see(const Weight& weight, const MatrixView& a, int64_t m, int64_t k) {
    const auto* data = static_cast<const std::byte*>(weight.runs().front().view.data);
    auto run = runs_.upper_bound(data);
    if (run == runs_.begin()) return;
    const auto& [begin, found] = *std::prev(run);
    const int64_t row = (data - begin) / found.rows.view.row_bytes();
    if (row >= found.rows.count) return;  // a weight that is no parameter
    Sums& sums = seen_[{found.parameter, found.rows.first + row}];
    sums.squares.resize(k);
    sums.rows = weight.dim(0);
    sums.count += m;
    for (int64_t r = 0; r < m; ++r) {
      const void* x = a.from(r, 0).data;
      for (int64_t c = 0; c < k; ++c) {
        const double v = a.type == WeightType::f32 ? static_cast<const float*>(x)[c]
                                                   : static_cast<float>(static_cast<const BFloat16*>(x)[c]);
        sums.squares[c] += v * v;
      }
    }
  }

  std::vector<std::vector<ColumnImportance>> importance() const {
    std::vector<std::vector<ColumnImportance>> out(parameters_.size());
    for (const auto& [place, sums] : seen_) {
      std::vector<float> mean;
      for (const double square : sums.squares)
        mean.push_back(static_cast<float>(square / static_cast<double>(sums.count)));
      out[place.first].push_back({place.second, sums.rows, std::move(mean)});
    }
    return out;
  }

 private:
  struct Run {
    size_t parameter;
    Weight::Rows rows;
  };
  const std::deque<Parameter>& parameters_;
  std::map<const std::byte*, Run> runs_;             // by where they begin in memory
  std::map<std::pair<size_t, int64_t>, Sums> seen_;  // by parameter and first row
};

}  // namespace

Calibration calibrate(const Transformer& model, const std::vector<std::vector<int32_t>>& windows,
                      const std::function<void(size_t)>& progress) {
  Collector collector(model);
  Calibration out;
  int64_t tokens = 0;
  {
    const ActivationWatch watch([&](const Weight& weight, const MatrixView& a, int64_t m, int64_t k) {
      collector.see(weight, a, m, k);
    });
    for (size_t i = 0; i < windows.size(); ++i) {
      if (progress) progress(i);
      const std::vector<std::vector<ScoredToken>> scored = score_tokens(model, {{windows[i], 1}});
      for (const ScoredToken& t : scored.front()) out.loss -= t.log_p;
      tokens += std::ssize(scored.front());
    }
  }
  out.loss /= static_cast<double>(std::max<int64_t>(1, tokens));
  out.importance = collector.importance();
  return out;
}

}  // namespace qkv
