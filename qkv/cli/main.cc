// qkv: the command line. Exit status: 0 done, 1 failed, 2 wrong usage; one line on stderr says why.
#include <cstdio>
#include <exception>
#include <new>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "qkv/cli/command.h"
#include "qkv/cli/tokenizer_command.h"

int main(int argc, char** argv) {
  CLI::App app{"qkv trains and runs transformers natively.", "qkv"};
  app.set_version_flag("--version", "qkv 0.1.0");
  app.require_subcommand(1);
  app.fallthrough();  // global options may follow the subcommand
  app.footer("Start with: qkv train --help. A run of your own in five lines is in README.md.");
  int threads = 0;
  app.add_option("--threads", threads, "Threads to use (default: OMP_NUM_THREADS, or every processor)")->check(CLI::Range(1, 4096));
  app.parse_complete_callback([&] {
    if (threads > 0) qkv::set_num_threads(threads);
  });
  qkv::add_train_command(app);
  qkv::add_eval_command(app);
  qkv::add_generate_command(app);
  qkv::cli::add_tokenizer_command(app);
  qkv::add_inspect_command(app);
  qkv::add_forward_command(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    std::fprintf(stderr, "qkv: %s (see --help)\n", e.what());
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
