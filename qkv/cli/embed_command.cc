// qkv embed: a vector for each line, or the lines that are nearest to a query.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"

namespace qkv {
namespace {

struct Options : EncoderOptions {
  std::string query, pooling;
  int64_t best = 5;
  bool has_query = false;
};

void run(Options o) {
  take_settings_of_run(o, o.dir);
  const bool rows = reads_rows(o);
  const std::initializer_list<Output> any = {Output::embedding, Output::tokens, Output::sequence_classes,
                                             Output::token_classes, Output::span};
  TextModel m = load_encoder(o.dir, o.dtype, any, "embed");
  if (!o.pooling.empty()) m.model->set_pooling(from_name<Pooling>(o.pooling));
  int64_t cut = 0;
  std::vector<float> query;
  if (o.has_query) {
    check(!is_blank(o.query), "--query: expected a text, it is empty");
    const Tensor e = embed_texts(*m.model, {encode_text({o.query, ""}, m.tokenizer, m.model->spec())});
    const auto v = e.row<float>(0);
    query.assign(v.begin(), v.end());
  }
  std::vector<std::pair<double, std::string>> ranked;
  o.silent = o.has_query;  // the nearest of all texts are printed at the end
  predict_texts(o, [&](const std::vector<InputText>& lines) {
    std::vector<size_t> which;
    const std::vector<EncodedText> texts = encode_texts(o, m, lines, which, cut);
    const Tensor vectors = embed_texts(*m.model, texts, o.batch_tokens);
    const Prediction none{o.json ? "{\"embedding\":null}\n" : "\n", {{"embedding", nullptr}}};
    std::vector<Prediction> out(lines.size(), none);
    for (size_t i = 0; i < which.size(); ++i) {
      const auto v = vectors.row<float>(static_cast<int64_t>(i));
      const std::string& text = lines[which[i]].text.first;
      if (!query.empty()) {
        ranked.emplace_back(std::inner_product(v.begin(), v.end(), query.begin(), 0.0), text);
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
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (std::ssize(ranked) > o.best) ranked.resize(static_cast<size_t>(o.best));
  for (const auto& [cosine, text] : ranked) {
    const OrderedJson line = {{"cosine", cosine}, {"text", text}};
    print(o.json ? json_line(line) : fmt::format("{:.4f}\t{}\n", cosine, one_line(text)));
  }
  note_cut(cut, m);
}

}  // namespace

void add_embed_command(Command& app) {
  auto o = std::make_shared<Options>();
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
  c->footer(
      "Vectors have length 1: their inner product is the cosine. Rows get the column embedding.\n"
      "Example: qkv embed runs/books --file lines.txt --query 'a storm at sea' --pooling mean");
  c->callback([o, query] {
    o->has_query = query->count() > 0;
    run(*o);
  });
}

}  // namespace qkv
