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

std::vector<Request> requests_of(const ModelSpec& spec, const std::vector<std::vector<int32_t>>& prompts,
                                 const Sources& sources) {
  const bool conditioned = spec.architecture == Architecture::encoder_decoder;
  check(sources.ids.size() == (conditioned ? prompts.size() : 0),
        "generate: {} prompts need {} sources, got {}", prompts.size(), conditioned ? prompts.size() : 0,
        sources.ids.size());
  // Each place of a feature has as many rows as any other: an encoder may join several.
  int64_t places = 0;
  for (const auto& source : sources.ids) places += std::ranges::count(source, kFeature);
  const int64_t rows_a_place = places > 0 ? sources.features.dim(0) / places : 0;
  check(places == 0 || rows_a_place * places == sources.features.dim(0),
        "generate: {} rows of features for {} places", places > 0 ? sources.features.dim(0) : 0, places);
  int64_t feature = 0;  // first row of the next source's features
  std::vector<Request> out;
  for (size_t p = 0; p < prompts.size(); ++p) {
    Request r{.prompt = prompts[p]};
    if (conditioned) {
      r.source = sources.ids[p];
      if (!sources.globals.empty()) r.globals = sources.globals[p];
      const int64_t rows = std::ranges::count(r.source, kFeature) * rows_a_place;
      if (rows > 0) r.features = sources.features.slice_rows(feature, feature + rows);
      feature += rows;
    }
    out.push_back(std::move(r));
  }
  return out;
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
  std::vector<Request> requests = requests_of(engine.spec(), prompts, sources);
  int64_t first = 0;  // number of the first prompt's request
  for (size_t p = 0; p < prompts.size(); ++p) {
    Request& r = requests[p];
    Request with = request_of(std::move(r.prompt), options, static_cast<int64_t>(p));
    with.source = std::move(r.source), with.features = r.features, with.globals = std::move(r.globals);
    const int64_t number = engine.add(std::move(with));
    if (p == 0) first = number;
  }
  std::vector<std::vector<int32_t>> out(prompts.size());
  const auto listener = [&](const NewToken& t) {
    const int64_t s = t.request - first;
    if (s < 0 || s >= std::ssize(out)) return true;  // somebody else's
    out[static_cast<size_t>(s)].push_back(t.token);
    return !on_token || on_token(s, t.token, t.logits);
  };
  try {
    while (engine.step(listener)) {
    }
  } catch (...) {
    for (int64_t p = 0; p < std::ssize(out); ++p) engine.cancel(first + p);
    throw;
  }
  return out;
}

}  // namespace qkv
