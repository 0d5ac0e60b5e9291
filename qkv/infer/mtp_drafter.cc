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
// places on, which is drafted for the last k - 1 rows: these are made again when it is known. The last joined
// module goes on with its own rows in place of those that will come.
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
  const MtpModules& modules = *model_.mtp();
  const bool joins = model_.spec().mtp.form == MtpForm::joined,
             parallel = model_.spec().mtp.form == MtpForm::parallel;
  Tokens written(q.written.begin(), q.written.end()), draft;
  // Rows of h^k from row `begin` on; the last one's token is drafted.
  const auto read = [&](int64_t k, const Tensor& x, int64_t begin) {
    Context context;
    context.layout = Layout::of({static_cast<int32_t>(x.dim(0))}, {static_cast<int32_t>(begin)});
    context.states = &reading.modules[static_cast<size_t>(k - 1)].states;
    const Tokens ids =
        joins ? Tokens(text.begin() + begin + k, text.begin() + begin + k + x.dim(0)) : Tokens();
    const Tensor h = modules.forward(k, x, ids, context);
    const Tensor logits = model_.logits(modules.normalized(k, h.slice_rows(h.dim(0) - 1, h.dim(0))));
    draft.push_back(next_token(logits.row<float>(0), r, written));
    written.push_back(draft.back());
    text.push_back(draft.back());
    return h;
  };
  const auto complete = [&] {
    return std::ssize(draft) >= q.most ||
           (!draft.empty() && std::ranges::find(r.eos, draft.back()) != r.eos.end());
  };
  Tensor drafted;  // rows that the next module reads, but will not keep
  const int64_t rows = reading.length;
  for (int64_t k = 1; k <= modules.count() && !complete(); ++k) {
    ModuleState& m = reading.modules[static_cast<size_t>(k - 1)];
    const Tensor x = joined(m.next, drafted);
    if (!x.defined()) return draft;
    const Tensor h = read(k, x, m.length);
    const int64_t before = m.length, known = joins ? std::max<int64_t>(before, rows + 1 - k) : rows;
    const int64_t had = m.next.defined() ? m.next.dim(0) : 0;
    m.next = part_of(x, known - before, had);
    m.length = known;
    if (!parallel && k < modules.count()) {
      ModuleState& next = reading.modules[static_cast<size_t>(k)];
      next.next = joined(next.next, part_of(h, 0, known - before));
      drafted = part_of(h, known - before, rows - before);
    }
    Tensor last = h.slice_rows(h.dim(0) - 1, h.dim(0));
    for (int64_t row = rows; joins && k == modules.count() && !complete(); ++row) last = read(k, last, row);
    m.states.truncate(0, known);
  }
  return draft;
}

}  // namespace qkv
