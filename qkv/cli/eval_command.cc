// qkv eval: how well a model predicts a text.
#include "qkv/cli/eval_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/model_notes.h"
#include "qkv/data/table.h"
#include "qkv/io/auxiliary_files.h"
#include "qkv/train/corpora/conversations.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/corpora/documents.h"
#include "qkv/train/run/trainer.h"
#include "qkv/train/tasks/masked_text.h"

namespace qkv {
namespace {

// Kinds of models; eval measures each in its own way.
enum class Kind : uint8_t { language, prefix, pairs, classifier, tagger, answers, masked, encoder };
using Kinds = std::vector<Kind>;
const Kinds kPairs = {Kind::pairs, Kind::prefix, Kind::language};
const Kinds kTexts = {Kind::language, Kind::prefix, Kind::masked};
const Kinds kRestoring = {Kind::pairs, Kind::prefix};
const Kinds kCut = {Kind::pairs, Kind::prefix, Kind::language, Kind::classifier, Kind::tagger, Kind::answers};

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"a language model",
                                    "a prefix LM",
                                    "an encoder-decoder",
                                    "a classifier",
                                    "a tagger",
                                    "a model that finds answers",
                                    "a masked language model",
                                    "an encoder without a head"};
  return kNames[static_cast<int>(kind)];
}

// An option and the kinds of models that it applies to.
struct Use {
  const Option* option;
  Kinds kinds;
  Kinds restoring;  // kinds for which it also needs --objective
};

struct EvalCommandOptions : EvalOptions {
  std::vector<Use> uses;
  std::function<bool(const char*)> given;
  std::vector<const Option*> of_pairs, of_spans, of_noise;
};

Kind kind_of(const ModelSpec& spec) {
  const bool tokens = spec.output == Output::tokens;
  if (tokens && spec.order == Order::prefix) return Kind::prefix;
  if (tokens && spec.architecture == Architecture::decoder) return Kind::language;
  if (spec.architecture == Architecture::encoder_decoder) return Kind::pairs;
  switch (spec.output) {
    case Output::sequence_classes:
      return Kind::classifier;
    case Output::token_classes:
      return Kind::tagger;
    case Output::span:
      return Kind::answers;
    case Output::tokens:
      return Kind::masked;
    case Output::embedding:
      break;
  }
  return Kind::encoder;
}

// Throws UsageError for options that do not apply to this model, rather than ignoring them.
void expect_fitting(const EvalCommandOptions& o, const ModelSpec& spec) {
  const Kind kind = kind_of(spec);
  for (const Use& use : o.uses) {
    if (use.option->count() == 0) continue;
    const std::string name = use.option->name();
    if (std::ranges::find(use.restoring, kind) != use.restoring.end()) {
      if (o.objective.empty())
        throw UsageError(
            fmt::format("{}: {} is {}: it goes with --objective here", name, o.dir, name_of(kind)));
    } else if (std::ranges::find(use.kinds, kind) == use.kinds.end()) {
      std::vector<const char*> all;
      for (const Kinds& some : {use.kinds, use.restoring})
        for (const Kind k : some) all.push_back(name_of(k));
      throw UsageError(
          fmt::format("{}: only for {}; {} is {}", name, fmt::join(all, " or "), o.dir, name_of(kind)));
    }
  }
  if (o.given("--label-separator") && spec.problem != Problem::multi_label)
    throw UsageError(fmt::format(
        "--label-separator: only for models with several labels per text, which {} is not", o.dir));
  if (o.given("--choice-columns") && spec.problem != Problem::multiple_choice)
    throw UsageError(
        fmt::format("--choice-columns: only for models of multiple choice, which {} is not", o.dir));
}

// Loss of restoring removed spans, or a noised text.
void run_on_restored(const EvalCommandOptions& o, const TextModel& m) {
  for (const Option* option : o.of_pairs)
    if (option->count() > 0)
      throw UsageError(
          fmt::format("{}: judges pairs, not how a text is restored (--objective)", option->name()));
  for (const auto* options : {&o.of_spans, &o.of_noise}) {
    const bool acts = o.objective == (options == &o.of_spans ? "span_corruption" : "denoise");
    for (const Option* option : *options)
      if (!acts && option->count() > 0)
        throw UsageError(fmt::format("{}: not of --objective {}", option->name(), o.objective));
  }
  if (o.objective == "prefix_lm" && o.given("--span-length"))
    throw UsageError("--span-length: not of --objective prefix_lm");
  const SequenceEnds ends = sequence_model(m, o.dir).ends;
  Restoration r = o.restoration;
  r.objective = from_name<Objective>(o.objective);
  r.spans.mean_length = r.noise.mean_length = o.span_length;
  r.noise.permute = !o.keep_order;
  try {
    r = restoration_for(m.tokenizer, std::move(r));
  } catch (const Error& e) {
    fail("{}: {}", o.dir, e.what());
  }
  const TokenStream stream = stream_of(o, m);
  const std::vector<Piece> pieces = pieces_of(stream, restorable_tokens(m.model->spec(), r));
  check(!pieces.empty(), "{}: there is no token to restore", o.data);
  const Evaluation e = evaluate_restored(*m.model, stream, pieces, r, ends, o.batch_tokens, o.mask_seed);
  if (o.json) {
    const OrderedJson out = {{"loss", e.loss()},           {"perplexity", e.perplexity()},
                             {"target_tokens", e.tokens},  {"tokens", stream.size()},
                             {"sequences", pieces.size()}, {"objective", o.objective},
                             {"seed", o.mask_seed}};
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  fmt::print("loss                {:.4f} nats per target token ({} for {} tokens in {} sequences)\n",
             e.loss(), e.tokens, stream.size(), pieces.size());
  fmt::print("perplexity          {:.2f}\n", e.perplexity());
}

// If the data are conversations and the model has a chat template, prints the loss of the assistant's
// messages and returns true.
bool run_on_conversations(const EvalCommandOptions& o, const TextModel& m) {
  if (format_of(o.data, file_options(o.columns)) != FileFormat::jsonl) return false;
  const auto chat = chat_template_of(resolve_model_dir(o.dir));
  if (!chat) return false;
  const std::vector<Conversation> all = read_conversations({o.data}, file_options(o.columns));
  const Evaluation e = evaluate(
      *m.model, encode_conversations(all, *chat, m.tokenizer, m.model->spec().longest()), o.batch_tokens);
  expect_uncut(o, m, e.cut, "conversations");
  check(e.tokens > 0, "{}: nothing to predict", o.data);
  if (o.json) {
    const OrderedJson out = {{"loss", e.loss()},
                             {"perplexity", e.perplexity()},
                             {"tokens", e.tokens},
                             {"conversations", all.size()}};
    std::printf("%s\n", out.dump().c_str());
    return true;
  }
  fmt::print("loss                {:.4f} nats per token ({} tokens of the assistant in {} conversations)\n",
             e.loss(), e.tokens, all.size());
  fmt::print("perplexity          {:.2f}\n", e.perplexity());
  return true;
}

// True if a decoder is evaluated on pairs.
bool holds_pairs(const EvalCommandOptions& o, const TextModel& m) {
  const bool learnt_pairs = m.model->spec().order == Order::prefix || m.special.decoder_start >= 0;
  return !o.target.empty() || (learnt_pairs && is_of_rows(o.data, file_options(o.columns)));
}

void run_eval(EvalCommandOptions o) {
  const TextModel m = load(o.dir, compute_type(o.dtype));
  print_model_notes(o.dir, *m.model);
  const ModelSpec& spec = m.model->spec();
  take_settings_of_run(o, spec, o.given);
  expect_fitting(o, spec);
  if (spec.architecture == Architecture::encoder || spec.output != Output::tokens) return eval_encoder(o, m);
  if (!o.objective.empty()) return run_on_restored(o, m);
  if (spec.architecture == Architecture::encoder_decoder || holds_pairs(o, m)) return eval_pairs(o, m);
  if (o.errors > 0)
    throw UsageError("--errors: the loss of a text has no mistakes to list: give pairs (--target, or rows)");
  if (run_on_conversations(o, m)) return;
  const auto& model = m.model;
  const TokenStream stream = stream_of(o, m);
  check(stream.size() >= 2, "{}: too short: nothing to predict", o.data);
  const Evaluation e = evaluate(*model, stream, o.batch);
  check(e.tokens > 0, "{}: nothing to predict: every document has one token", o.data);
  if (e.characters == 0)
    fmt::print(stderr,
               "note: the vocabulary lacks some of the text: no losses of its characters and bytes\n");
  if (o.json) {
    OrderedJson out = {{"loss", e.loss()}, {"perplexity", e.perplexity()}, {"tokens", e.tokens}};
    if (e.characters > 0) {
      out["nats_per_character"] = e.nats_per_character();
      out["bits_per_byte"] = e.bits_per_byte();
      out["characters"] = e.characters;
    }
    for (const auto& [name, value] : e.losses) out["loss_" + name] = value;
    std::printf("%s\n", out.dump().c_str());
  } else {
    print(losses_text(e, ""));
    for (const auto& [name, value] : e.losses)
      print(fmt::format("{:<20}{:.4f} nats per token\n", "loss of " + name, value));
  }
}

}  // namespace

std::string json_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string losses_text(const Evaluation& e, const char* of) {
  std::string out =
      fmt::format("loss                {:.4f} nats per token ({} tokens{})\n", e.loss(), e.tokens, of);
  out += fmt::format("perplexity          {:.2f}\n", e.perplexity());
  if (e.characters == 0) return out;  // targets were truncated, or the text has unknown tokens
  out += fmt::format("nats per character  {:.4f} ({} characters)\n", e.nats_per_character(), e.characters);
  return out + fmt::format("bits per byte       {:.4f}\n", e.bits_per_byte());
}

TokenStream stream_of(const EvalOptions& o, const TextModel& m) {
  DataConfig data = o.columns;
  data.separator = o.separator;
  if (data.text_column.empty()) data.text_column = DataConfig().text_column;
  Notes notes;
  TokenStream stream = tokenize_file(o.data, data, m.tokenizer, &notes);
  print_notes(notes);
  return stream;
}

void expect_uncut(const EvalOptions& o, const TextModel& m, int64_t cut, const char* what) {
  check(!o.strict || cut == 0,
        "{}: {} {} are longer than the model's {} tokens (without --strict they are cut)", o.data, cut, what,
        m.model->spec().context);
}

namespace {

// Adds the options, one group at a time.
class OptionGroups {
 public:
  OptionGroups(Command& command, EvalCommandOptions& options) : c_(command), o_(options) {}

  void add_data() {
    c_.add_option("DIR", o_.dir, "Model directory or run")->required();
    c_.add_option("--data", o_.data,
                  "Text file; rows (.tsv, .csv, .jsonl); conversations (.jsonl, for a model with a chat "
                  "template); tagged words; or sources beside --target")
        ->required();
    only(kPairs, c_.add_option("--target", o_.target, "File with the targets, line by line with --data"));
    c_.add_option("--format", o_.columns.format, "Format of --data (default: by its extension)")
        ->one_of({"auto", "text", "tsv", "csv", "jsonl", "conll", "conllu"});
    only(kTexts, c_.add_option("--separator", o_.separator, "String that separates documents in a text file"),
         {Kind::pairs});
    c_.add_option("--delimiter", o_.columns.delimiter,
                  "Character between columns of rows (default: comma, in .tsv a tab)");
    c_.add_flag("--keep-carriage-returns", o_.columns.keep_carriage_returns,
                "Keep Windows line ends in texts instead of reading \\r\\n as \\n");
    only(kCut,
         c_.add_flag("--strict", o_.strict,
                     "Reject texts that are longer than the model's context instead of truncating them"));
  }

  void add_columns() {
    only(kPairs, c_.add_option("--source-column", o_.columns.source_column, "Column with the source text")
                     ->show_default());
    only(kPairs, c_.add_option("--target-column", o_.columns.target_column, "Column with the target text")
                     ->show_default());
    only(kPairs,
         c_.add_option("--prefix", o_.columns.prefix, "Text placed before each source (see data.prefix)"));
    only({Kind::classifier, Kind::answers, Kind::encoder, Kind::tagger, Kind::language, Kind::prefix,
          Kind::masked},
         c_.add_option(
             "--text-column", o_.columns.text_column,
             "Column with the text or the question (default: text, question, or tokens in .jsonl with tags)"),
         {Kind::pairs});
    only({Kind::classifier, Kind::answers, Kind::encoder},
         c_.add_option("--second-column", o_.columns.second_column,
                       "Column with the second text of a pair or the context of a question (default: none, "
                       "or context)"));
    only({Kind::classifier, Kind::tagger, Kind::answers},
         c_.add_option("--label-column", o_.columns.label_column,
                       "Column with the label or the answer (default: label, answer, or ner_tags or tags in "
                       ".jsonl with tags)"));
    only({Kind::classifier},
         c_.add_option("--label-separator", o_.columns.label_separator,
                       "Text between the labels of a row that has several (default: a comma)"));
    only({Kind::classifier},
         c_.add_option("--choice-columns", o_.columns.choice_columns,
                       "Column of JSON lists with a question's choices, or one column per choice: a,b,c "
                       "(default: choices)")
             ->delimiter(','));
    only({Kind::classifier, Kind::answers, Kind::encoder, Kind::language, Kind::prefix, Kind::masked,
          Kind::pairs},
         c_.add_option("--columns", o_.columns.columns, "Column names for a file without a header: a,b,c")
             ->delimiter(','));
    only({Kind::tagger},
         c_.add_option("--word-column", o_.columns.word_column,
                       "Column of the word in tagged files, from 1 (default: 1, or 2 in .conllu)")
             ->range(1, 1000));
    only({Kind::tagger},
         c_.add_option("--tag-column", o_.columns.tag_column,
                       "Column of the tag in tagged files, from 1 (default: the last, or 4 in .conllu)")
             ->range(1, 1000));
  }

  // Options for masking, and for corruption that the model restores.
  void add_corruption() {
    only({Kind::masked}, c_.add_option("--mask-rate", o_.masking.rate, "Share of tokens to mask")
                             ->show_default()
                             ->range(0.001, 0.9));
    only({Kind::masked},
         c_.add_option("--mask-seed", o_.mask_seed,
                       "Random seed of masking and corruption (default: that of validation in training)"),
         kRestoring);
    only(kRestoring, c_.add_option("--objective", o_.objective,
                                   "Corrupt the text and measure how well the model restores it; use the "
                                   "objective that the model was trained with")
                         ->one_of({"span_corruption", "denoise", "prefix_lm"}));
    only({},
         c_.add_option("--span-density", o_.restoration.spans.density,
                       "span_corruption: share of tokens removed")
             ->show_default()
             ->range(0.001, 0.9),
         kRestoring);
    only({},
         c_.add_option("--span-length", o_.span_length,
                       "span_corruption and denoise: mean length of a span in tokens")
             ->show_default()
             ->range(1.0, 1000.0),
         kRestoring);
    only({},
         c_.add_option("--infill", o_.restoration.noise.infill,
                       "denoise: share of tokens replaced by span masks")
             ->show_default()
             ->range(0.0, 0.9),
         kRestoring);
    only({},
         c_.add_option("--deletion", o_.restoration.noise.deletion,
                       "denoise: share of the remaining tokens that are deleted")
             ->show_default()
             ->range(0.0, 0.9),
         kRestoring);
    only({}, c_.add_flag("--keep-order", o_.keep_order, "denoise: do not shuffle sentences"), kRestoring);
  }

  void add_scores() {
    only(kPairs, c_.add_option("--beams", o_.beams,
                               "Beam width of the translations that BLEU scores (default: 4, or num_beams of "
                               "generation_config.json)")
                     ->range(1, 1024));
    only(kPairs, c_.add_option("--bleu-tokenize", o_.bleu_tokenize,
                               "Tokenizer of sacreBLEU (default: 13a; zh for Chinese; char for Japanese, "
                               "Thai, Lao, Khmer and Myanmar)")
                     ->one_of({"auto", "none", "13a", "char", "zh", "intl"}));
    only(kCut, c_.add_option("--errors", o_.errors, "List this many mistakes, worst first (default: 20)")
                   ->when_bare("20")
                   ->range(1, 1 << 30));
    c_.add_flag("--json", o_.json, "Print one JSON object");
  }

  void add_computing() {
    only({Kind::language, Kind::prefix},
         c_.add_option("--batch", o_.batch, "Windows per batch")->range(1, 100000));
    c_.add_option("--batch-tokens", o_.batch_tokens, "Tokens per batch (models other than language models)")
        ->show_default()
        ->range(2, 1 << 24);
    c_.add_option("--dtype", o_.dtype, "Precision of matrix products: f32 or bf16")->one_of({"f32", "bf16"});
  }

 private:
  void only(const Kinds& kinds, const Option* option, const Kinds& restoring = {}) {
    o_.uses.push_back({option, kinds, restoring});
  }

  Command& c_;
  EvalCommandOptions& o_;
};

}  // namespace

void add_eval_command(Command& app) {
  auto o = std::make_shared<EvalCommandOptions>();
  // Defaults for rows depend on the model.
  o->columns.text_column = o->columns.label_column = "";
  o->mask_seed = kValidationMask;
  Command* c = app.add_subcommand("eval", "Evaluate a model on held-out data");
  OptionGroups groups(*c, *o);
  groups.add_data();
  groups.add_columns();
  groups.add_corruption();
  groups.add_scores();
  groups.add_computing();
  c->footer(
      "A language model predicts the text in windows of its context that do not overlap. BLEU and chrF are\n"
      "computed as in sacreBLEU, ROUGE-L as in rouge_score. The part of a text beyond the model's context\n"
      "counts as wrong. Masking works as in training: eight of ten chosen tokens become the mask.\n"
      "Examples:\n"
      "  qkv eval runs/shakespeare --data other.txt\n"
      "  qkv eval runs/en-de --data test.en --target test.de\n"
      "  qkv eval runs/trec --data test.tsv --label-column coarse --json");
  for (const char* name : {"--target", "--source-column", "--target-column", "--prefix", "--beams",
                           "--strict", "--bleu-tokenize", "--errors"})
    o->of_pairs.push_back(c->get_option(name));
  o->of_spans = {c->get_option("--span-density")};
  o->of_noise = {c->get_option("--infill"), c->get_option("--deletion"), c->get_option("--keep-order")};
  o->given = [c](const char* option) { return c->get_option(option)->count() > 0; };
  c->callback([o] { run_eval(*o); });
}

}  // namespace qkv
