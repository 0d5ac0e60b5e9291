#include "qkv/infer/engine.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "qkv/base/parallel.h"
#include "qkv/models/feature_embedding.h"
#include "qkv/nn/layer_state.h"
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

constexpr int64_t kPageTokens = KeyValueState::kPageRows;

int64_t pages_of(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// Memory of a page of tokens in all layers' states.
int64_t page_bytes(const Ensemble& models) {
  const Tokens page(std::min<int64_t>(kPageTokens, models.spec().longest()), 0);
  EnsembleState state = models.spec().architecture == Architecture::encoder_decoder
                            ? EnsembleState(models, Sources(std::vector<Tokens>{{0}}))
                            : EnsembleState(models, 1);
  const NoGrad guard;
  try {
    state.advance({page});
  } catch (const Error&) {
    throw Error("engine: memory_bytes is for models that read tokens");  // else: images, spectrograms
  }
  return state.bytes();
}

// 0, ..., n - 1
Tokens first_rows(int64_t n) {
  Tokens out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Tokens joined(const std::vector<Tokens>& lists) {
  Tokens out;
  for (const Tokens& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

}  // namespace

struct Engine::Sequence {
  int64_t number;
  Request request;
  Tokens written = {};
  int64_t drafted = kFirstDraft;  // tokens of the next draft
  std::optional<Search> search = {};
  bool looked_up = false;  // in the prompt cache

  int64_t rows() const { return search ? std::ssize(search->beams) : 1; }
  int64_t most_rows() const { return search ? request.search->beams : 1; }
  // The new tokens of a beam, or of the one output.
  const Tokens& output(int64_t beam) const {
    return search ? search->beams[static_cast<size_t>(beam)].tokens : written;
  }
};

// A pass of the model over new tokens.
struct Engine::Pass {
  std::vector<Tokens> tokens = {};  // those that each row of the state is fed
  Tokens wanted = {};               // the number of rows of logits of each
  Tensor logits = {};
  Tensor hidden = {};  // rows of all tokens, if the drafter wants them

  void feed(Tokens fed, int64_t logits_wanted) {
    tokens.push_back(std::move(fed));
    wanted.push_back(static_cast<int32_t>(logits_wanted));
  }
};

// The choice of what follows a request: of a search the best continuations of its beams, else tokens.
struct Engine::Choice {
  std::vector<Continuation> best = {};
  Tokens tokens = {};
};

// The part of a pass that continues active requests.
struct Engine::Decoding {
  std::vector<Tokens> drafts;   // one of each request; none where no request has any
  std::vector<Tokens> states;   // its rows of state_
  std::vector<Tokens> logits;   // its rows of logits: the first follow what has been chosen
  std::vector<int64_t> begins;  // the number of the first token that each is fed
};

Engine::Engine(const Ensemble& models, const EngineOptions& options)
    : models_(models),
      options_(options),
      bounded_(models.spec().architecture == Architecture::encoder_decoder ||
               models.spec().order == Order::prefix),
      shares_(
          std::ranges::all_of(models.models(), [](const Transformer* m) { return looks_back(m->spec()); })),
      drafts_(options.drafter != nullptr && options.cached && !options.attention &&
              std::ranges::all_of(models.models(),
                                  [](const Transformer* m) { return continues_in_parts(m->spec()); })),
      state_(models, 0),
      page_bytes_(options.memory_bytes > 0 ? page_bytes(models) : 0) {
  check(options.drafted_tokens > 0 && options.drafted_tokens <= kMostDrafted,
        "engine: drafts have 1 to {} tokens, got {}", kMostDrafted, options.drafted_tokens);
  check(options.sequences > 0 && options.prompt_tokens > 0 && options.memory_bytes >= 0,
        "engine: expected room for sequences and for tokens of prompts");
  if (options.attention) looks_.emplace(models.spec());
  check(options.cached || models.spec().order != Order::prefix, "generate: a prefix LM remembers its prompt");
}

Engine::~Engine() = default;

int64_t Engine::add(Request request) {
  const ModelSpec& spec = models_.spec();
  const int64_t number = added_;
  check_options(request.sampler);
  if (request.search) {
    const BeamOptions& o = *request.search;
    check_options(o);
    check(o.beams <= options_.sequences, "engine: room for {} sequences, the search has {} beams",
          options_.sequences, o.beams);
    check(options_.cached && !request.mask && o.alternatives == 0,
          "engine: a search has no mask and no alternatives, and needs the cache");
    check(options_.attention || !(o.attention || o.coverage_penalty > 0),
          "engine: a search asks for attention, which EngineOptions::attention turns on");
    check(std::ssize(request.prompt) <= spec.longest(),
          "decode: sequence {} would have {} tokens, the context is {}", number, request.prompt.size(),
          spec.longest());
  }
  check(!request.prompt.empty(), "generate: prompt {} is empty: expected at least one token", number);
  const bool conditioned = spec.architecture == Architecture::encoder_decoder;
  check(!conditioned || !request.source.empty(), "generate: prompt {} has no source", number);
  check(conditioned || request.source.empty(), "generate: prompt {} has a source, but the model reads none",
        number);
  check(spec.order != Order::prefix || std::ssize(request.prompt) < spec.longest(),
        "generate: prompt {} has {} tokens, which leave no room in a context of {}", number,
        request.prompt.size(), spec.longest());
  check(request.prefix >= 0 && request.prefix <= std::ssize(request.prompt),
        "generate: prompt {} has {} tokens, got a prefix of {}", number, request.prompt.size(),
        request.prefix);
  const auto expect_ids = [&](const Tokens& ids, const char* what, int64_t vocabulary) {
    for (const int32_t id : ids)
      check((id >= 0 && id < vocabulary) || (id == kFeature && request.features.defined()),
            "generate: {} {}: there is no token id {}: the model has {}", what, number, id, vocabulary);
  };
  expect_ids(request.prompt, "prompt", spec.vocab_size);
  expect_ids(request.sampler.excluded, "ids excluded from prompt", spec.vocab_size);
  check(!request.adapter || models_.models().size() == 1, "generate: adapters are not for ensembles");
  if (conditioned) {
    expect_ids(request.source, "source",
               spec.source_vocab_size > 0 ? spec.source_vocab_size : spec.vocab_size);
    check(std::ssize(request.source) <= spec.encoder_spec().longest(),
          "decode: source {} has {} tokens, the context is {}", number, request.source.size(),
          spec.encoder_spec().longest());
  }
  ++added_;
  const int64_t most = request.search ? request.search->max_new_tokens : request.max_new_tokens;
  if (most <= 0) return number;
  SequencePtr sequence(new Sequence{number, std::move(request)});
  Request& r = sequence->request;
  if (r.search) sequence->search = begin_search(spec, r.prompt, r.begun, std::move(r.wished), *r.search);
  wait(std::move(sequence));
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
    if (reading_.requests.empty()) {
      reading_ = {};
      arrange(first_rows(active_rows()));
    }
  }
  if (const auto at = std::ranges::find_if(active_, is_it); at != active_.end()) {
    std::vector<Tokens> rows = rows_of_active();
    rows.erase(rows.begin() + (at - active_.begin()));
    active_.erase(at);
    arrange(joined(rows));
  }
}

int64_t Engine::active_rows() const {
  int64_t rows = 0;
  for (const SequencePtr& s : active_) rows += s->rows();
  return rows;
}

void Engine::arrange(Tokens rows) {
  const auto active = static_cast<int32_t>(rows.size());
  for (const Kept& k : kept_) rows.push_back(k.row);
  for (int64_t i = reading_rows(); i > 0; --i) rows.push_back(static_cast<int32_t>(state_.sequences() - i));
  if (rows.empty())
    state_ = EnsembleState(models_, 0);  // sources would stay
  else if (rows != first_rows(state_.sequences()))
    state_.reorder(rows);
  int32_t next = active;
  for (Kept& k : kept_) k.row = next++;
}

std::vector<Tokens> Engine::rows_of_active() const {
  std::vector<Tokens> out;
  int32_t next = 0;
  for (const SequencePtr& s : active_) {
    Tokens& rows = out.emplace_back(static_cast<size_t>(s->rows()));
    for (int32_t& row : rows) row = next++;
  }
  return out;
}

std::vector<const AdapterWeights*> Engine::adapters_of_rows() const {
  std::vector<const AdapterWeights*> out;
  for (const SequencePtr& s : active_)
    out.insert(out.end(), static_cast<size_t>(s->rows()), s->request.adapter.get());
  out.resize(static_cast<size_t>(state_.sequences()));
  for (int64_t i = 0; i < reading_rows(); ++i)
    out[static_cast<size_t>(state_.sequences() - reading_rows() + i)] =
        reading_.adapters[static_cast<size_t>(i)];
  return out;
}

int64_t Engine::kept() const {
  int64_t tokens = 0;
  for (const Kept& k : kept_) tokens += std::ssize(k.tokens);
  return tokens;
}

std::pair<std::list<Engine::Kept>::iterator, int64_t> Engine::find_kept(const Tokens& tokens,
                                                                        const AdapterWeights* adapter) {
  auto best = kept_.end();
  int64_t longest = 0;
  for (auto k = kept_.begin(); k != kept_.end(); ++k) {
    if (k->adapter.get() != adapter) continue;
    const auto end = std::ranges::mismatch(k->tokens, tokens).in2;
    const int64_t common = std::min(end - tokens.begin(), std::ssize(tokens) - 1);
    if (common < kLeastKept || common <= longest || !state_.can_truncate(k->row, common)) continue;
    best = k;
    longest = common;
  }
  return {best, longest};
}

void Engine::keep(const Sequence& s, int32_t row) {
  if (options_.kept_tokens == 0 || !shares_) return;
  Tokens tokens = s.request.prompt;
  tokens.insert(tokens.end(), s.written.begin(), s.written.end());
  const int64_t length = state_.length(row);
  if (length + 1 != std::ssize(tokens)) return;  // its window has moved
  tokens.pop_back();
  if (length < kLeastKept || length > options_.kept_tokens) return;
  const auto begins_with = [](const Tokens& a, const Tokens& b) {
    return a.size() >= b.size() && std::equal(b.begin(), b.end(), a.begin());
  };
  const auto alike = [&](const Kept& k) { return k.adapter == s.request.adapter; };
  for (const Kept& k : kept_)
    if (alike(k) && begins_with(k.tokens, tokens)) return;
  std::erase_if(kept_, [&](const Kept& k) { return alike(k) && begins_with(tokens, k.tokens); });
  kept_.push_front({std::move(tokens), row, s.request.adapter});
  trim();
}

void Engine::trim() {
  for (int64_t all = kept(); all > options_.kept_tokens && kept_.size() > 1; kept_.pop_back())
    all -= std::ssize(kept_.back().tokens);
}

void Engine::save_kept(PromptCache& cache) const {
  for (auto k = kept_.rbegin(); k != kept_.rend(); ++k) {  // the last used one becomes the newest file
    if (k->adapter) continue;                              // files are of the model alone
    EnsembleState alone(models_, 0);
    alone.join(state_, std::vector<int32_t>{k->row});
    cache.add(k->tokens, alone);
  }
}

std::vector<int32_t> Engine::window(const Sequence& s, int64_t beam) const {
  Tokens all = s.request.prompt;
  const Tokens& output = s.output(beam);
  all.insert(all.end(), output.begin(), output.end());
  const auto context = static_cast<size_t>(models_.spec().longest());
  if (all.size() > context) all.erase(all.begin(), all.end() - static_cast<int64_t>(context));
  return all;
}

int64_t Engine::bytes_of(const Sequence& s) const {
  const int64_t read = std::ssize(s.request.prompt) + std::ssize(s.output(0)),
                row = pages_of(std::min(models_.spec().longest(), read + kFollowing));
  return page_bytes_ * (s.most_rows() * row + pages_of(std::ssize(s.request.source)));
}

int64_t Engine::step_bytes() const {
  const int64_t pages = drafts_ ? 2 : 1, longest = models_.spec().longest();
  int64_t bytes = 0;
  for (int64_t row = 0; row < active_rows(); ++row)
    bytes += page_bytes_ * (state_.length(row) < longest ? pages : pages_of(longest));  // its window moves
  return bytes;
}

int64_t Engine::unread_bytes() const {
  int64_t bytes = 0;
  for (const SequencePtr& s : reading_.requests) bytes += bytes_of(*s);
  int64_t read = reading_.state ? reading_.state->bytes() : 0;
  for (int64_t i = reading_rows(); i > 0; --i)
    read += page_bytes_ * pages_of(state_.length(state_.sequences() - i));
  return std::max<int64_t>(0, bytes - read);
}

bool Engine::has_room(int64_t bytes, std::list<Kept>::const_iterator needed) {
  while (this->bytes() + bytes > options_.memory_bytes) {
    if (kept_.empty() || std::prev(kept_.cend()) == needed) return false;
    kept_.pop_back();
    arrange(first_rows(active_rows()));
  }
  return true;
}

// Equal prompts are computed once if this is equal, too. Sources of features, or with global
// tokens, count as different; so do the prompts of a prefix LM with another part that sees itself.
Tokens Engine::source_key(const Sequence& s) const {
  const Request& r = s.request;
  if (r.features.defined() || !r.globals.empty()) return {static_cast<int32_t>(s.number), -1};
  if (models_.spec().order == Order::prefix)
    return {static_cast<int32_t>(r.prefix > 0 ? r.prefix : std::ssize(r.prompt))};
  return r.source;
}

// Takes requests that wait: as many as are read at once. Equal prompts count once.
void Engine::begin_reading() {
  const bool alone = active_.empty();
  std::map<std::tuple<const AdapterWeights*, Tokens, Tokens>, int32_t> places;
  Sources sources;
  std::vector<Tensor> features;
  const bool bounded = options_.memory_bytes > 0;
  int64_t promised = 0, left = options_.prompt_tokens;
  std::pair kept(kept_.end(), int64_t{0});
  int64_t sequences = 0;
  for (const SequencePtr& s : active_) sequences += s->most_rows();
  while (!waiting_.empty() && sequences + waiting_.front()->most_rows() <= options_.sequences) {
    Sequence& next = *waiting_.front();
    const Request& r = next.request;
    const Tokens source = source_key(next);
    std::vector<Tokens> texts;
    int64_t reads = 0;
    for (int64_t beam = 0; beam < next.rows(); ++beam) {
      texts.push_back(window(next, beam));
      if (!places.contains({r.adapter.get(), source, texts.back()}))
        reads += std::ssize(texts.back()) + std::ssize(r.source);
    }
    const bool first = reading_.requests.empty();
    if (first && texts.size() == 1) {
      kept = find_kept(texts[0], r.adapter.get());
      const int64_t least = std::max(kept.second, kLeastKept - 1);
      if (options_.prompt_cache != nullptr && shares_ && !next.looked_up && !r.adapter &&
          std::ssize(texts[0]) > least + 1) {
        next.looked_up = true;
        if (auto found = options_.prompt_cache->find(texts[0], least)) {
          state_.join(found->state, std::vector<int32_t>{0});
          kept_.push_front({std::move(found->tokens), static_cast<int32_t>(state_.sequences() - 1)});
          kept = find_kept(texts[0], nullptr);
        }
      }
      if (kept.second > 0) left = 0;  // it is read alone
    }
    // Some tokens will follow; where there is no room for them, it would soon be interrupted.
    if (kept.second > 0) kept_.splice(kept_.begin(), kept_, kept.first);  // the last to go
    if (bounded && !has_room(promised + bytes_of(next) + step_bytes(), kept.first) && !(first && alone))
      break;
    if (reads > 0 && !first && reads > left) break;
    promised += bytes_of(next);
    left -= reads;
    sequences += next.most_rows();
    Tokens& rows = reading_.rows.emplace_back();
    for (Tokens& text : texts) {
      const auto place = static_cast<int32_t>(reading_.tokens.size());
      const auto [at, fresh] = places.emplace(std::tuple(r.adapter.get(), source, text), place);
      rows.push_back(at->second);
      if (!fresh) continue;
      if (!r.source.empty()) sources.ids.push_back(r.source), sources.globals.push_back(r.globals);
      if (r.features.defined()) features.push_back(r.features);
      reading_.tokens.push_back(std::move(text));
      reading_.adapters.push_back(r.adapter.get());
      reading_.prefixes.push_back(static_cast<int32_t>(r.prefix > 0 ? r.prefix : std::ssize(r.prompt)));
    }
    reading_.requests.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  if (reading_.requests.empty()) return;
  if (const auto [from, common] = kept; common > 0) {
    Tokens rows = first_rows(state_.sequences());
    rows.push_back(from->row);
    state_.reorder(rows);
    state_.truncate(state_.sequences() - 1, common);
    reading_.read = common;
    reading_.rows_of_state = 1;
    spared_ += common;
    if (options_.kept_tokens == 0) kept_.erase(from);  // it came from a prompt cache
    trim();
    arrange(first_rows(active_rows()));  // without the rows of what is no longer kept
    return;
  }
  // All sources have flags, or none has.
  if (std::ranges::all_of(sources.globals, &Tokens::empty)) sources.globals.clear();
  for (size_t i = 0; i < sources.globals.size(); ++i) sources.globals[i].resize(sources.ids[i].size(), 0);
  if (!features.empty()) sources.features = join_rows(features);
  if (shares_) {
    const int64_t rows = reading_.rows_of_state = std::ssize(reading_.tokens);
    state_.join(EnsembleState(models_, rows), first_rows(rows));
  } else if (sources.ids.empty()) {
    reading_.state.emplace(models_, std::ssize(reading_.tokens));
  } else {
    reading_.state.emplace(models_, sources);
  }
}

// Feeds the prompts, or the next part of a single one.
void Engine::feed_prompts(Pass& pass) const {
  const bool in_parts = shares_ && reading_.tokens.size() == 1;
  for (const Tokens& text : reading_.tokens) {
    const auto begin = text.begin() + (in_parts ? reading_.read : 0);
    const int64_t left = text.end() - begin, fed = in_parts ? std::min(left, options_.prompt_tokens) : left;
    pass.feed(Tokens(begin, begin + fed), fed == left ? 1 : 0);
  }
}

// Takes what the pass has made of the prompts, which it was fed last. When all is read, their requests have
// their first tokens and join the others.
void Engine::take_prompts(const Pass& pass, const Listener& listener) {
  Reading& r = reading_;
  const int64_t first = std::exchange(r.read, r.read + std::ssize(pass.tokens.back()));
  if (pass.hidden.defined()) show_rows_of_prompts(pass, first);
  if (pass.wanted.back() == 0) return;
  const auto base = static_cast<int32_t>(shares_ ? state_.sequences() - reading_rows() : 0);
  const auto first_logits = static_cast<int32_t>(pass.logits.rows() - std::ssize(r.tokens));
  std::vector<Tokens> rows_of_logits = r.rows;
  for (Tokens& of_request : rows_of_logits)
    for (int32_t& row : of_request) row += first_logits;
  const std::vector<Choice> chosen = choices(r.requests, {}, rows_of_logits, pass.logits);
  Tokens rows;
  std::vector<SequencePtr> going_on;
  for (size_t i = 0; i < r.requests.size(); ++i) {
    Sequence& s = *r.requests[i];
    const int32_t row = base + r.rows[i][0];
    if (s.search) {
      for (const int32_t origin : grow(s, chosen[i].best, r.rows[i], listener)) rows.push_back(base + origin);
      if (!s.search->beams.empty()) going_on.push_back(std::move(r.requests[i]));
    } else if (take(s, chosen[i].tokens[0], pass.logits.row<float>(rows_of_logits[i][0]), listener)) {
      rows.push_back(row);
      going_on.push_back(std::move(r.requests[i]));
    } else {
      keep(s, row);
      forget_drafts(s.number);
    }
  }
  if (!shares_) {
    if (!rows.empty() && active_.empty()) {
      r.state->reorder(rows);
      state_ = std::move(*r.state);
    } else if (!rows.empty()) {
      state_.join(*r.state, rows);
    }
    reading_ = {};
  } else {
    Tokens all = first_rows(active_rows());
    all.insert(all.end(), rows.begin(), rows.end());
    reading_ = {};
    arrange(std::move(all));
  }
  for (SequencePtr& s : going_on) active_.push_back(std::move(s));
}

bool Engine::shows_rows() const {
  return drafts_ && options_.drafter->reads_rows();
}

void Engine::show_rows_of_prompts(const Pass& pass, int64_t first) {
  std::vector<int64_t> offsets = {0};
  for (const Tokens& tokens : pass.tokens) offsets.push_back(offsets.back() + std::ssize(tokens));
  for (size_t i = 0; i < reading_.requests.size(); ++i) {
    const Sequence& s = *reading_.requests[i];
    const auto at = pass.tokens.size() - reading_.tokens.size() + static_cast<size_t>(reading_.rows[i][0]);
    if (!s.search)
      options_.drafter->read(s.number, first, pass.hidden.slice_rows(offsets[at], offsets[at + 1]));
  }
}

bool Engine::ends(const Request& r, int32_t token, int64_t written) const {
  const int64_t prompt = std::ssize(r.prompt);
  return std::ranges::find(r.eos, token) != r.eos.end() ||
         (bounded_ && prompt + written >= models_.spec().longest()) || r.rules.full(prompt, written) ||
         r.begun + written >= r.max_new_tokens;
}

bool Engine::take(Sequence& s, int32_t token, std::span<const float> logits, const Listener& listener) {
  s.written.push_back(token);
  const bool last = ends(s.request, token, std::ssize(s.written));
  const bool go_on = !listener || listener({s.number, token, logits, last});
  return go_on && !last;
}

std::vector<Engine::Choice> Engine::choices(std::span<const SequencePtr> requests,
                                            std::span<const Tokens> drafts, std::span<const Tokens> rows,
                                            const Tensor& logits) const {
  std::vector<Choice> out(requests.size());
  parallel_for(std::ssize(requests), 1, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const Sequence& s = *requests[static_cast<size_t>(i)];
      if (s.search) {
        out[i].best = best_candidates(*s.search, logits, rows[i], *s.request.search);
        continue;
      }
      const Tokens draft = drafts.empty() ? Tokens() : drafts[i];
      Tokens written = s.written, &tokens = out[i].tokens;
      for (const int32_t row : rows[i]) {
        tokens.push_back(next_token(logits.row<float>(row), s.request, written));
        written.push_back(tokens.back());
        if (tokens.size() > draft.size() || tokens.back() != draft[tokens.size() - 1] ||
            ends(s.request, tokens.back(), std::ssize(written)))
          break;
      }
    }
  });
  return out;
}

std::vector<int32_t> Engine::grow(Sequence& s, const std::vector<Continuation>& best,
                                  std::span<const int32_t> rows, const Listener& listener) {
  const BeamOptions& o = *s.request.search;
  const AttentionRows* looks = o.attention || o.coverage_penalty > 0 ? &*looks_ : nullptr;
  Tokens out = qkv::grow(*s.search, best, looks, rows, o);
  for (int32_t& origin : out) origin = rows[static_cast<size_t>(origin)];
  if (out.empty() && listener) listener({s.number, -1, {}, true, s.search->done});
  return out;
}

// Interrupts sequences until there is room for a token of each.
void Engine::make_room() {
  if (options_.memory_bytes == 0) return;
  const auto rank = [](const SequencePtr& s) { return std::pair(s->request.priority, -s->number); };
  while (!has_room(step_bytes() + unread_bytes(), kept_.cend())) {
    if (active_.size() + reading_.requests.size() <= 1 || active_.empty()) return;
    const auto last = std::ranges::min_element(active_, {}, rank);
    const auto unread = std::ranges::min_element(reading_.requests, {}, rank);
    if (unread != reading_.requests.end() && rank(*unread) < rank(*last)) {
      std::vector<SequencePtr> again = std::move(reading_.requests);
      reading_ = {};
      arrange(first_rows(active_rows()));
      for (SequencePtr& s : again) wait(std::move(s));
      continue;
    }
    if (active_.size() == 1) return;
    std::vector<Tokens> rows = rows_of_active();
    rows.erase(rows.begin() + (last - active_.begin()));
    SequencePtr interrupted = std::move(*last);
    active_.erase(last);
    arrange(joined(rows));
    wait(std::move(interrupted));
  }
}

std::vector<Tokens> Engine::drafts() {
  if (!drafts_ || active_.empty()) return {};
  const std::vector<Tokens> rows = rows_of_active();
  std::vector<DraftQuery> queries;
  for (size_t i = 0; i < active_.size(); ++i) {
    const Sequence& s = *active_[i];
    if (s.search) {
      queries.push_back({});
      continue;
    }
    const Request& r = s.request;
    const int64_t written = std::ssize(s.written), left = r.max_new_tokens - r.begun - written - 1,
                  fits = models_.spec().longest() - state_.length(rows[i][0]) - 1,
                  most = std::max<int64_t>(0, std::min({s.drafted, options_.drafted_tokens, left, fits}));
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
    Tokens& draft = out.back();
    if (std::ssize(draft) > q.most) draft.resize(static_cast<size_t>(q.most));
    const int64_t vocabulary = models_.spec().vocab_size;
    draft.erase(std::ranges::find_if(draft, [&](int32_t id) { return id < 0 || id >= vocabulary; }),
                draft.end());
  }
  return out;
}

// Feeds each active request its last token and its draft.
Engine::Decoding Engine::feed_active(Pass& pass) {
  Decoding d{drafts(), rows_of_active(), std::vector<Tokens>(active_.size()), {}};
  int32_t row = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    const Sequence& s = *active_[i];
    const Tokens draft = d.drafts.empty() ? Tokens() : d.drafts[i];
    for (const int32_t at : d.states[i]) {
      const bool fits = options_.cached && state_.length(at) < models_.spec().longest();
      if (!fits) state_.truncate(at, 0);  // beyond the context all positions shift, so recompute
      if (at == d.states[i][0]) d.begins.push_back(state_.length(at));
      Tokens fed = fits ? Tokens{s.output(at - d.states[i][0]).back()} : window(s);
      for (size_t k = 0; k <= draft.size(); ++k) d.logits[i].push_back(row++);
      fed.insert(fed.end(), draft.begin(), draft.end());
      pass.feed(std::move(fed), std::ssize(draft) + 1);
    }
  }
  for (size_t k = 0; k < kept_.size(); ++k) pass.feed({}, 0);
  return d;
}

// Takes the next tokens of active requests from a pass that was fed them first.
void Engine::take_decoded(const Decoding& d, const Pass& pass, const Listener& listener) {
  const std::vector<Choice> chosen = choices(active_, d.drafts, d.logits, pass.logits);
  Tokens going_on_with;
  std::vector<SequencePtr> going_on;
  int64_t end = 0;  // behind the tokens that each was fed
  for (size_t i = 0; i < active_.size(); ++i) {
    Sequence& s = *active_[i];
    const int32_t at = d.states[i][0];
    const int64_t begin = end;
    for (const int32_t state : d.states[i]) end += std::ssize(pass.tokens[static_cast<size_t>(state)]);
    if (s.search) {
      for (const int32_t state : grow(s, chosen[i].best, d.states[i], listener))
        going_on_with.push_back(state);
      if (!s.search->beams.empty()) going_on.push_back(std::move(active_[i]));
    } else if (accept(s, at, d.drafts.empty() ? 0 : std::ssize(d.drafts[i]), chosen[i].tokens, d.logits[i],
                      pass.logits, listener)) {
      if (pass.hidden.defined()) {
        const int64_t stays = state_.length(at) - d.begins[i];
        options_.drafter->read(s.number, d.begins[i], pass.hidden.slice_rows(begin, begin + stays));
      }
      going_on_with.push_back(at);
      going_on.push_back(std::move(active_[i]));
    } else {
      keep(s, at);
      forget_drafts(s.number);
    }
  }
  active_ = std::move(going_on);
  arrange(std::move(going_on_with));
}

bool Engine::accept(Sequence& s, int32_t at, int64_t drafted, const Tokens& tokens,
                    std::span<const int32_t> rows, const Tensor& logits, const Listener& listener) {
  bool go_on = true;
  int64_t taken = 0;
  for (; taken < std::ssize(tokens) && go_on; ++taken)
    go_on = take(s, tokens[taken], logits.row<float>(rows[taken]), listener);
  const int64_t accepted = taken - 1;
  if (accepted < drafted) state_.truncate(at, state_.length(at) - (drafted - accepted));
  if (drafted > 0) s.drafted = accepted == drafted ? 2 * drafted : accepted + 1;
  s.drafted = std::min(s.drafted, options_.drafted_tokens);
  ++drafting_.passes;
  drafting_.drafted += drafted;
  drafting_.accepted += accepted;
  return go_on;
}

// Decodes, and reads the prompts that are rows of the same state.
void Engine::run_active(const Listener& listener) {
  const bool reads = shares_ && !reading_.requests.empty();
  Pass pass;
  const Decoding decoding = feed_active(pass);
  if (reads) feed_prompts(pass);
  advance(state_, pass, adapters_of_rows());
  take_decoded(decoding, pass, listener);
  if (reads) take_prompts(pass, listener);
}

// Prompts that have a state of their own.
void Engine::run_prompts(const Listener& listener) {
  Pass pass;
  feed_prompts(pass);
  advance(*reading_.state, pass, reading_.adapters);
  take_prompts(pass, listener);
}

void Engine::advance(EnsembleState& state, Pass& pass, std::span<const AdapterWeights* const> adapters) {
  PassOptions options{.probe = looks_ ? &*looks_ : nullptr,
                      .hidden = shows_rows() ? &pass.hidden : nullptr,
                      .adapters = adapters,
                      .wanted = pass.wanted};
  if (models_.spec().order == Order::prefix && &state != &state_) options.prefixes = reading_.prefixes;
  pass.logits = state.advance(pass.tokens, options);
}

bool Engine::step(const Listener& listener) {
  const NoGrad guard;
  try {
    if (reading_.requests.empty()) begin_reading();
    if (reading_.requests.empty() && active_.empty()) return false;
    if (!active_.empty()) make_room();
    // Decode first: what has just been read would otherwise take two steps at once.
    if (shares_ || !active_.empty()) run_active(listener);
    if (!reading_.requests.empty() && !shares_) run_prompts(listener);
    return true;
  } catch (...) {
    abandon();
    throw;
  }
}

// After an exception amid a step nobody knows how far each request has got.
void Engine::abandon() {
  for (const std::vector<SequencePtr>* list : {&active_, &reading_.requests})
    for (const SequencePtr& s : *list)
      if (s != nullptr) forget_drafts(s->number);
  active_.clear();
  reading_ = {};
  kept_.clear();
  state_ = EnsembleState(models_, 0);
}

}  // namespace qkv
