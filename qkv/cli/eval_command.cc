// qkv eval: how well a model predicts a text.
#include <cstdio>

#include "qkv/base/json.h"
#include "qkv/cli/command.h"
#include "qkv/cli/text_model.h"
#include "qkv/text/bleu.h"
#include "qkv/train/corpus.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

struct Options {
  std::string dir, data, target, separator, dtype = "f32";
  DataConfig columns;
  int64_t batch = 16, beams = 4;
  bool json = false;
};

void print_losses(const Evaluation& e, const char* of) {
  fmt::print("loss                {:.4f} nats a token ({} tokens{})\n", e.loss(), e.tokens, of);
  fmt::print("perplexity          {:.2f}\n", e.perplexity());
  fmt::print("nats per character  {:.4f} ({} characters)\n", e.nats_per_character(), e.characters);
  fmt::print("bits per byte       {:.4f}\n", e.bits_per_byte());
}

// Loss of the targets, and BLEU of what the model writes itself.
void run_on_pairs(const Options& o, const TextModel& m) {
  const SequenceModel sequence = sequence_model(m, o.dir);
  const PairTexts texts =
      read_pairs({o.data}, o.target.empty() ? std::vector<std::string>{} : std::vector{o.target}, o.columns);
  check(!texts.source.empty(), "{}: there is no pair", o.data);
  constexpr int64_t kTokens = 4096;
  const Evaluation e =
      evaluate(*m.model, tokenize_pairs(texts, m.tokenizer), {sequence.bos, sequence.eos}, kTokens);
  BeamOptions beam;
  beam.beams = o.beams;
  const Translations found = translate(sequence, texts.source, beam);
  std::vector<std::string> outputs;
  for (const auto& best : found.best) outputs.push_back(best.front().text);
  const text::Bleu bleu = text::corpus_bleu(outputs, texts.target);
  int64_t exact = 0;
  for (size_t i = 0; i < outputs.size(); ++i) exact += outputs[i] == texts.target[i];
  const double matches = static_cast<double>(exact) / static_cast<double>(outputs.size());
  if (o.json) {
    const OrderedJson out = {
        {"loss", e.loss()},       {"perplexity", e.perplexity()},      {"tokens", e.tokens},
        {"bleu", bleu.score},     {"signature", text::kBleuSignature}, {"beams", o.beams},
        {"exact_match", matches}, {"pairs", texts.source.size()}};
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  print_losses(e, " of targets");
  fmt::print("{}\n", bleu.text());
  fmt::print("signature           {}, beams {}\n", text::kBleuSignature, o.beams);
  fmt::print("exact match         {:.2f}% of {}\n", 100 * matches, texts.source.size());
}

void run(const Options& o) {
  TextModel m = load_text_model(o.dir, o.dtype);
  if (m.model->spec().architecture == Architecture::encoder_decoder) return run_on_pairs(o, m);
  check(m.model->spec().architecture == Architecture::decoder, "{}: an encoder does not predict texts",
        o.dir);
  if (!o.target.empty()) throw UsageError("--target: only for an encoder-decoder");
  const auto& model = m.model;
  const TokenStream stream = tokenize_file(o.data, o.separator, m.tokenizer);
  check(stream.size() >= 2, "{}: too short: nothing to predict", o.data);
  const Evaluation e = evaluate(*model, stream, o.batch);
  check(e.tokens > 0, "{}: nothing to predict: every document has one token", o.data);
  if (o.json) {
    const OrderedJson out = {{"loss", e.loss()},
                             {"perplexity", e.perplexity()},
                             {"nats_per_character", e.nats_per_character()},
                             {"bits_per_byte", e.bits_per_byte()},
                             {"tokens", e.tokens},
                             {"characters", e.characters}};
    std::printf("%s\n", out.dump().c_str());
  } else {
    print_losses(e, "");
  }
}

}  // namespace

void add_eval_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("eval", "Measure how well a model predicts a text, or translates");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  c->add_option("--data", o->data,
                "Text file; for an encoder-decoder rows (.tsv, .csv, .jsonl), or sources beside --target")
      ->required();
  c->add_option("--target", o->target, "Text whose lines are the targets of --data's lines");
  c->add_option("--source-column", o->columns.source_column, "Of rows: what the model reads")
      ->capture_default_str();
  c->add_option("--target-column", o->columns.target_column, "Of rows: what it should write")
      ->capture_default_str();
  c->add_option("--beams", o->beams, "Hypotheses that are followed for BLEU")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_option("--separator", o->separator, "Divides the file into documents");
  c->add_option("--batch", o->batch, "Windows at a time")->check(CLI::Range(1, 100000));
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  c->add_flag("--json", o->json, "Print one JSON object");
  c->footer(
      "The text is predicted in windows of the model's context that do not overlap. Of an encoder-decoder, "
      "BLEU is\n"
      "computed as sacreBLEU does.\nExamples:\n  qkv eval runs/shakespeare --data other.txt\n"
      "  qkv eval runs/en-de --data test.en --target test.de");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
