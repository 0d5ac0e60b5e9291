// qkv translate, or qkv summarize: what an encoder-decoder writes for each line.
#include <cstdio>
#include <set>

#include "qkv/api/text_model.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/data/table.h"
#include "qkv/infer/translate.h"

namespace qkv {
namespace {

struct Options {
  std::string dir, file, prefix, begin, dtype = "f32";
  BeamOptions beam;
  int64_t best = 1, batch_tokens = 2048;
  bool json = false, strict = false, stop_early = false;
  std::set<std::string> given;  // of its options
};

OrderedJson json_of(const Translation& t) {
  return {{"text", t.text}, {"logprob", t.log_probability}, {"score", t.score}};
}

void run(const Options& o) {
  const TextModel m = load(o.dir, compute_type(o.dtype));
  const SequenceModel sequence = sequence_model(m, o.dir);
  BeamOptions beam = m.beam;
  if (o.given.contains("--beams")) beam.beams = o.beam.beams;
  if (o.given.contains("--length-penalty")) beam.length_penalty = o.beam.length_penalty;
  if (o.given.contains("--tokens")) beam.max_new_tokens = o.beam.max_new_tokens;
  if (o.given.contains("--no-repeat-ngram")) beam.no_repeat_ngram = o.beam.no_repeat_ngram;
  if (o.stop_early) beam.stop = BeamOptions::Stop::early;
  if (o.best > beam.beams)
    throw UsageError(fmt::format("--best: {} of {} beams (see --beams)", o.best, beam.beams));
  const std::vector<std::string> lines = lines_of(read_input(o.file));
  constexpr size_t kAtOnce = 1024;  // lines: sorted by length among each other, printed when all are there
  int64_t cut = 0;
  for (size_t first = 0; first < lines.size(); first += kAtOnce) {
    const std::vector<std::string> part(
        lines.begin() + static_cast<int64_t>(first),
        lines.begin() + static_cast<int64_t>(std::min(first + kAtOnce, lines.size())));
    std::vector<std::string> sources = part;
    for (std::string& source : sources)
      if (!source.empty()) source.insert(0, o.prefix);
    const Translations t = translate(
        sequence, sources, beam, o.batch_tokens,
        o.begin.empty() ? std::vector<std::string>() : std::vector<std::string>(part.size(), o.begin));
    check(!o.strict || t.cut == 0,
          "{}: {} lines are longer than the model's {} tokens (without --strict they are cut)",
          input_name(o.file), t.cut, longest_source(m.model->spec(), sequence.ends));
    cut += t.cut;
    std::string out;
    for (size_t i = 0; i < part.size(); ++i) {
      const auto& best = t.best[i];
      if (!o.json) {
        for (size_t b = 0; b < std::min(best.size(), static_cast<size_t>(o.best)); ++b)
          out += best[b].text + "\n";
        continue;
      }
      OrderedJson line = {{"source", part[i]}};
      line.update(json_of(best.front()));
      if (o.best > 1)
        for (size_t b = 0; b < std::min(best.size(), static_cast<size_t>(o.best)); ++b)
          line["best"].push_back(json_of(best[b]));
      out += line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
    }
    print(out);
  }
  if (cut > 0)
    fmt::print(stderr, "note: {} lines are longer than the model's {} tokens and were cut\n", cut,
               longest_source(m.model->spec(), sequence.ends));
}

// What the target of a line is, the model has learnt; the names are for people.
void add_writer(CLI::App& app, const std::string& name, const std::string& description) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand(name, description);
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  c->add_option("--file", o->file, "Lines to translate (default: standard input)");
  c->add_option("--prefix", o->prefix, "Stands before each line (see data.prefix of a run)");
  c->add_option("--beams", o->beam.beams, "Hypotheses that are followed; 1: greedy")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_option("--length-penalty", o->beam.length_penalty,
                "Hypotheses are compared by log P / length^this: more favours long ones")
      ->capture_default_str();
  c->add_option("--tokens", o->beam.max_new_tokens, "Length of an output at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  c->add_option("--no-repeat-ngram", o->beam.no_repeat_ngram,
                "No n-gram of this length occurs twice; 0: any may")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  c->add_option("--begin", o->begin, "Text that every output begins with");
  c->add_flag("--stop-early", o->stop_early, "A line is done when it has as many outputs as beams");
  c->add_option("--best", o->best, "Outputs of each line, best first")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_option("--batch-tokens", o->batch_tokens, "Source tokens at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
  c->add_flag("--strict", o->strict, "Refuse lines beyond the model's length instead of cutting them");
  c->add_flag("--json", o->json, "Print a JSON object a line, with log-probabilities");
  c->footer(
      fmt::format("Lines stay in their order, and an empty line stays empty. What the model's "
                  "generation_config.json says "
                  "of beams\n(num_beams, length_penalty, ...) holds unless an option says "
                  "otherwise.\nExample: qkv {} runs/model --file "
                  "in.txt > out.txt",
                  name));
  c->callback([o, c] {
    for (const CLI::Option* option : c->get_options())
      if (option->count() > 0) o->given.insert(option->get_name());
    run(*o);
  });
}

}  // namespace

void add_translate_command(CLI::App& app) {
  add_writer(app, "translate", "Write a target for each line, with an encoder-decoder");
  add_writer(app, "summarize", "Write a shorter text for each line, with an encoder-decoder trained for it");
}

}  // namespace qkv
