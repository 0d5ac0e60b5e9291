// qkv fill: what stands behind the masks of each line.
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"
#include "qkv/train/corpus.h"

namespace qkv {
namespace {

struct Options : EncoderOptions {
  int64_t best = 1;
};

void run(const Options& o) {
  const TextModel m = load_encoder(o.dir, o.dtype, {Output::tokens}, "fill");
  const int32_t mask = encoder_tokens(m.tokenizer).mask;
  const std::string mask_text = *m.tokenizer.id_to_token(mask);
  const auto name_of_token = [&](int32_t id) { return m.tokenizer.id_to_token(id).value_or("?"); };
  int64_t cut = 0;
  for_lines(o, "text", "", [&](const std::vector<InputLine>& lines) {
    std::vector<size_t> which;
    const std::vector<EncodedText> texts = encode_lines(o, m, lines, which, cut);
    const auto found = fill_masks(*m.model, texts, mask, o.best, o.batch_tokens);
    std::vector<std::string> out(lines.size(), o.json ? "{\"text\":null}\n" : "\n");
    for (size_t i = 0; i < which.size(); ++i) {
      check(!found[i].empty(), "{}: there is no {} in {}", lines[which[i]].place, mask_text,
            texts[i].cut ? "what the model reads of this line" : "this line");
      std::vector<text::TokenId> ids(texts[i].encoding.ids);
      size_t next = 0;
      for (text::TokenId& id : ids)
        if (id == mask) id = found[i][next++].front().id;
      const std::string filled = m.tokenizer.decode(ids, true);
      if (o.json) {
        OrderedJson line = {{"text", lines[which[i]].text.first}, {"filled", filled}};
        for (const auto& candidates : found[i]) {
          OrderedJson list = OrderedJson::array();
          for (const Candidate& k : candidates)
            list.push_back({{"token", name_of_token(k.id)}, {"id", k.id}, {"probability", k.probability}});
          line["masks"].push_back(list);
        }
        out[which[i]] = line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
        continue;
      }
      out[which[i]] = filled;
      if (o.best > 1)
        for (const auto& candidates : found[i]) {
          std::vector<std::string> list;
          for (const Candidate& k : candidates)
            list.push_back(fmt::format("{} {:.4f}", name_of_token(k.id), k.probability));
          out[which[i]] += fmt::format("\t{}", fmt::join(list, ", "));
        }
      out[which[i]] += "\n";
    }
    return fmt::format("{}", fmt::join(out, ""));
  });
  note_cut(cut, m);
}

}  // namespace

void add_fill_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("fill", "Fill the masks of each line");
  add_encoder_options(*c, *o, "text", "");
  c->add_option("--best", o->best, "Tokens shown for each mask, most probable first")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  c->footer(
      "Masks are written as the tokenizer's: [MASK] or <mask>. Each is filled on its own.\n"
      "Example: echo 'to be or not to [MASK] .' | qkv fill runs/books --best 5");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
