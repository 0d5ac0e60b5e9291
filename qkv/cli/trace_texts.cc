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

namespace {

// Calls f with the lines of a file, joined to texts of about so many bytes as a pass has room for.
void for_each_text(const std::string& file, const std::function<void(const std::string& text)>& f) {
  constexpr size_t kBytes = 1000;
  std::string text;
  for_each_lines(file, 1024, [&](const std::vector<std::string>& lines, int64_t /*first*/) {
    for (const std::string& line : lines) {
      text += line + "\n";
      if (text.size() < kBytes) continue;
      f(text);
      text.clear();
    }
  });
  if (!text.empty()) f(text);
}

}  // namespace

int64_t for_each_pass(const TracedModel& m, const std::string& file, int64_t limit, bool again,
                      const std::function<void(const ModelInput& input, int64_t tokens_before)>& f) {
  if (again && (file.empty() || file == "-"))
    throw UsageError("expected a file that can be read several times, not standard input");
  Progress progress;
  int64_t done = 0;
  for (bool more = true; more && done < limit; more = again) {
    const int64_t before = done;
    for_each_text(file, [&](const std::string& text) {
      if (done >= limit) return;
      const text::Encoding tokens = tokens_of(m, text);
      if (tokens.ids.size() < 2) return;
      f(input_of_tokens(m, tokens), done);
      done += std::ssize(tokens.ids);
      if (progress.terminal()) progress.update(fmt::format("{} of {} tokens", done, limit));
    });
    check(done > before, "{}: expected a text of two tokens or more", input_name(file));
  }
  return done;
}

}  // namespace qkv
