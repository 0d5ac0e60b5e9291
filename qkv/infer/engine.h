// The engine of inference: requests come and go, and are decoded together.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "qkv/infer/attention_rows.h"
#include "qkv/infer/beam_step.h"
#include "qkv/infer/drafter.h"
#include "qkv/infer/ensemble.h"
#include "qkv/infer/prompt_cache.h"
#include "qkv/infer/request.h"

namespace qkv {

// A new token of a request, and the logits [V] that it was chosen from; or the outputs of a search, at its
// end.
struct NewToken {
  int64_t request = 0;
  int32_t token = 0;  // -1 for a search
  std::span<const float> logits = {};
  bool last = false;                       // the output ends with it
  std::span<const Hypothesis> found = {};  // best first
};

struct EngineOptions {
  // Sequences that are decoded at the same time. A search counts as many as it has beams.
  int64_t sequences = 1 << 20;
  // Tokens of prompts and sources that are read in a step, beside the tokens of what is decoded. A longer
  // prompt is read in parts, where a token's states depend on nothing after it.
  int64_t prompt_tokens = 256;
  // Memory of the keys and values of all sequences, also of what is kept; 0: no limit. Shared pages count
  // once, and buffers may be larger by half while they grow. If there is no room for a step, what is kept
  // goes first. Then the engine interrupts the request of the lowest priority that came last, and reads it
  // again later. A single request always has room.
  int64_t memory_bytes = 0;
  // Tokens of prompts and outputs that have ended which stay remembered besides, for requests that begin with
  // them. Those that were not used for longest go first. 0: none. Not for models with sources, nor where a
  // token sees those behind it.
  int64_t kept_tokens = 0;
  // Has what earlier runs read, where kept_tokens finds less; it must outlive the engine. Under the same
  // conditions.
  PromptCache* prompt_cache = nullptr;
  // Drafts the next tokens of requests, which must outlive the engine; null: none. Nothing is drafted for a
  // model that reads a text as a whole, nor beyond the context, nor with attention.
  Drafter* drafter = nullptr;
  static constexpr int64_t kMostDrafted = 15;
  int64_t drafted_tokens = kMostDrafted;  // at most, of each request between two steps
  // Attention to the source is computed for all requests, so that searches may ask for it. Its bits, and so
  // those of all that follows, may differ from those without.
  bool attention = false;
  bool cached = true;  // false: the whole sequence is read again for each token (to test the cache)
};

// The use of drafts so far.
struct Drafting {
  int64_t passes = 0;    // each gave a token by itself, of one request
  int64_t drafted = 0;   // tokens
  int64_t accepted = 0;  // those of them that were chosen
};

// Decodes requests together. A request's tokens and logits have the bits that it has alone: with any others,
// in any order of arrival, interrupted or not, with any options. That holds where each row of a product has
// bits of its own (docs/guides/quantize.md): not with QKV_FAST_PRODUCTS=1, and not for bf16 on processors
// with fast bf16. Nor does it hold for experts with a capacity, which tokens compete for.
class Engine {
 public:
  // Returns false to end that output. It must not call the engine.
  using Listener = std::function<bool(const NewToken&)>;

  // The models must outlive the engine.
  explicit Engine(const Ensemble& models, const EngineOptions& options = {});
  ~Engine();

  const ModelSpec& spec() const { return models_.spec(); }
  // Adds a request and returns its number: 0, 1, 2, .... Throws Error for one that the model cannot answer.
  int64_t add(Request request);
  // Adds what is kept of ended requests to a cache.
  void save_kept(PromptCache& cache) const;
  // Ends a request; nothing if it has ended already.
  void cancel(int64_t request);
  // Reads some tokens of prompts, or predicts a token of each sequence, or both; calls `listener` for each
  // new token. Returns false if there was nothing to do: all requests have ended. If it throws, or the
  // listener does, all requests but those that wait are lost, and what was kept.
  bool step(const Listener& listener);

  // Numbers of requests that are decoded now, and of those that wait or whose prompts are being read.
  int64_t decoding() const { return std::ssize(active_); }
  int64_t waiting() const { return std::ssize(waiting_) + std::ssize(reading_.requests); }
  // Memory of what is remembered now, and tokens that are kept of requests that have ended.
  int64_t bytes() const { return state_.bytes() + (reading_.state ? reading_.state->bytes() : 0); }
  int64_t kept() const;
  // Tokens of prompts that did not have to be read, because they were kept.
  int64_t spared() const { return spared_; }
  const Drafting& drafting() const { return drafting_; }

 private:
  struct Sequence;
  struct Pass;
  struct Choice;
  struct Decoding;
  using SequencePtr = std::unique_ptr<Sequence>;
  // Requests whose prompts are read together.
  struct Reading {
    std::vector<SequencePtr> requests;
    // The sequences of `state` that each request begins with: one, or one for each beam. Equal prompts share
    // one.
    std::vector<std::vector<int32_t>> rows;
    std::vector<std::vector<int32_t>> tokens;  // each sequence's
    std::vector<int32_t> prefixes;             // for a prefix LM
    std::vector<const AdapterWeights*> adapters;
    std::optional<EnsembleState> state;  // their own, unless shares_
    int64_t read = 0;                    // tokens of a single sequence that is read in parts
    int64_t rows_of_state = 0;           // last rows of state_ that are these sequences, if shares_
  };

  // A sequence that an ended request leaves, and its tokens.
  struct Kept {
    std::vector<int32_t> tokens;
    int32_t row;  // in state_
    std::shared_ptr<const AdapterWeights> adapter = {};
  };

  void begin_reading();
  // The kept sequence with the longest common beginning and the same adapter, and its length, at most all but
  // the last of `tokens`: that one's logits are wanted. Length 0: none.
  std::pair<std::list<Kept>::iterator, int64_t> find_kept(const std::vector<int32_t>& tokens,
                                                          const AdapterWeights* adapter);
  // Keeps a row of state_, which `sequence` has ended with.
  void keep(const Sequence& sequence, int32_t row);
  void trim();     // drops what is kept beyond kept_tokens
  void abandon();  // drops all requests but those that wait
  // Orders the rows of state_ anew: those of active requests, the kept ones, those that are being read.
  void arrange(std::vector<int32_t> active);
  int64_t active_rows() const;
  int64_t reading_rows() const { return reading_.rows_of_state; }
  void run_active(const Listener& listener);
  void run_prompts(const Listener& listener);
  void advance(EnsembleState& state, Pass& pass, std::span<const AdapterWeights* const> adapters);
  Decoding feed_active(Pass& pass);
  void take_decoded(const Decoding& decoding, const Pass& pass, const Listener& listener);
  void feed_prompts(Pass& pass) const;
  void take_prompts(const Pass& pass, const Listener& listener);
  void make_room();
  void forget_drafts(int64_t request) {
    if (options_.drafter != nullptr) options_.drafter->end(request);
  }
  // True if the drafter gets the hidden states of what is read.
  bool shows_rows() const;
  // `first`: the number of the first token of each prompt that the pass was fed.
  void show_rows_of_prompts(const Pass& pass, int64_t first);
  // Drafts of all sequences; none where no sequence has one.
  std::vector<std::vector<int32_t>> drafts();
  // True if an output of so many tokens ends with `token`.
  bool ends(const Request& request, int32_t token, int64_t written) const;
  // Chooses what follows each request; number i has these rows of logits. It may have a draft: then it gets
  // more tokens than one as long as they are those of the draft.
  std::vector<Choice> choices(std::span<const SequencePtr> requests,
                              std::span<const std::vector<int32_t>> drafts,
                              std::span<const std::vector<int32_t>> rows, const Tensor& logits) const;
  // Writes a token. Returns true if the request goes on.
  bool take(Sequence& sequence, int32_t token, std::span<const float> logits, const Listener& listener);
  // Writes tokens to row `at` of state_, which has read a draft; the first of them follows rows[0] of logits.
  // Returns true if the request goes on.
  bool accept(Sequence& sequence, int32_t at, int64_t drafted, const std::vector<int32_t>& tokens,
              std::span<const int32_t> rows, const Tensor& logits, const Listener& listener);
  // Grows a search's beams. Returns the rows that they go on from; none: the search has ended.
  std::vector<int32_t> grow(Sequence& sequence, const std::vector<Continuation>& best,
                            std::span<const int32_t> rows, const Listener& listener);
  // The adapters of the rows of state_, as far as they get tokens.
  std::vector<const AdapterWeights*> adapters_of_rows() const;
  // The rows of state_ that each active request has.
  std::vector<std::vector<int32_t>> rows_of_active() const;
  // The last tokens of prompt and output that the context has room for; `beam`: of a search.
  std::vector<int32_t> window(const Sequence& sequence, int64_t beam = 0) const;
  // Memory that a request may take when its prompt was read and some tokens have followed.
  int64_t bytes_of(const Sequence& sequence) const;
  // Memory that the next step may take: a page for each row, or one to part from others, and another for a
  // draft.
  int64_t step_bytes() const;
  // Memory that the requests whose prompts are being read may still take.
  int64_t unread_bytes() const;
  // True if so much more fits, where need be without what was kept, but for `needed`.
  bool has_room(int64_t bytes, std::list<Kept>::const_iterator needed);
  std::vector<int32_t> source_key(const Sequence& sequence) const;
  void wait(SequencePtr sequence);

  Ensemble models_;
  EngineOptions options_;
  bool bounded_;  // an output ends at the context, because its prompt or source is read as a whole
  // Prompts may be read in parts, and all sequences are rows of one state: what is kept is shared until
  // somebody writes to it.
  bool shares_;
  bool drafts_;  // new tokens may be read several at a time
  int64_t added_ = 0;
  std::deque<SequencePtr> waiting_;  // by priority, then by arrival
  Reading reading_;
  std::vector<SequencePtr> active_;  // in the order of their rows
  EnsembleState state_;              // see arrange()
  std::optional<AttentionRows> looks_;
  std::list<Kept> kept_;  // the last used one first
  int64_t page_bytes_;    // memory of a page of tokens in all layers
  int64_t spared_ = 0;
  Drafting drafting_;
};

}  // namespace qkv
