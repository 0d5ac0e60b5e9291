// qkv chat: a conversation in the terminal, or what one looks like to the model.
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <iostream>
#include <optional>
#include <random>

#include "qkv/api/text_model.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/io/companions.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

struct Options {
  std::string dir, system, render, dtype = "f32";
  std::optional<int64_t> tokens, top_k;
  std::optional<double> temperature, top_p;
  std::optional<uint64_t> seed;
};

text::ChatTemplate template_of(const std::string& path) {
  const std::string dir = resolve_model_dir(path);
  const auto found = chat_template_of(dir);
  check(found.has_value(),
        "{}: it says not how conversations are written: expected chat_template.jinja, or chat_template in "
        "tokenizer_config.json (qkv generate continues plain text)",
        dir);
  return *found;
}

// A file of messages, or of an object that holds them and what else the template reads.
OrderedJson conversation_of(const std::string& file) {
  const std::string name = input_name(file);
  const std::string text = read_input(file);
  parse_json(text, name);  // refuses what is malformed, or nested too deep
  OrderedJson json = OrderedJson::parse(text);
  if (json.is_array()) json = {{"messages", std::move(json)}, {"add_generation_prompt", true}};
  check(json.is_object() && json.contains("messages"),
        "{}: expected a list of messages, or an object with \"messages\"", name);
  return json;
}

// The model's answer, streamed to standard output.
std::string answer(const TextModel& m, const text::ChatTemplate& chat, const OrderedJson& messages,
                   const GenerateOptions& options) {
  const std::string prompt =
      chat.render({{"messages", messages}, {"add_generation_prompt", true}}, std::time(nullptr)).text;
  const std::vector<int32_t> ids = m.tokenizer.encode(prompt, false).ids;
  const int64_t longest = m.model->spec().longest();
  check(std::ssize(ids) < longest,
        "the conversation has {} tokens, which leave no room in the model's {}: begin another", ids.size(),
        longest);
  const std::string text = complete(m, ids, options, [](int32_t, std::string_view piece) {
    print(std::string(piece));
    return true;
  });
  print("\n");
  return text;
}

GenerateOptions settled(const Options& o, const TextModel& m) {
  GenerateOptions g = m.generation;
  g.max_new_tokens = o.tokens.value_or(g.max_new_tokens);
  if (o.tokens) g.rules.max_length = 0;
  g.sampler.temperature = o.temperature.value_or(g.sampler.temperature);
  g.sampler.top_k = o.top_k.value_or(g.sampler.top_k);
  g.sampler.top_p = o.top_p.value_or(g.sampler.top_p);
  if ((o.top_k || o.top_p) && o.temperature == 0.0)
    throw UsageError(fmt::format("{}: has no effect with --temperature 0, which always takes the likeliest",
                                 o.top_k ? "--top-k" : "--top-p"));
  if ((o.top_k || o.top_p) && !o.temperature && g.sampler.temperature == 0)
    g.sampler.temperature = 1;  // who says how to draw wants to
  g.seed = o.seed ? *o.seed : std::random_device{}();
  naming_option("", [&] { check_options(g.sampler); });
  return g;
}

void run(const Options& o) {
  const text::ChatTemplate chat = template_of(o.dir);
  if (!o.render.empty()) return print(chat.render(conversation_of(o.render), std::time(nullptr)).text);
  const TextModel m = load_language_model(o.dir, compute_type(o.dtype));
  GenerateOptions options = settled(o, m);
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  if (terminal) fmt::print(stderr, "An empty line, or Ctrl-D, ends the conversation.\n");
  text::check_utf8(o.system, "--system");
  OrderedJson messages = OrderedJson::array();
  if (!o.system.empty()) messages.push_back({{"role", "system"}, {"content", o.system}});
  for (std::string line;; ++options.seed) {
    if (terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line) || line.empty()) break;
    text::check_utf8(line, "standard input");
    messages.push_back({{"role", "user"}, {"content", line}});
    messages.push_back({{"role", "assistant"}, {"content", answer(m, chat, messages, options)}});
  }
}

}  // namespace

void add_chat_command(Command& app) {
  auto o = std::make_shared<Options>();
  Command* c = app.add_subcommand("chat", "Talk with a model, a line at a time");
  c->add_option("DIR", o->dir, "Model directory or run with a chat template")->required();
  c->add_option("--system", o->system, "What the model is told before the conversation");
  c->add_option("--tokens", o->tokens, "New tokens of an answer at most (default 128)")
      ->range(int64_t{1}, int64_t{1} << 40);
  c->add_option("--temperature", o->temperature, "0: always the most likely token; 1: faithful (default 1)");
  c->add_option("--top-k", o->top_k, "Only the k most likely tokens; 0: all");
  c->add_option("--top-p", o->top_p, "Only the most likely tokens that together reach this probability");
  c->add_option("--seed", o->seed, "Same seed, same answers (default: a new one each time)");
  c->add_option("--render", o->render,
                "Print what the model would read of the messages in this JSON file, and end: a list of "
                "{\"role\", \"content\"}, or an object with messages, tools, ...");
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c->footer(
      "The directory's chat_template says how a conversation is written, its generation_config.json how "
      "answers "
      "are drawn\nunless an option says otherwise.\n"
      "Example: qkv chat models/assistant --system 'Answer in one sentence.' --temperature 0.7");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
