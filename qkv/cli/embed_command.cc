// qkv embed: a vector for each line, or the lines that are nearest to a query.
#include <fmt/format.h>

#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"
#include "qkv/io/sentence_dir.h"

namespace qkv {
namespace {

struct EmbedOptions : EncoderOptions {
  std::string query, pooling, prompt;
  int64_t best = 5;
  bool has_query = false;
};

// The texts before a query and before a line.
struct Prompts {
  std::string query, line;
};

// sentence-transformers' names for both; --prompt names the line's.
Prompts prompts_of(const TextModel& m, const EmbedOptions& o) {
  check(o.prompt.empty() || (m.sentence && m.sentence->prompts.contains(o.prompt)),
        "--prompt: {} names no prompt '{}' (config_sentence_transformers.json)", o.dir, o.prompt);
  if (!m.sentence) return {};
  Prompts p;
  if (o.has_query) p.query = prompt_of(*m.sentence, {"query"});
  const std::vector<std::string> of_documents = {"document", "passage", "corpus"};
  p.line = prompt_of(*m.sentence, !o.prompt.empty() ? std::vector{o.prompt}
                                  : o.has_query     ? of_documents
                                                    : std::vector<std::string>());
  return p;
}

void run_embed(EmbedOptions o) {
  take_settings_of_run(o, o.dir);
  const bool rows = reads_rows(o);
  const std::initializer_list<Output> any = {Output::embedding, Output::tokens, Output::sequence_classes,
                                             Output::token_classes, Output::span};
  TextModel m = load_encoder(o.dir, o.dtype, any, "embed");
  if (!o.pooling.empty()) m.model->set_pooling(from_name<Pooling>(o.pooling));
  const Prompts prompts = prompts_of(m, o);
  int64_t cut = 0;
  std::vector<float> query;
  if (o.has_query) {
    check(!is_blank(o.query), "--query: expected a text, it is empty");
    const std::string text = prompts.query + o.query;
    const Tensor e = unit_embeddings(m, {encode_text({text, ""}, m.tokenizer, m.model->spec())});
    const auto v = e.row<float>(0);
    query.assign(v.begin(), v.end());
  }
  RankedLines ranked;
  o.silent = o.has_query;  // the nearest of all texts are printed at the end
  predict_texts(o, [&](const std::vector<InputText>& lines) {
    std::vector<size_t> which;
    std::vector<InputText> prompted = lines;
    for (InputText& line : prompted)
      if (!is_blank(line.text.first)) line.text.first = prompts.line + line.text.first;
    const std::vector<EncodedText> texts = encode_texts(o, m, prompted, which, cut);
    const Tensor vectors =
        query.empty() ? embed(m, texts, o.batch_tokens) : unit_embeddings(m, texts, o.batch_tokens);
    const Prediction none{o.json ? "{\"embedding\":null}\n" : "\n", {{"embedding", nullptr}}};
    std::vector<Prediction> out(lines.size(), none);
    for (size_t i = 0; i < which.size(); ++i) {
      const auto v = vectors.row<float>(static_cast<int64_t>(i));
      const std::string& text = lines[which[i]].text.first;
      if (!query.empty()) {
        ranked.add(std::inner_product(v.begin(), v.end(), query.begin(), 0.0), text);
      } else if (rows) {
        out[which[i]].columns["embedding"] = std::vector<float>(v.begin(), v.end());
      } else if (o.json) {
        out[which[i]].line =
            json_line({{"text", text}, {"embedding", std::vector<float>(v.begin(), v.end())}});
      } else {
        out[which[i]].line = fmt::format("{:.6g}\n", fmt::join(v.begin(), v.end(), " "));
      }
    }
    return out;
  });
  ranked.print_best(o.best, "cosine", o.json);
  note_cut(cut, m);
}

}  // namespace

void add_embed_command(Command& app) {
  auto o = std::make_shared<EmbedOptions>();
  Command* c = app.add_subcommand("embed", "Compute an embedding for each line, or search lines by meaning");
  o->objective = Objective::embed;
  add_encoder_options(*c, *o);
  auto* query =
      c->add_option("--query", o->query,
                    "Semantic search: print the lines with the highest cosine similarity to this text");
  c->add_option("--best", o->best, "Number of lines to print for a query")
      ->show_default()
      ->needs(query)
      ->range(1, 1 << 30);
  c->add_option("--pooling", o->pooling, "Pooling of token vectors (default: the model's): first or mean")
      ->one_of({"first", "mean"});
  c->add_option("--prompt", o->prompt,
                "Put this prompt of the model before each line (default with --query: query, document)");
  c->footer(
      "Vectors have length 1: their inner product is the cosine. Rows get the column embedding. In a\n"
      "directory of sentence-transformers, its modules say what a vector is, and its prompts what precedes "
      "texts.\n"
      "Example: qkv embed runs/books --file lines.txt --query 'a storm at sea' --pooling mean");
  c->callback([o, query] {
    o->has_query = query->count() > 0;
    run_embed(*o);
  });
}

}  // namespace qkv
