#include "qkv/trace/intervention.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "qkv/autograd/graph.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

// x, f32 [N, D], after one change.
Tensor changed(const Change& change, const Tensor& x) {
  const int64_t rows = x.rows(), width = x.width(), columns = change.columns > 0 ? change.columns : width,
                end = change.column + columns;
  check(change.column >= 0 && end <= width, "{}: columns {} to {} of {}", change.name, change.column, end,
        width);
  const bool reads = change.kind == Change::Kind::set || change.kind == Change::Kind::add;
  check(!reads || (change.with.defined() && change.with.width() == width &&
                   (change.with.rows() == rows || change.with.rows() == 1)),
        "{}: a change of [{}, {}] needs as many rows, or one, got {}", change.name, rows, width,
        change.with.defined() ? fmt::format("{}", change.with.shape()) : "none");
  std::vector<int32_t> which;
  for (int64_t r = 0; r < (change.rows.empty() ? rows : std::ssize(change.rows)); ++r) {
    which.push_back(static_cast<int32_t>(change.rows.empty() ? r : change.rows[r]));
    check(which.back() >= 0 && which.back() < rows, "{}: row {} of {}", change.name, which.back(), rows);
  }
  Tensor given = Tensor::zeros({std::ssize(which), columns}, DType::f32);
  std::vector<double> mean(static_cast<size_t>(width), 0);
  if (change.kind == Change::Kind::mean)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c) mean[c] += x.row<float>(r)[c] / static_cast<double>(rows);
  for (int64_t r = 0; r < given.rows(); ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float& to = given.mutable_row<float>(r)[c];
      if (reads) to = change.with.row<float>(change.with.rows() == 1 ? 0 : which[r])[change.column + c];
      if (change.kind == Change::Kind::mean) to = static_cast<float>(mean[change.column + c]);
    }
  Tensor part = columns_of(x, change.column, end);
  if (change.kind == Change::Kind::add) given = add(select_rows(part, which), given);
  part = replace_rows(part, which, given);
  if (change.column > 0) part = join_columns(columns_of(x, 0, change.column), part);
  return end < width ? join_columns(part, columns_of(x, end, width)) : part;
}

}  // namespace

bool Intervention::wants(std::string_view name) const {
  return std::ranges::any_of(changes_, [&](const Change& c) { return c.name == name; }) ||
         (observer_ != nullptr && observer_->wants(name));
}

void Intervention::visit(std::string_view name, Tensor& value) {
  if (std::ranges::any_of(changes_, [&](const Change& c) { return c.name == name; })) {
    Tensor x = convert(value, DType::f32);
    for (const Change& change : changes_)
      if (change.name == name) x = changed(change, x);
    value = convert(x, value.dtype());
    seen_.emplace_back(name);
  }
  if (observer_ != nullptr && observer_->wants(name)) observer_->visit(name, value);
}

void Intervention::visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) {
  for (const Change& change : changes_) {
    if (change.name != name || (change.head >= 0 && change.head != head)) continue;
    value = changed(change, value);
    seen_.emplace_back(name);
  }
  if (observer_ != nullptr && observer_->wants(name)) observer_->visit_head(name, sequence, head, value);
}

void Intervention::expect_made() const {
  for (const Change& change : changes_)
    check(std::ranges::find(seen_, change.name) != seen_.end(), "this model has no value {}", change.name);
}

std::vector<Change> changes_of_part(const ModelSpec& spec, const std::string& part) {
  constexpr std::string_view kEncoder = "encoder:";
  const auto refuse = [&](const std::string& expected) -> std::vector<Change> {
    fail("'{}': expected {}", part, expected);
  };
  std::string_view text = part;
  const bool both = spec.architecture == Architecture::encoder_decoder,
             of_encoder = spec.architecture == Architecture::encoder || (both && text.starts_with(kEncoder));
  if (both && of_encoder) text.remove_prefix(kEncoder.size());
  const ModelSpec its = of_encoder && both ? spec.encoder_spec() : spec;
  const std::string stack = of_encoder ? "encoder" : "decoder";
  const int64_t layers = of_encoder && both ? spec.encoder_layers : spec.layers;
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  std::vector<int64_t> numbers;
  if (colon != std::string_view::npos) {
    const char *at = text.data() + colon + 1, *end = text.data() + text.size();
    while (at <= end) {
      int64_t n = 0;
      const auto [stop, error] = std::from_chars(at, end, n);
      if (error != std::errc() || n < 0) return refuse("numbers from 0 behind the colon, like head:2.5");
      numbers.push_back(n);
      if (stop == end) break;
      if (*stop != '.') return refuse("numbers with a dot between them, like head:2.5");
      at = stop + 1;
    }
  }
  const auto within = [&](int64_t n, int64_t count, const char* of) {
    check(n < count, "'{}': {} {} of {} (they count from 0)", part, of, n, count);
  };
  if (kind == "position" && numbers.size() == 1)
    return {{stack + ".embedding", Change::Kind::zero, {numbers[0]}}};
  const bool of_two = kind == "head" || kind == "neuron";
  if (!(of_two || kind == "attention" || kind == "feed_forward" || kind == "block" ||
        (kind == "cross_attention" && both && !of_encoder)) ||
      numbers.size() != (of_two ? 2U : 1U))
    return refuse(fmt::format("head:L.H, neuron:L.N, attention:L, feed_forward:L, block:L or position:T{}",
                              both ? ", cross_attention:L, or one of these behind encoder:" : ""));
  within(numbers[0], layers, "layer");
  const BlockSpec& block = its.block(numbers[0]);
  const std::string at = fmt::format("{}.block.{}.", stack, numbers[0]), mixer = at + block.mixer.part();
  if (kind == "head") {
    check(block.mixer.attends(), "'{}': layer {} does not attend", part, numbers[0]);
    check(block.attention.head_sizes.empty(), "'{}': the heads of layer {} are of several sizes", part,
          numbers[0]);
    within(numbers[1], block.attention.heads, "head");
    const int64_t d = block.attention.d_vo;
    return {{mixer + ".heads", Change::Kind::zero, {}, numbers[1] * d, d}};
  }
  if (kind == "neuron") {
    check(!its.experts.in_layer(numbers[0]), "'{}': the neurons of layer {} belong to experts", part,
          numbers[0]);
    within(numbers[1], block.hidden, "neuron");
    return {{at + "feed_forward.hidden", Change::Kind::zero, {}, numbers[1], 1}};
  }
  std::vector<Change> out;
  const bool block_of_all = kind == "block",
             has_network = block.hidden > 0 || its.experts.in_layer(numbers[0]);
  check(has_network || kind != "feed_forward", "'{}': layer {} is attention alone", part, numbers[0]);
  if (block_of_all || kind == "attention") out.push_back({mixer + ".branch"});
  if (kind == "cross_attention" || (block_of_all && both && !of_encoder))
    out.push_back({at + "cross_attention.branch"});
  if ((block_of_all && has_network) || kind == "feed_forward") out.push_back({at + "feed_forward.branch"});
  if (block_of_all && its.layer_input_width > 0) out.push_back({at + "layer_input.branch"});
  return out;
}

Tensor logits_of(const Transformer& model, const Tensor& hidden, const ModelInput& input) {
  const ModelSpec& spec = model.spec();
  check(spec.output == Output::tokens || spec.classes() > 0, "output {} has no logits", name_of(spec.output));
  return convert(spec.output == Output::tokens ? model.logits(hidden) : model.classes(hidden, input, {}),
                 DType::f32);
}

Tensor logits_with(const Transformer& model, const ModelInput& input, std::vector<Change> changes) {
  const NoGrad guard;
  Intervention intervention(std::move(changes));
  Context context;
  context.probe = &intervention;
  const Tensor logits = logits_of(model, model.hidden(input, context), input);
  intervention.expect_made();
  return logits;
}

double answer_in(const Tensor& logits, const Question& question) {
  const auto row = logits.row<float>(question.row);
  const auto at = [&](int64_t column) {
    check(column >= 0 && column < logits.width(), "question: column {} of {} logits", column, logits.width());
    return double{row[column]};
  };
  return at(question.column) - (question.instead >= 0 ? at(question.instead) : 0);
}

}  // namespace qkv
