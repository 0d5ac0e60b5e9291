#include "qkv/cli/trace_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>

#include "qkv/base/progress.h"
#include "qkv/cli/console.h"
#include "qkv/infer/encode.h"

namespace qkv {
namespace {

constexpr int64_t kLongest = 256;  // tokens of a pass, whose attention costs their square
constexpr size_t kBytes = 4096;    // read at once

// The special tokens that a tokenizer puts before and behind a text.
struct Around {
  std::vector<text::TokenId> before, behind;

  explicit Around(const TracedModel& m) {
    const auto plain = m.text->tokenizer.encode("a", false).ids, whole = m.text->tokenizer.encode("a").ids;
    const auto at = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
    before.assign(whole.begin(), at);
    behind.assign(at + std::min(std::ssize(plain), whole.end() - at), whole.end());
    // A decoder's text goes on.
    if (m.model().spec().architecture == Architecture::decoder) behind.clear();
  }
};

// The place at which to end a piece of text: behind its last white space, or before a character that is cut.
size_t end_of_words(const std::string& text) {
  const size_t space = text.find_last_of(" \n\t\r");
  if (space != std::string::npos) return space + 1;
  size_t end = text.size();
  while (end > 0 && (static_cast<unsigned char>(text[end - 1]) & 0xC0) == 0x80) --end;
  return end > 1 ? end - 1 : text.size();
}

// Calls f with pieces of a file, cut between words, until it returns false.
void for_each_piece(const std::string& file, const std::function<bool(const std::string& text)>& f) {
  const bool standard = file.empty() || file == "-";
  std::ifstream opened;
  if (standard)
    expect_standard_input();
  else
    opened.open(file, std::ios::binary);
  std::istream& in = standard ? std::cin : opened;
  check(static_cast<bool>(in), "{}: cannot be opened", input_name(file));
  std::string text;
  for (bool more = true; more;) {
    std::string block(kBytes, '\0');
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    block.resize(static_cast<size_t>(in.gcount()));
    more = static_cast<bool>(in);
    text += block;
    const size_t end = more ? end_of_words(text) : text.size();
    if (end > 0 && !f(text.substr(0, end))) return;
    text.erase(0, end);
  }
  check(!in.bad(), "{}: cannot be read", input_name(file));
}

ModelInput input_of_ids(const TracedModel& m, std::vector<int32_t> ids) {
  ModelInput input;
  const auto count = static_cast<int32_t>(ids.size());
  input.layout = Layout::of({count});
  if (m.model().spec().segments > 0) input.segments = std::vector<int32_t>(ids.size(), 0);
  if (m.model().spec().order == Order::prefix)
    input.visibility = prefix_ranks(input.layout, std::vector<int32_t>{count});
  input.ids = std::move(ids);
  return input;
}

}  // namespace

int64_t longest_pass(const TracedModel& m) {
  return std::min(kLongest, m.model().spec().longest());
}

void expect_one_stack(const TracedModel& m, const char* option) {
  const ModelSpec& spec = m.model().spec();
  check(spec.architecture != Architecture::encoder_decoder,
        "{}: of models of one stack: the decoder of an encoder-decoder needs sources", option);
  check(!spec.features.any() && spec.order != Order::permuted, "{}: of models that read text in order",
        option);
}

text::Encoding tokens_of(const TracedModel& m, const std::string& text) {
  const ModelSpec& spec = m.model().spec();
  return spec.architecture == Architecture::decoder && spec.output == Output::tokens
             ? m.text->tokenizer.encode(text)
             : encode_text({text, ""}, m.text->tokenizer, spec).encoding;
}

ModelInput input_of_tokens(const TracedModel& m, const std::vector<text::TokenId>& tokens) {
  return input_of_ids(m, {tokens.begin(), tokens.end()});
}

std::vector<text::TokenId> begin_of_texts(const TracedModel& m) {
  return Around(m).before;
}

int64_t for_each_pass(const TracedModel& m, const std::string& file, int64_t limit, bool again,
                      const std::function<void(const ModelInput& input, int64_t tokens_before)>& f) {
  if (again && (file.empty() || file == "-"))
    throw UsageError("expected a file that can be read several times, not standard input");
  const Around around(m);
  const int64_t room = longest_pass(m) - std::ssize(around.before) - std::ssize(around.behind);
  check(room > 1, "the model reads {} tokens at most, too few for texts", m.model().spec().longest());
  Progress progress;
  int64_t done = 0;
  for (bool more = true; more && done < limit; more = again) {
    const int64_t before = done;
    for_each_piece(file, [&](const std::string& text) {
      const auto tokens = m.text->tokenizer.encode(text, false).ids;
      for (int64_t at = 0; at < std::ssize(tokens) && done < limit; at += room) {
        const auto first = tokens.begin() + at,
                   last = tokens.begin() + std::min(at + room, std::ssize(tokens));
        if (last - first < 2) continue;
        std::vector<int32_t> ids(around.before.begin(), around.before.end());
        ids.insert(ids.end(), first, last);
        ids.insert(ids.end(), around.behind.begin(), around.behind.end());
        const auto count = std::ssize(ids);
        f(input_of_ids(m, std::move(ids)), done);
        done += count;
        if (progress.terminal()) progress.update(fmt::format("{} of {} tokens", done, limit));
      }
      return done < limit;
    });
    check(done > before, "{}: expected a text of two tokens or more", input_name(file));
  }
  return done;
}

}  // namespace qkv
