// qkv chat: a conversation in the terminal, or what one looks like to the model.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <random>

#include "qkv/api/chat_session.h"
#include "qkv/api/text_model.h"
#include "qkv/base/cache_folder.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/draft_options.h"
#include "qkv/cli/generation_options.h"
#include "qkv/cli/line_editor.h"
#include "qkv/cli/model_notes.h"
#include "qkv/io/auxiliary_files.h"

namespace qkv {
namespace {

struct ChatOptions {
  std::string dir, system, render, dtype = "f32", prompt_cache;
  bool no_prompt_cache = false;
  GenerationOptions generation;
  DraftOptions draft;
};

text::ChatTemplate template_of(const std::string& path) {
  const std::string dir = resolve_model_dir(path);
  const auto found = chat_template_of(dir);
  check(found.has_value(),
        "{} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): use qkv "
        "generate for plain text",
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

constexpr const char* kCommands =
    "/reset begins a new conversation, /exit (or Ctrl-D, or an empty line) ends this one, /help prints "
    "this.\n";

// Asks the model and streams its answer to standard output.
void exchange(const TextModel& m, Engine& engine, ChatSession& session, const std::string& message,
              const GenerateOptions& options) {
  const int64_t longest = session.longest(), left_out = session.left_out();
  const int64_t room = std::min(options.max_new_tokens, std::max<int64_t>(1, longest / 4));
  const std::vector<int32_t> ids = session.ask(message, room);
  if (session.left_out() > left_out)
    fmt::print(
        stderr,
        "note: the conversation is longer than the model's {} tokens: it no longer reads the oldest {} "
        "messages\n",
        longest, session.left_out());
  const auto show = [](int32_t, std::string_view piece) {
    print(std::string(piece));
    return true;
  };
  const std::string text = complete(m, ids, options, show, &engine);
  print("\n");
  session.answer(text);
}

// The folder of what the model has read; empty: none.
std::string prompt_folder(const ChatOptions& o) {
  if (o.no_prompt_cache || !o.prompt_cache.empty()) return o.prompt_cache;
  const std::string folder = cache_folder();
  return folder.empty() ? folder : folder + "/prompts";
}

void run_chat(const ChatOptions& o) {
  const text::ChatTemplate chat = template_of(o.dir);
  if (!o.render.empty()) {
    const char* why = "has no effect with --render, which asks no model";
    for (const GenerationField& field : generation_fields())
      if (o.generation.has(field.key)) throw UsageError(fmt::format("{}: {}", field.option, why));
    if (!o.system.empty()) throw UsageError(fmt::format("--system: {}", why));
    for (const auto& [option, given] : {std::pair("--draft", !o.draft.by.empty()),
                                        {"--draft-tokens", o.draft.tokens != 0},
                                        {"--prompt-cache", !o.prompt_cache.empty()},
                                        {"--no-prompt-cache", o.no_prompt_cache}})
      if (given) throw UsageError(fmt::format("{}: {}", option, why));
    return print(chat.render(conversation_of(o.render), std::time(nullptr)).text);
  }
  const TextModel m = load_language_model(o.dir, compute_type(o.dtype));
  print_model_notes(o.dir, *m.model);
  GenerateOptions options = resolve_generation(o.generation, m, "", false).settings.drawing;
  if (!o.generation.has("seed")) options.seed = std::random_device{}();
  ChatSession session(m, chat, o.system);
  // Only new messages are read; the rest of the conversation is remembered.
  constexpr int64_t kMostKept = 1 << 14;
  const Ensemble ensemble(*m.model);
  expect_drafts(o.draft, ensemble);
  const Drafts drafts(o.draft, m, compute_type(o.dtype));
  EngineOptions engine_options = {.kept_tokens = std::min(kMostKept, m.model->spec().longest())};
  std::optional<PromptCache> cache;
  if (!o.prompt_cache.empty() && !looks_back(m.model->spec()))
    throw UsageError("--prompt-cache: has no effect: this model reads a prompt as a whole");
  if (const std::string folder = prompt_folder(o); !folder.empty() && looks_back(m.model->spec())) {
    cache.emplace(folder, ensemble);
    engine_options.prompt_cache = &*cache;
  }
  Engine engine(ensemble, drafts.with(engine_options));
  LineEditor editor("> ");
  if (!editor.at_terminal()) expect_standard_input();
  if (editor.at_terminal()) fmt::print(stderr, "{}", kCommands);
  for (;; ++options.seed) {
    const std::optional<std::string> line = editor.read();
    if (!line || line->empty() || *line == "/exit") break;
    if (*line == "/help") {
      fmt::print(stderr, "{}", kCommands);
    } else if (*line == "/reset") {
      session.reset();
      if (editor.at_terminal()) fmt::print(stderr, "The model has forgotten the conversation.\n");
    } else {
      try {
        exchange(m, engine, session, *line, options);
      } catch (const Error& e) {
        if (!editor.at_terminal()) throw;
        fmt::print(stderr, "{}\n", e.what());  // a shorter message may do
      }
    }
  }
  if (cache) engine.save_kept(*cache);
  drafts.print_note(engine);
}

}  // namespace

void add_chat_command(Command& app) {
  auto o = std::make_shared<ChatOptions>();
  Command* c = app.add_subcommand("chat", "Chat with a model in the terminal");
  c->add_option("DIR", o->dir, "Model directory or run with a chat template")->required();
  c->add_option("--system", o->system, "System message");
  add_generation_options(*c, o->generation, GenerationKind::drawing, "");
  add_draft_options(*c, o->draft);
  auto* cache = c->add_option("--prompt-cache", o->prompt_cache,
                              "Folder that keeps what the model has read (default: ~/.cache/qkv/prompts)");
  c->add_flag("--no-prompt-cache", o->no_prompt_cache, "Keep nothing on disk")->excludes(cache);
  c->add_option("--render", o->render,
                "Print the formatted conversation in this JSON file and exit: a list of {\"role\", "
                "\"content\"}, or an object with messages, tools, ...");
  c->add_option("--dtype", o->dtype, "Precision of matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c->footer(
      "The directory's chat_template says how a conversation is written, its generation_config.json how "
      "answers "
      "are drawn\nunless an option says otherwise. The lines /reset, /exit and /help are commands. When the "
      "conversation is\nlonger than the model can read, its oldest messages are left out.\n"
      "Example: qkv chat models/assistant --system 'Answer in one sentence.' --temperature 0.7");
  c->callback([o, c] {
    o->generation.take(*c);
    run_chat(*o);
  });
}

}  // namespace qkv
