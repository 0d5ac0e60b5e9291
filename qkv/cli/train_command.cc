// qkv train: a configuration in, a model directory out.
#include <csignal>

#include "qkv/cli/command.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

volatile std::sig_atomic_t stop_asked = 0;

// The first signal lets the step finish; a second one ends the program as usual.
void ask_to_stop(int signal) {
  stop_asked = 1;
  std::signal(signal, SIG_DFL);
}

struct Options {
  std::string config;
  std::vector<std::string> set;
  bool resume = false, overwrite = false;
};

void run(const Options& o) {
  const TrainConfig config = read_train_config(o.config, o.set);
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  train(config,
        o.resume      ? StartMode::resume
        : o.overwrite ? StartMode::overwrite
                      : StartMode::fresh,
        [] { return stop_asked != 0; });
}

constexpr const char* kFooter = R"(A configuration in TOML (every key with its default):

  [data]
  train = "corpus.txt"      # a file or a list of files
  valid = []                # held-out files; none: the last valid_fraction of each training file
  valid_fraction = 0.1
  separator = ""            # divides a file into documents, e.g. "<|endoftext|>"

  [tokenizer]
  path = ""                 # an existing tokenizer; none: one is trained
  type = "bpe"              # bpe, char, byte or word
  vocab_size = 4096
  min_frequency = 2

  [model]                   # a GPT-2
  context = 256             # tokens it can see
  width = 384
  layers = 6
  heads = 6
  hidden = 4 x width
  activation = "gelu_tanh"  # or gelu, relu
  dropout = 0.0
  kv_heads = heads          # fewer: query heads share keys and values
  d_qk = d_vo = width / heads
  attention_bias = true
  norm_epsilon = 1e-5
  tied = true               # the unembedding is the token embedding
  init_std = 0.02

  [train]
  out = "runs/model"
  steps = 1000
  batch = 16                # windows of a micro-batch
  accumulate = 1            # micro-batches of a step
  optimizer = "adamw"       # or sgd
  learning_rate = 1e-3
  min_learning_rate = learning_rate / 10
  warmup_steps = 100
  schedule = "cosine"       # or constant
  weight_decay = 0.1
  beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8
  clip = 1.0                # of the gradient's norm; 0: none
  precision = "auto"        # bf16 where the processor gains from it; or f32, bf16
  recompute = false         # less memory for a quarter more time
  seed = 1
  log_every = 10, eval_every = 250, eval_windows = 64, checkpoint_every = 500

Ctrl-C finishes the step, saves and exits; --resume goes on bit for bit as if nothing had happened.
Example: qkv train examples/shakespeare.toml --set train.steps=200)";

}  // namespace

void add_train_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("train", "Train a model from text as a configuration says");
  c->add_option("CONFIG", o->config, "Configuration file (TOML)")->required();
  c->add_option("--set", o->set, "Override one key: section.key=value (repeatable)")->allow_extra_args(false);
  auto* resume = c->add_flag("--resume", o->resume, "Continue from the checkpoint in train.out");
  c->add_flag("--overwrite", o->overwrite, "Replace the run in train.out")->excludes(resume);
  c->footer(kFooter);
  c->callback([o] { run(*o); });
}

}  // namespace qkv
