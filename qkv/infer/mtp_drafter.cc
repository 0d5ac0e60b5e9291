#include "qkv/infer/mtp_drafter.h"

#include <algorithm>

#include "qkv/ops/parts.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

Tensor joined(const Tensor& rows, const Tensor& more) {
  if (!rows.defined()) return more;
  return more.defined() ? join_rows({rows, more}) : rows;
}

// Rows [begin, end) as memory of their own; undefined: none.
Tensor part_of(const Tensor& rows, int64_t begin, int64_t end) {
  return begin < end ? rows.slice_rows(begin, end).clone() : Tensor();
}

}  // namespace

MtpDrafter::MtpDrafter(const Transformer& model) : model_(model) {
  check(model.mtp() != nullptr,
        "draft: the model has no modules of multi-token prediction (model.mtp_layers in its training)");
}

void MtpDrafter::read(int64_t request, int64_t first, const Tensor& rows) {
  const NoGrad guard;
  Reading& r = readings_[request];
  if (r.modules.empty() || first != r.first + r.length) {
    r = {.first = first};
    for (int64_t k = 1; k <= model_.mtp()->count(); ++k)
      r.modules.push_back({model_.mtp()->make_states(k, 1)});
  }
  r.length += rows.dim(0);
  const bool parallel = model_.spec().mtp.form == MtpForm::parallel;
  for (size_t k = 0; k < (parallel ? r.modules.size() : 1); ++k)
    r.modules[k].next = joined(r.modules[k].next, rows.clone());
}

std::vector<Tokens> MtpDrafter::draft(std::span<const DraftQuery> queries) {
  std::vector<Tokens> out;
  for (const DraftQuery& q : queries) out.push_back(draft(q));
  return out;
}

// Rows count from the reading's first token. There is a row of each of the n tokens of text but the last.
// Module k makes rows [its length, n - 1) of h^k from those of h^(k-1). A joined module reads the token k
// places on, which is drafted for the last k - 1 rows: these are made again when it is known.
Tokens MtpDrafter::draft(const DraftQuery& q) {
  const NoGrad guard;
  const auto at = readings_.find(q.number);
  if (at == readings_.end()) return {};
  Reading& reading = at->second;
  const Request& r = *q.request;
  Tokens text = r.prompt;
  text.insert(text.end(), q.written.begin(), q.written.end());
  if (reading.first + reading.length + 1 != std::ssize(text)) return {};  // its window has moved
  text.erase(text.begin(), text.begin() + reading.first);
  const bool joins = model_.spec().mtp.form == MtpForm::joined,
             parallel = model_.spec().mtp.form == MtpForm::parallel;
  Tokens written(q.written.begin(), q.written.end()), draft;
  Tensor drafted;  // rows that the next module reads, but will not keep
  const int64_t rows = reading.length;
  for (int64_t k = 1; k <= std::min(q.most, model_.mtp()->count()); ++k) {
    ModuleState& m = reading.modules[static_cast<size_t>(k - 1)];
    const Tensor x = joined(m.next, drafted);
    if (!x.defined()) return draft;
    Context context;
    context.layout = Layout::of({static_cast<int32_t>(rows - m.length)}, {static_cast<int32_t>(m.length)});
    context.states = &m.states;
    const Tokens ids = joins ? Tokens(text.begin() + m.length + k, text.begin() + rows + k) : Tokens();
    const Tensor h = model_.mtp()->forward(k, x, ids, context);
    const Tensor logits = model_.logits(model_.mtp()->normalized(k, h.slice_rows(h.dim(0) - 1, h.dim(0))));
    const int32_t token = next_token(logits.row<float>(0), r, written);
    draft.push_back(token);
    written.push_back(token);
    text.push_back(token);
    const int64_t before = m.length, known = joins ? std::max<int64_t>(before, rows + 1 - k) : rows;
    const int64_t had = m.next.defined() ? m.next.dim(0) : 0;
    m.next = part_of(x, known - before, had);
    m.length = known;
    m.states.truncate(0, known);
    if (!parallel && k < model_.mtp()->count()) {
      ModuleState& next = reading.modules[static_cast<size_t>(k)];
      next.next = joined(next.next, part_of(h, 0, known - before));
      drafted = part_of(h, known - before, rows - before);
    }
    if (std::ranges::find(r.eos, token) != r.eos.end()) return draft;
  }
  return draft;
}

}  // namespace qkv
