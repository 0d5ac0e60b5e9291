#include "qkv/infer/request.h"

#include "qkv/base/rng.h"

namespace qkv {

int32_t next_token(std::span<const float> logits, const Request& r, std::span<const int32_t> written) {
  std::vector<float> masked;
  if (r.mask) {
    masked.assign(logits.begin(), logits.end());
    r.mask(written, masked);
    logits = masked;
  }
  const int64_t length = std::ssize(written), prompt = std::ssize(r.prompt);
  if (const auto id = r.rules.forced(prompt, length, r.max_new_tokens - r.begun)) return *id;
  const double uniform = RandomStream{r.seed, static_cast<uint64_t>(length), 0}.uniform(0);
  std::vector<int32_t> refused = r.rules.refused(prompt, length, r.eos, r.begun);
  const std::vector<int32_t> completing = r.rules.completing(r.prompt, written, r.eos);
  refused.insert(refused.end(), completing.begin(), completing.end());
  if (refused.empty()) return sample(logits, {r.prompt, written}, r.sampler, uniform);
  SamplerOptions sampler = r.sampler;
  sampler.excluded.insert(sampler.excluded.end(), refused.begin(), refused.end());
  return sample(logits, {r.prompt, written}, sampler, uniform);
}

}  // namespace qkv
