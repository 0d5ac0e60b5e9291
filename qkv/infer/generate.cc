#include "qkv/infer/generate.h"

#include <algorithm>
#include <utility>

#include "qkv/infer/engine.h"
#include "qkv/models/feature_embedding.h"

namespace qkv {

std::vector<std::vector<int32_t>> generate(const Ensemble& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options, const TokenCallback& on_token,
                                           const Sources& sources) {
  check(options.begun.empty() || options.begun.size() == prompts.size(),
        "generate: {} prompts, got {} numbers of begun tokens", prompts.size(), options.begun.size());
  const bool conditioned = model.spec().architecture == Architecture::encoder_decoder;
  check(sources.ids.size() == (conditioned ? prompts.size() : 0),
        "generate: {} prompts need {} sources, got {}", prompts.size(), conditioned ? prompts.size() : 0,
        sources.ids.size());
  Engine engine(model, {.cached = options.cached});
  int64_t feature = 0;  // first row of the next source's features
  for (size_t s = 0; s < prompts.size(); ++s) {
    Request request{.prompt = prompts[s],
                    .sampler = options.sampler,
                    .max_new_tokens = options.max_new_tokens,
                    .eos = options.eos,
                    .rules = options.rules,
                    .seed = options.seed + s,
                    .begun = options.begun.empty() ? 0 : options.begun[s]};
    if (conditioned) {
      request.source = sources.ids[s];
      if (!sources.globals.empty()) request.globals = sources.globals[s];
      const auto rows = std::ranges::count(request.source, kFeature);
      if (rows > 0) request.features = sources.features.slice_rows(feature, feature + rows);
      feature += rows;
    }
    engine.add(std::move(request));
  }
  std::vector<std::vector<int32_t>> out(prompts.size());
  const auto listener = [&](const NewToken& t) {
    out[static_cast<size_t>(t.request)].push_back(t.token);
    return !on_token || on_token(t.request, t.token, t.logits);
  };
  while (engine.step(listener)) {
  }
  return out;
}

}  // namespace qkv
