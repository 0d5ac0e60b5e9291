#include "qkv/infer/model_drafter.h"

#include <algorithm>

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

}  // namespace

ModelDrafter::ModelDrafter(const Transformer& model, const ModelSpec& target) : model_(model) {
  const ModelSpec& s = model.spec();
  check(s.architecture == target.architecture && s.order == target.order,
        "draft: a model of another kind ({}, order {}) than the one it drafts for ({}, order {})",
        name_of(s.architecture), name_of(s.order), name_of(target.architecture), name_of(target.order));
  check(s.vocab_size == target.vocab_size && s.source_vocab_size == target.source_vocab_size,
        "draft: a model with {} tokens cannot draft for one with {}", s.vocab_size, target.vocab_size);
  check(continues_in_parts(s), "draft: the model reads a text as a whole, so it cannot draft");
}

std::vector<Tokens> ModelDrafter::draft(std::span<const DraftQuery> queries) {
  std::vector<Tokens> out;
  for (const DraftQuery& q : queries) try {
      out.push_back(draft(q));
    } catch (const Error&) {  // whatever stops a draft need not stop the output
      readings_.erase(q.number);
      out.emplace_back();
    }
  return out;
}

Tokens ModelDrafter::draft(const DraftQuery& q) {
  const Request& r = *q.request;
  Tokens text = r.prompt;
  text.insert(text.end(), q.written.begin(), q.written.end());
  const int64_t n = std::ssize(text), most = std::min(q.most, model_.spec().longest() - n + 1);
  const bool source = !r.source.empty();
  if (most <= 0 || r.features.defined() || !r.globals.empty() ||
      (source && std::ssize(r.source) > model_.spec().encoder_spec().longest()))
    return {};
  const auto fresh = [&] {
    return source ? DecodeState(model_, Sources({r.source})) : DecodeState(model_, 1);
  };
  Reading& reading = readings_.try_emplace(q.number, Reading{{}, fresh()}).first->second;
  // It goes on where the text that it has read is the request's; the last token's logits are wanted.
  const int64_t common =
      std::min(std::ranges::mismatch(reading.tokens, text).in1 - reading.tokens.begin(), n - 1);
  if (common < std::ssize(reading.tokens)) {
    if (reading.state.can_truncate(0, common))
      reading.state.truncate(0, common);
    else
      reading = {{}, fresh()};
    reading.tokens.resize(std::min(common, reading.state.length(0)));
  }
  Tokens written(q.written.begin(), q.written.end()), draft,
      next(text.begin() + std::ssize(reading.tokens), text.end());
  while (true) {
    const bool begins = reading.tokens.empty();
    const auto prompt = static_cast<int32_t>(r.prompt.size());
    const bool prefix = begins && model_.spec().order == Order::prefix;
    PassOptions options;
    if (prefix) options.prefixes = {&prompt, 1};
    const Tensor logits = reading.state.advance({next}, options);
    reading.tokens.insert(reading.tokens.end(), next.begin(), next.end());
    draft.push_back(next_token(logits.row<float>(0), r, written));
    if (std::ssize(draft) == most || std::ranges::find(r.eos, draft.back()) != r.eos.end()) return draft;
    written.push_back(draft.back());
    next = {draft.back()};
  }
}

}  // namespace qkv
