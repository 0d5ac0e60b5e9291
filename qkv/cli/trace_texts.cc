#include "qkv/cli/trace_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "qkv/base/progress.h"
#include "qkv/cli/console.h"
#include "qkv/infer/encode.h"

namespace qkv {
namespace {

constexpr int64_t kLongest = 256;  // tokens of a pass, whose attention costs their square

}  // namespace

void expect_one_stack(const TracedModel& m, const char* option) {
  const ModelSpec& spec = m.model().spec();
  check(spec.architecture != Architecture::encoder_decoder,
        "{}: of models of one stack: the decoder of an encoder-decoder needs sources", option);
  check(!spec.features.any() && spec.order != Order::permuted, "{}: of models that read text in order",
        option);
}

text::Encoding tokens_of(const TracedModel& m, const std::string& text) {
  const ModelSpec& spec = m.model().spec();
  text::Encoding out = spec.architecture == Architecture::decoder && spec.output == Output::tokens
                           ? m.text->tokenizer.encode(text)
                           : encode_text({text, ""}, m.text->tokenizer, spec).encoding;
  const auto most = static_cast<size_t>(std::min(kLongest, spec.longest()));
  if (out.ids.size() > most) {
    out.ids.resize(most);
    out.offsets.resize(most);
    out.type_ids.resize(most);
  }
  return out;
}

ModelInput input_of_tokens(const TracedModel& m, const text::Encoding& tokens) {
  ModelInput input;
  std::vector<int32_t> ids(tokens.ids.begin(), tokens.ids.end());
  if (m.model().spec().segments > 0)
    input.segments = std::vector<int32_t>(tokens.type_ids.begin(), tokens.type_ids.end());
  input.layout = Layout::of({static_cast<int32_t>(ids.size())});
  if (m.model().spec().order == Order::prefix)
    input.visibility = prefix_ranks(input.layout, std::vector<int32_t>{static_cast<int32_t>(ids.size())});
  input.ids = std::move(ids);
  return input;
}

std::vector<std::string> texts_of(const std::string& file) {
  constexpr size_t kBytes = 1000;
  std::vector<std::string> out = {""};
  for_each_lines(file, 1024, [&](const std::vector<std::string>& lines, int64_t /*first*/) {
    for (const std::string& line : lines) {
      out.back() += line + "\n";
      if (out.back().size() >= kBytes) out.emplace_back();
    }
  });
  if (out.back().find_first_not_of(" \n\t\r") == std::string::npos) out.pop_back();
  return out;
}

int64_t for_each_pass(const TracedModel& m, const std::string& file, int64_t limit, bool again,
                      const std::function<void(const ModelInput& input, int64_t tokens_before)>& f) {
  std::vector<ModelInput> passes;
  for (const std::string& text : texts_of(file))
    if (const text::Encoding tokens = tokens_of(m, text); tokens.ids.size() >= 2)
      passes.push_back(input_of_tokens(m, tokens));
  check(!passes.empty(), "{}: expected a text of two tokens or more", input_name(file));
  Progress progress;
  int64_t done = 0;
  for (size_t i = 0; done < limit && (again || i < passes.size()); ++i) {
    const ModelInput& input = passes[i % passes.size()];
    f(input, done);
    done += input.ids.count();
    if (progress.terminal()) progress.update(fmt::format("{} of {} tokens", done, limit));
  }
  return done;
}

}  // namespace qkv
