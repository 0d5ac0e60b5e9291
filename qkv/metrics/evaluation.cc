#include "qkv/metrics/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qkv {

std::string score_text(std::string_view name, double value) {
  for (const std::string_view plain : {"matthews", "pearson", "spearman", "rmse", "mae"})
    if (name.starts_with(plain)) return fmt::format("{:.4f}", value);
  return name.starts_with("bleu") ? fmt::format("{:.2f}", value) : fmt::format("{:.2f}%", 100 * value);
}

std::string score_label(const std::string& name) {
  for (const auto& [field, label] :
       {std::pair("bleu", "BLEU"), std::pair("f1", "F1"), std::pair("macro_f1", "macro F1"),
        std::pair("micro_f1", "micro F1"), std::pair("matthews", "Matthews"), std::pair("pearson", "Pearson"),
        std::pair("spearman", "Spearman"), std::pair("rmse", "RMSE"), std::pair("mae", "MAE")})
    if (name == field) return label;
  std::string label = name;
  std::ranges::replace(label, '_', ' ');
  return label;
}

double Evaluation::score(std::string_view name) const {
  for (const auto& [its_name, value] : scores)
    if (its_name == name) return value;
  return 0;
}
double Evaluation::perplexity() const {
  return std::exp(loss());
}
// Characters are distributed evenly over all tokens, predicted or not.
double Evaluation::nats_per_character() const {
  return characters ? loss() * static_cast<double>(of_tokens) / static_cast<double>(characters) : 0;
}
double Evaluation::bits_per_byte() const {
  return bytes ? loss() * static_cast<double>(of_tokens) / static_cast<double>(bytes) / std::numbers::ln2 : 0;
}

}  // namespace qkv
