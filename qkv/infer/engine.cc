#include "qkv/infer/engine.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "qkv/nn/recurrent_state.h"
#include "qkv/ops/parts.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kLeastKept = 8;   // tokens that are worth a copy
constexpr int64_t kFollowing = 16;  // tokens that must have room beside a prompt
constexpr int64_t kMostDrafted = EngineOptions::kMostDrafted;
static_assert(kMostDrafted < RecurrentState::kKept);  // recurrences go back by no more
constexpr int64_t kFirstDraft = 4;                    // tokens

}  // namespace

struct Engine::Sequence {
  int64_t number;
  Request request;
  Tokens written = {};
  int64_t drafted = kFirstDraft;  // tokens of the next draft
};

Engine::Engine(const Ensemble& models, const EngineOptions& options)
    : models_(models),
      options_(options),
      bounded_(models.spec().architecture == Architecture::encoder_decoder ||
               models.spec().order == Order::prefix),
      looks_back_(
          std::ranges::all_of(models.models(), [](const Transformer* m) { return looks_back(m->spec()); })),
      drafts_(options.drafter != nullptr && options.cached &&
              std::ranges::all_of(models.models(),
                                  [](const Transformer* m) { return continues_in_parts(m->spec()); })),
      state_(models, 0) {
  check(options.drafted_tokens > 0 && options.drafted_tokens <= kMostDrafted,
        "engine: drafts have 1 to {} tokens, got {}", kMostDrafted, options.drafted_tokens);
  check(options.sequences > 0 && options.prompt_tokens > 0 && options.remembered_tokens >= 0,
        "engine: expected room for sequences and for tokens of prompts");
  check(options.cached || models.spec().order != Order::prefix, "generate: a prefix LM remembers its prompt");
}

Engine::~Engine() = default;

int64_t Engine::add(Request request) {
  const ModelSpec& spec = models_.spec();
  const int64_t number = added_;
  check_options(request.sampler);
  check(!request.prompt.empty(), "generate: prompt {} is empty: expected at least one token", number);
  const bool conditioned = spec.architecture == Architecture::encoder_decoder;
  check(!conditioned || !request.source.empty(), "generate: prompt {} has no source", number);
  check(conditioned || request.source.empty(), "generate: prompt {} has a source, but the model reads none",
        number);
  check(spec.order != Order::prefix || std::ssize(request.prompt) < spec.longest(),
        "generate: prompt {} has {} tokens, which leave no room in a context of {}", number,
        request.prompt.size(), spec.longest());
  ++added_;
  if (request.max_new_tokens > 0) wait(SequencePtr(new Sequence{number, std::move(request)}));
  return number;
}

void Engine::wait(SequencePtr sequence) {
  const auto before = [](const SequencePtr& a, const SequencePtr& b) {
    const int64_t p = a->request.priority, q = b->request.priority;
    return p != q ? p > q : a->number < b->number;
  };
  waiting_.insert(std::ranges::upper_bound(waiting_, sequence, before), std::move(sequence));
}

void Engine::cancel(int64_t request) {
  const auto is_it = [&](const SequencePtr& s) { return s->number == request; };
  std::erase_if(waiting_, is_it);
  forget_drafts(request);
  if (const auto at = std::ranges::find_if(reading_.requests, is_it); at != reading_.requests.end()) {
    reading_.rows.erase(reading_.rows.begin() + (at - reading_.requests.begin()));
    reading_.requests.erase(at);
    if (reading_.requests.empty()) reading_ = {};
  }
  if (const auto at = std::ranges::find_if(active_, is_it); at != active_.end()) {
    Tokens kept(active_.size());
    std::iota(kept.begin(), kept.end(), 0);
    kept.erase(kept.begin() + (at - active_.begin()));
    active_.erase(at);
    state_.reorder(kept);
  }
}

int64_t Engine::remembered() const {
  int64_t tokens = 0;
  for (int64_t s = 0; s < std::ssize(active_); ++s) tokens += state_.length(s);
  for (const Tokens& of : reading_.tokens) tokens += std::ssize(of);
  return tokens;
}

int64_t Engine::kept() const {
  int64_t tokens = 0;
  for (const Kept& k : kept_) tokens += std::ssize(k.tokens);
  return tokens;
}

std::pair<std::list<Engine::Kept>::iterator, int64_t> Engine::find_kept(const Tokens& tokens) {
  auto best = kept_.end();
  int64_t longest = 0;
  for (auto k = kept_.begin(); k != kept_.end(); ++k) {
    const auto end = std::ranges::mismatch(k->tokens, tokens).in2;
    const int64_t common = std::min(end - tokens.begin(), std::ssize(tokens) - 1);
    if (common < kLeastKept || common <= longest || !k->state.can_truncate(0, common)) continue;
    best = k;
    longest = common;
  }
  return {best, longest};
}

void Engine::keep(const Sequence& s, const EnsembleState& state, int32_t at) {
  if (options_.kept_tokens == 0 || !looks_back_ || bounded_) return;
  Tokens tokens = s.request.prompt;
  tokens.insert(tokens.end(), s.written.begin(), s.written.end());
  const int64_t length = state.length(at);
  if (length + 1 != std::ssize(tokens)) return;  // its window has moved
  tokens.pop_back();
  if (length < kLeastKept || length > options_.kept_tokens) return;
  const auto begins_with = [](const Tokens& a, const Tokens& b) {
    return a.size() >= b.size() && std::equal(b.begin(), b.end(), a.begin());
  };
  for (const Kept& k : kept_)
    if (begins_with(k.tokens, tokens)) return;
  std::erase_if(kept_, [&](const Kept& k) { return begins_with(tokens, k.tokens); });
  kept_.push_front({std::move(tokens), EnsembleState(models_, 0)});
  kept_.front().state.join(state, std::vector<int32_t>{at});
  for (int64_t all = kept(); all > options_.kept_tokens; kept_.pop_back())
    all -= std::ssize(kept_.back().tokens);
}

void Engine::save_kept(PromptCache& cache) const {
  for (const Kept& k : kept_) cache.add(k.tokens, k.state);
}

std::vector<int32_t> Engine::window(const Sequence& s) const {
  Tokens all = s.request.prompt;
  all.insert(all.end(), s.written.begin(), s.written.end());
  const auto context = static_cast<size_t>(models_.spec().longest());
  if (all.size() > context) all.erase(all.begin(), all.end() - static_cast<int64_t>(context));
  return all;
}

int64_t Engine::tokens_of(const Sequence& s) const {
  return std::min(models_.spec().longest(), std::ssize(s.request.prompt) + std::ssize(s.written));
}

// Equal prompts are computed once if this is equal, too. Sources of features, or with global
// tokens, count as different; so do the prompts of a prefix LM with another part that sees itself.
Tokens Engine::source_key(const Sequence& s) const {
  const Request& r = s.request;
  if (r.features.defined() || !r.globals.empty()) return {static_cast<int32_t>(s.number), -1};
  if (models_.spec().order == Order::prefix) return {static_cast<int32_t>(r.prompt.size())};
  return r.source;
}

// Takes requests that wait: as many as are read at once. Equal prompts count once.
void Engine::begin_reading() {
  const bool alone = active_.empty();
  std::map<std::pair<Tokens, Tokens>, int32_t> places;
  Sources sources;
  std::vector<Tensor> features;
  int64_t room = options_.remembered_tokens == 0 ? std::numeric_limits<int64_t>::max()
                                                 : options_.remembered_tokens - remembered(),
          left = options_.prompt_tokens;
  std::pair kept(kept_.end(), int64_t{0});
  while (!waiting_.empty() && std::ssize(active_) + std::ssize(reading_.requests) < options_.sequences) {
    Sequence& next = *waiting_.front();
    const Request& r = next.request;
    const Tokens tokens = window(next);
    const std::pair<Tokens, Tokens> key = {source_key(next), tokens};
    const auto place = places.find(key);
    const bool first = reading_.requests.empty();
    if (first) {
      kept = find_kept(tokens);
      const int64_t least = std::max(kept.second, kLeastKept - 1);
      if (options_.prompt_cache != nullptr && looks_back_ && std::ssize(tokens) > least + 1)
        if (auto found = options_.prompt_cache->find(tokens, least)) {
          kept_.push_front({std::move(found->tokens), std::move(found->state)});
          kept = find_kept(tokens);
        }
      if (kept.second > 0) left = 0;  // it is read alone
    }
    // Some tokens will follow; where there is no room for them, it would soon be interrupted.
    const int64_t remembers = tokens_of(next) + kFollowing, reads = std::ssize(tokens) + std::ssize(r.source);
    if (!(first && alone) && remembers > room) break;
    if (place == places.end() && !first && reads > left) break;
    room -= remembers;
    if (place == places.end()) {
      left -= reads;
      places.emplace(key, static_cast<int32_t>(reading_.tokens.size()));
      if (!r.source.empty()) sources.ids.push_back(r.source), sources.globals.push_back(r.globals);
      if (r.features.defined()) features.push_back(r.features);
      reading_.tokens.push_back(tokens);
      reading_.prefixes.push_back(static_cast<int32_t>(r.prompt.size()));
    }
    reading_.rows.push_back(places.at(key));
    reading_.requests.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  if (reading_.requests.empty()) return;
  if (const auto [from, common] = kept; common > 0) {
    reading_.state.emplace(models_, 0);
    reading_.state->join(from->state, std::vector<int32_t>{0});
    reading_.state->truncate(0, common);
    reading_.read = common;
    spared_ += common;
    kept_.splice(kept_.begin(), kept_, from);
    return;
  }
  // All sources have flags, or none has.
  if (std::ranges::all_of(sources.globals, &Tokens::empty)) sources.globals.clear();
  for (size_t i = 0; i < sources.globals.size(); ++i) sources.globals[i].resize(sources.ids[i].size(), 0);
  if (!features.empty()) sources.features = join_rows(features);
  if (sources.ids.empty())
    reading_.state.emplace(models_, std::ssize(reading_.tokens));
  else
    reading_.state.emplace(models_, sources);
}

// Reads the prompts, or the next part of a single one. When all is read, their requests have their first
// tokens and join the others.
void Engine::read(const Listener& listener) {
  Reading& r = reading_;
  const int64_t length = std::ssize(r.tokens.front());
  Tensor logits;
  if (looks_back_ && r.tokens.size() == 1 && (r.read > 0 || length > options_.prompt_tokens)) {
    const int64_t end = std::min(length, r.read + options_.prompt_tokens);
    logits = r.state->advance({Tokens(r.tokens[0].begin() + r.read, r.tokens[0].begin() + end)});
    r.read = end;
    if (end < length) return;
  } else {
    const bool prefix = models_.spec().order == Order::prefix;
    logits = r.state->advance(r.tokens,
                              prefix ? std::span<const int32_t>(r.prefixes) : std::span<const int32_t>());
  }
  Tokens rows;
  std::vector<SequencePtr> going_on;
  for (size_t i = 0; i < r.requests.size(); ++i)
    if (choose(*r.requests[i], logits.row<float>(r.rows[i]), listener)) {
      rows.push_back(r.rows[i]);
      going_on.push_back(std::move(r.requests[i]));
    } else {
      keep(*r.requests[i], *r.state, r.rows[i]);
    }
  if (active_.empty()) {
    r.state->reorder(rows);
    state_ = std::move(*r.state);
  } else if (!rows.empty()) {
    state_.join(*r.state, rows);
  }
  for (SequencePtr& s : going_on) active_.push_back(std::move(s));
  reading_ = {};
}

bool Engine::choose(Sequence& s, std::span<const float> logits, const Listener& listener) {
  const Request& r = s.request;
  const int32_t token = next_token(logits, r, s.written);
  s.written.push_back(token);
  const int64_t prompt = std::ssize(r.prompt), written = std::ssize(s.written);
  const bool ended = std::ranges::find(r.eos, token) != r.eos.end() ||
                     (bounded_ && prompt + written >= models_.spec().longest()) ||
                     r.rules.full(prompt, written) || r.begun + written >= r.max_new_tokens;
  const bool go_on = !listener || listener({s.number, token, logits, ended});
  return go_on && !ended;
}

// Interrupts sequences until there is room for a token of each.
void Engine::make_room() {
  if (options_.remembered_tokens == 0) return;
  Tokens kept(active_.size());
  std::iota(kept.begin(), kept.end(), 0);
  int64_t wanted = remembered() + std::ssize(active_);
  std::vector<SequencePtr> interrupted;
  while (active_.size() > 1 && wanted > options_.remembered_tokens) {
    const auto last = std::ranges::min_element(
        active_, {}, [](const SequencePtr& s) { return std::pair(s->request.priority, -s->number); });
    const auto at = last - active_.begin();
    wanted -= state_.length(kept[static_cast<size_t>(at)]) + 1;
    interrupted.push_back(std::move(*last));
    active_.erase(last);
    kept.erase(kept.begin() + at);
  }
  if (interrupted.empty()) return;
  state_.reorder(kept);
  for (SequencePtr& s : interrupted) wait(std::move(s));
}

std::vector<Tokens> Engine::drafts() {
  if (!drafts_) return {};
  // The pass itself adds a token to each sequence.
  int64_t room = options_.remembered_tokens == 0
                     ? std::numeric_limits<int64_t>::max()
                     : options_.remembered_tokens - remembered() - std::ssize(active_);
  std::vector<DraftQuery> queries;
  for (size_t i = 0; i < active_.size(); ++i) {
    const Sequence& s = *active_[i];
    const Request& r = s.request;
    const int64_t written = std::ssize(s.written), left = r.max_new_tokens - r.begun - written - 1,
                  fits = models_.spec().longest() - state_.length(static_cast<int64_t>(i)) - 1,
                  most =
                      std::max<int64_t>(0, std::min({s.drafted, options_.drafted_tokens, left, fits, room}));
    room -= most;
    queries.push_back({s.number, &r, s.written, most});
  }
  std::vector<DraftQuery> asked;
  std::ranges::copy_if(queries, std::back_inserter(asked), [](const DraftQuery& q) { return q.most > 0; });
  std::vector<Tokens> answers = options_.drafter->draft(asked), out;
  check(answers.size() == asked.size(), "engine: {} drafts for {} requests", answers.size(), asked.size());
  if (std::ranges::all_of(answers, &Tokens::empty)) return {};
  auto answer = answers.begin();
  for (const DraftQuery& q : queries) {
    out.push_back(q.most > 0 ? std::move(*answer++) : Tokens());
    if (std::ssize(out.back()) > q.most) out.back().resize(static_cast<size_t>(q.most));
  }
  return out;
}

void Engine::decode(const Listener& listener) {
  make_room();
  const std::vector<Tokens> drafted = drafts();
  std::vector<Tokens> next;
  for (size_t i = 0; i < active_.size(); ++i) {
    const auto s = static_cast<int64_t>(i);
    const bool fits = options_.cached && state_.length(s) < models_.spec().longest();
    if (!fits) state_.truncate(s, 0);  // beyond the context all positions shift, so recompute
    next.push_back(fits ? Tokens{active_[i]->written.back()} : window(*active_[i]));
    if (!drafted.empty()) next.back().insert(next.back().end(), drafted[i].begin(), drafted[i].end());
  }
  const Tensor logits = drafted.empty() ? state_.advance(next) : state_.advance_all(next);
  Tokens kept;
  std::vector<SequencePtr> going_on;
  int64_t row = 0;  // that of the sequence's first new logits
  for (size_t i = 0; i < active_.size(); ++i) {
    Sequence& s = *active_[i];
    const auto at = static_cast<int32_t>(i);
    const Tokens draft = drafted.empty() ? Tokens() : drafted[i];
    const int64_t n = std::ssize(draft);
    if (!drafted.empty()) row += std::ssize(next[i]) - n - 1;
    // Drafted tokens count as long as they are those that are chosen.
    int64_t accepted = 0;
    bool go_on = choose(s, logits.row<float>(row), listener);
    for (; accepted < n && go_on && s.written.back() == draft[accepted]; ++accepted)
      go_on = choose(s, logits.row<float>(row + accepted + 1), listener);
    row += n + 1;
    if (accepted < n) state_.truncate(at, state_.length(at) - (n - accepted));
    if (n > 0) s.drafted = accepted == n ? 2 * n : accepted + 1;
    s.drafted = std::min(s.drafted, options_.drafted_tokens);
    ++drafting_.passes;
    drafting_.drafted += n;
    drafting_.accepted += accepted;
    if (go_on) {
      kept.push_back(at);
      going_on.push_back(std::move(active_[i]));
    } else {
      keep(s, state_, at);
      forget_drafts(s.number);
    }
  }
  if (kept.size() < active_.size()) state_.reorder(kept);
  active_ = std::move(going_on);
}

bool Engine::step(const Listener& listener) {
  const NoGrad guard;
  if (reading_.requests.empty()) begin_reading();
  if (reading_.requests.empty() && active_.empty()) return false;
  // Decode first: what has just been read would otherwise take two steps at once.
  if (!active_.empty()) decode(listener);
  if (!reading_.requests.empty()) read(listener);
  return true;
}

}  // namespace qkv
