// qkv: the command line. Exit status: 0 done, 1 failed, 2 wrong usage; one line on stderr says why.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "qkv/base/version.h"
#include "qkv/cli/command.h"
#include "qkv/cli/tokenizer_command.h"

namespace {

// What was wrong with the command line. CLI11 reports what is missing before what it did not know: a mistyped
// subcommand or option is then the better explanation.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "qkv";
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    command += " " + last->get_name();
  }
  const std::vector<std::string> unknown = app.remaining(true);
  std::string what = error.what();
  if (!unknown.empty()) {
    const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
    const auto option = std::find_if(unknown.begin(), unknown.end(), is_option);
    const bool wants_subcommand = last->get_require_subcommand_min() > 0;
    if (option != unknown.end())
      what = "unknown option '" + *option + "'";
    else if (wants_subcommand)
      what = "unknown subcommand '" + unknown.front() + "'";
    else
      what = "unexpected argument '" + unknown.front() + "'";
  }
  std::replace(what.begin(), what.end(), '\n', ' ');  // one line, whatever was typed
  return what + " (see " + command + " --help)";
}

}  // namespace

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);
  CLI::App app{"qkv trains and runs transformers natively.", "qkv"};
  app.set_version_flag("--version", fmt::format("qkv {}", qkv::version()));
  app.require_subcommand(1);
  app.fallthrough();  // global options may follow the subcommand; before the subcommands, which inherit it
  int threads = 0;
  app.add_option("--threads", threads, "Threads to use (default: OMP_NUM_THREADS, or every processor)")
      ->check(CLI::Range(1, 4096));
  app.parse_complete_callback([&] {
    if (threads > 0) qkv::set_num_threads(threads);
  });
  qkv::add_train_command(app);
  qkv::add_plan_command(app);
  qkv::add_eval_command(app);
  qkv::add_generate_command(app);
  qkv::add_chat_command(app);
  qkv::add_score_command(app);
  qkv::add_translate_command(app);
  qkv::add_fill_command(app);
  qkv::add_classify_command(app);
  qkv::add_tag_command(app);
  qkv::add_answer_command(app);
  qkv::add_embed_command(app);
  qkv::cli::add_tokenizer_command(app);
  qkv::add_report_command(app);
  qkv::add_average_command(app);
  qkv::add_merge_command(app);
  qkv::add_inspect_command(app);
  qkv::add_forward_command(app);
  // After the subcommands, which would inherit it.
  app.footer("Example: qkv train examples/shakespeare.toml\nEach subcommand has a --help of its own.");
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    std::fprintf(stderr, "qkv: %s\n", describe(app, e).c_str());
    return 2;
  } catch (const qkv::UsageError& e) {
    std::fprintf(stderr, "qkv: %s\n", e.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "qkv: out of memory\n");
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "qkv: %s\n", e.what());
    return 1;
  }
}
