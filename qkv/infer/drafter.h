// Drafts of what a model will write, which it then checks in one pass (speculative decoding, Leviathan et al.
// 2023). Since a request's next token is a function of its logits, its options and its seed, the engine takes
// drafted tokens as long as they are the tokens that it would have chosen: outputs do not change at all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/infer/request.h"

namespace qkv {

// A request whose next tokens are wanted.
struct DraftQuery {
  int64_t number = 0;  // the request's
  const Request* request = nullptr;
  std::span<const int32_t> written = {};
  int64_t most = 0;  // tokens to draft at most
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // For each query, its tokens after `written`, at most query.most: none where nothing is likely.
  virtual std::vector<std::vector<int32_t>> draft(std::span<const DraftQuery> queries) = 0;
  // True if the drafter wants read().
  virtual bool reads_rows() const { return false; }
  // The rows [N, D] that the unembedding reads, of a request's tokens from number `first` of its text on.
  // Rows that begin elsewhere than the last ones ended replace all before.
  virtual void read(int64_t /*request*/, int64_t /*first*/, const Tensor& /*rows*/) {}
  // Forgets a request, which has ended.
  virtual void end(int64_t /*request*/) {}
};

}  // namespace qkv
