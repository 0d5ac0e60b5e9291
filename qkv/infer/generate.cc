#include "qkv/infer/generate.h"

#include <algorithm>
#include <utility>

#include "qkv/models/feature_embedding.h"

namespace qkv {

Request request_of(std::vector<int32_t> prompt, const GenerateOptions& options, int64_t number) {
  return {.prompt = std::move(prompt),
          .sampler = options.sampler,
          .max_new_tokens = options.max_new_tokens,
          .eos = options.eos,
          .rules = options.rules,
          .seed = options.seed + static_cast<uint64_t>(number),
          .begun = options.begun.empty() ? 0 : options.begun[static_cast<size_t>(number)]};
}

std::vector<std::vector<int32_t>> generate(const Ensemble& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options, const TokenCallback& on_token,
                                           const Sources& sources) {
  Engine engine(model, {.cached = options.cached});
  return generate(engine, prompts, options, on_token, sources);
}

std::vector<std::vector<int32_t>> generate(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options, const TokenCallback& on_token,
                                           const Sources& sources) {
  check(options.begun.empty() || options.begun.size() == prompts.size(),
        "generate: {} prompts, got {} numbers of begun tokens", prompts.size(), options.begun.size());
  const bool conditioned = engine.spec().architecture == Architecture::encoder_decoder;
  check(sources.ids.size() == (conditioned ? prompts.size() : 0),
        "generate: {} prompts need {} sources, got {}", prompts.size(), conditioned ? prompts.size() : 0,
        sources.ids.size());
  int64_t first = 0;  // number of the first prompt's request
  // Each place of a feature has as many rows as any other: an encoder may join several.
  int64_t places = 0;
  for (const auto& source : sources.ids) places += std::ranges::count(source, kFeature);
  const int64_t rows_a_place = places > 0 ? sources.features.dim(0) / places : 0;
  check(places == 0 || rows_a_place * places == sources.features.dim(0),
        "generate: {} rows of features for {} places", places > 0 ? sources.features.dim(0) : 0, places);
  int64_t feature = 0;  // first row of the next source's features
  for (size_t s = 0; s < prompts.size(); ++s) {
    Request request = request_of(prompts[s], options, static_cast<int64_t>(s));
    if (conditioned) {
      request.source = sources.ids[s];
      if (!sources.globals.empty()) request.globals = sources.globals[s];
      const int64_t rows = std::ranges::count(request.source, kFeature) * rows_a_place;
      if (rows > 0) request.features = sources.features.slice_rows(feature, feature + rows);
      feature += rows;
    }
    const int64_t number = engine.add(std::move(request));
    if (s == 0) first = number;
  }
  std::vector<std::vector<int32_t>> out(prompts.size());
  const auto listener = [&](const NewToken& t) {
    const int64_t s = t.request - first;
    if (s < 0 || s >= std::ssize(out)) return true;  // somebody else's
    out[static_cast<size_t>(s)].push_back(t.token);
    return !on_token || on_token(s, t.token, t.logits);
  };
  while (engine.step(listener)) {
  }
  return out;
}

}  // namespace qkv
