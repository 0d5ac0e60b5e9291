#include "qkv/trace/intervention.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "qkv/autograd/graph.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

// Makes one change in x, f32 [N, D].
void make(const Change& change, Tensor& x) {
  const int64_t rows = x.rows(), width = x.width(), columns = change.columns > 0 ? change.columns : width;
  check(change.column >= 0 && change.column + columns <= width, "{}: columns {} to {} of {}", change.name,
        change.column, change.column + columns, width);
  const bool reads = change.kind == Change::Kind::set || change.kind == Change::Kind::add;
  check(!reads || (change.with.defined() && change.with.width() == width &&
                   (change.with.rows() == rows || change.with.rows() == 1)),
        "{}: a change of [{}, {}] needs as many rows, or one, got {}", change.name, rows, width,
        change.with.defined() ? fmt::format("{}", change.with.shape()) : "none");
  std::vector<double> mean(static_cast<size_t>(width), 0);
  if (change.kind == Change::Kind::mean)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c) mean[c] += x.row<float>(r)[c] / static_cast<double>(rows);
  const auto make_row = [&](int64_t r) {
    check(r >= 0 && r < rows, "{}: row {} of {}", change.name, r, rows);
    const auto to = x.mutable_row<float>(r);
    for (int64_t c = change.column; c < change.column + columns; ++c) {
      const float given = reads ? change.with.row<float>(change.with.rows() == 1 ? 0 : r)[c] : 0;
      switch (change.kind) {
        case Change::Kind::zero:
          to[c] = 0;
          break;
        case Change::Kind::mean:
          to[c] = static_cast<float>(mean[c]);
          break;
        case Change::Kind::set:
          to[c] = given;
          break;
        case Change::Kind::add:
          to[c] += given;
          break;
      }
    }
  };
  if (change.rows.empty())
    for (int64_t r = 0; r < rows; ++r) make_row(r);
  for (const int64_t r : change.rows) make_row(r);
}

}  // namespace

bool Intervention::wants(std::string_view name) const {
  return std::ranges::any_of(changes_, [&](const Change& c) { return c.name == name; }) ||
         (observer_ != nullptr && observer_->wants(name));
}

void Intervention::visit(std::string_view name, Tensor& value) {
  if (std::ranges::any_of(changes_, [&](const Change& c) { return c.name == name; })) {
    Tensor x = convert(value, DType::f32);
    if (x.dtype() == value.dtype()) x = value.clone();  // others may read its memory
    for (const Change& change : changes_)
      if (change.name == name) make(change, x);
    value = convert(x, value.dtype());
    seen_.emplace_back(name);
  }
  if (observer_ != nullptr && observer_->wants(name)) observer_->visit(name, value);
}

void Intervention::visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) {
  if (observer_ != nullptr && observer_->wants(name)) observer_->visit_head(name, sequence, head, value);
}

std::vector<std::string> Intervention::unmade() const {
  std::vector<std::string> out;
  for (const Change& change : changes_)
    if (std::ranges::find(seen_, change.name) == seen_.end()) out.push_back(change.name);
  return out;
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
  const bool block_of_all = kind == "block";
  if (block_of_all || kind == "attention") out.push_back({mixer + ".branch"});
  if (kind == "cross_attention" || (block_of_all && both && !of_encoder))
    out.push_back({at + "cross_attention.branch"});
  if (block_of_all || kind == "feed_forward") out.push_back({at + "feed_forward.branch"});
  if (block_of_all && its.layer_input_width > 0) out.push_back({at + "layer_input.branch"});
  return out;
}

Tensor logits_with(const Transformer& model, const ModelInput& input, std::vector<Change> changes) {
  const NoGrad guard;
  Intervention intervention(std::move(changes));
  Context context;
  context.probe = &intervention;
  const Tensor logits = convert(model.logits(model.hidden(input, context)), DType::f32);
  const std::vector<std::string> unmade = intervention.unmade();
  check(unmade.empty(), "this model has no value {}", fmt::join(unmade, ", "));
  return logits;
}

}  // namespace qkv
