// qkv: the command line. Exit status: 0 done, 1 failed, 2 wrong usage; one line on stderr says why.
#include <cstdio>
#include <exception>
#include <new>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "qkv/base/version.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);
  qkv::Program app("qkv", "qkv trains and runs transformers natively.",
                   fmt::format("qkv {}", qkv::version()));
  app.require_subcommand();
  int threads = 0;
  app.add_option("--threads", threads, "Threads to use (default: OMP_NUM_THREADS, or every processor)")
      ->range(1, 4096);
  app.before_running([&] {
    if (threads > 0) qkv::set_num_threads(threads);
  });
  qkv::add_init_command(app);
  qkv::add_train_command(app);
  qkv::add_config_command(app);
  qkv::add_plan_command(app);
  qkv::add_eval_command(app);
  qkv::add_generate_command(app);
  qkv::add_chat_command(app);
  qkv::add_score_command(app);
  qkv::add_translate_command(app);
  qkv::add_fill_command(app);
  qkv::add_classify_command(app);
  qkv::add_choose_command(app);
  qkv::add_tag_command(app);
  qkv::add_answer_command(app);
  qkv::add_embed_command(app);
  qkv::add_rerank_command(app);
  qkv::add_tokenizer_command(app);
  qkv::add_report_command(app);
  qkv::add_average_command(app);
  qkv::add_convert_command(app);
  qkv::add_merge_command(app);
  qkv::add_quantize_command(app);
  qkv::add_inspect_command(app);
  qkv::add_forward_command(app);
  qkv::add_trace_command(app);
  // After the subcommands, which would inherit it.
  app.footer("Example: qkv train my.txt\nEach subcommand has a --help of its own.");
  try {
    app.run(argc, argv);
    qkv::finish_output();
    return 0;
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
