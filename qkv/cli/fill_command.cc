// qkv fill: what stands behind the masks of each line.
#include <fmt/format.h>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"
#include "qkv/train/corpora/corpus.h"

namespace qkv {
namespace {

struct FillOptions : EncoderOptions {
  int64_t best = 1;
};

// The text with the most probable tokens in place of its masks, as they stand behind the tokens before them:
// a part of a word without a space.
std::string filled_text(const std::string& text, const text::Encoding& encoding, int32_t mask,
                        const std::vector<std::vector<Candidate>>& found, const text::Tokenizer& tokenizer) {
  std::vector<text::TokenId> before;
  std::string out;
  size_t at = 0, next = 0;
  for (size_t i = 0; i < encoding.size(); ++i) {
    const bool is_mask = encoding.ids[i] == mask;
    if (is_mask) {
      const std::string left = tokenizer.decode(before, true);
      before.push_back(found[next++].front().id);
      const std::string both = tokenizer.decode(before, true);
      std::string piece = both.starts_with(left) ? both.substr(left.size())
                                                 : tokenizer.decode(std::vector{before.back()}, true);
      out += text.substr(at, encoding.offsets[i].begin - at);
      at = encoding.offsets[i].end;
      const bool apart = piece.starts_with(' ') || left.empty();
      piece.erase(0, piece.find_first_not_of(' '));
      while (out.ends_with(' ')) out.pop_back();
      out += (apart && !out.empty() ? " " : "") + piece;
    } else {
      before.push_back(encoding.ids[i]);
    }
  }
  return out + text.substr(at);
}

void run_fill(FillOptions o) {
  take_settings_of_run(o, o.dir);
  const bool rows = reads_rows(o);
  const TextModel m = load_encoder(o.dir, o.dtype, {Output::tokens}, "fill");
  const int32_t mask = encoder_tokens(m.tokenizer).mask;
  const std::string mask_text = *m.tokenizer.id_to_token(mask);
  const auto name_of_token = [&](int32_t id) { return m.tokenizer.id_to_token(id).value_or("?"); };
  int64_t cut = 0;
  predict_texts(o, [&](const std::vector<InputText>& lines) {
    std::vector<size_t> which;
    const std::vector<EncodedText> texts = encode_texts(o, m, lines, which, cut);
    const auto found = fill_masks(*m.model, texts, mask, o.best, o.batch_tokens,
                                  static_cast<int64_t>(m.tokenizer.vocab_size()));
    const Prediction none{o.json ? "{\"text\":null}\n" : "\n", {{"filled", nullptr}}};
    std::vector<Prediction> out(lines.size(), none);
    for (size_t i = 0; i < which.size(); ++i) {
      // A mask beyond what the model reads stays.
      check(!found[i].empty() || texts[i].cut, "{}: there is no {} in this line", lines[which[i]].place,
            mask_text);
      const std::string filled =
          filled_text(lines[which[i]].text.first, texts[i].encoding, mask, found[i], m.tokenizer);
      if (rows) {
        out[which[i]].columns["filled"] = filled;
        continue;
      }
      if (o.json) {
        OrderedJson line = {{"text", lines[which[i]].text.first}, {"filled", filled}};
        line["masks"] = OrderedJson::array();
        for (const auto& candidates : found[i]) {
          OrderedJson list = OrderedJson::array();
          for (const Candidate& k : candidates)
            list.push_back({{"token", name_of_token(k.id)}, {"id", k.id}, {"probability", k.probability}});
          line["masks"].push_back(list);
        }
        out[which[i]].line = json_line(line);
        continue;
      }
      std::string& line = out[which[i]].line;
      line = one_line(filled);
      if (o.best > 1)
        for (const auto& candidates : found[i]) {
          std::vector<std::string> list;
          for (const Candidate& k : candidates)
            list.push_back(fmt::format("{} {:.4f}", name_of_token(k.id), k.probability));
          line += fmt::format("\t{}", fmt::join(list, ", "));
        }
      line += "\n";
    }
    return out;
  });
  note_cut(cut, m);
}

}  // namespace

void add_fill_command(Command& app) {
  auto o = std::make_shared<FillOptions>();
  Command* c = app.add_subcommand("fill", "Predict the masked tokens of each line");
  o->objective = Objective::masked;
  add_encoder_options(*c, *o);
  c->add_option("--best", o->best, "Number of tokens to show per mask, most probable first")
      ->show_default()
      ->range(1, 100000);
  c->footer(
      "Masks are written as the tokenizer's: [MASK] or <mask>. Each is filled on its own. Rows get the "
      "column\n"
      "filled.\n"
      "Example: echo 'to be or not to [MASK] .' | qkv fill runs/books --best 5");
  c->callback([o] { run_fill(*o); });
}

}  // namespace qkv
