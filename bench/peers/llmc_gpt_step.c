/* The step of bench/gpt_step in llm.c (https://github.com/karpathy/llm.c), f32, all parameters noise.
 *
 *   gcc -Ofast -fno-finite-math-only -march=native -fopenmp -DOMP -I LLM_C bench/peers/llmc_gpt_step.c -lm
 *   ./a.out LAYERS WIDTH HEADS VOCAB BATCH LENGTH STEPS
 */
#define TESTING
#include "train_gpt2.c"

#include <sys/resource.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  int o[7];
  if (argc != 8) {
    fprintf(stderr, "usage: llmc_gpt_step LAYERS WIDTH HEADS VOCAB BATCH LENGTH STEPS\n");
    return 2;
  }
  for (int i = 0; i < 7; i++) o[i] = atoi(argv[i + 1]);
  const int vocab = o[3], batch = o[4], length = o[5], steps = o[6];
  GPT2 model;
  memset(&model, 0, sizeof model);
  model.config = (GPT2Config){.max_seq_len = length > 1024 ? length : 1024,
                              .vocab_size = vocab,
                              .padded_vocab_size = (vocab + 127) / 128 * 128,
                              .num_layers = o[0],
                              .num_heads = o[2],
                              .channels = o[1]};
  fill_in_parameter_sizes(model.param_sizes, model.config);
  for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) model.num_parameters += model.param_sizes[i];
  model.params_memory = malloc_and_point_parameters(&model.params, model.param_sizes);
  srand(1);
  for (size_t i = 0; i < model.num_parameters; i++)
    model.params_memory[i] = 0.04f * ((float)rand() / (float)RAND_MAX - 0.5f);

  int* ids = malloc(sizeof(int) * (size_t)(batch * length + 1));
  for (int i = 0; i <= batch * length; i++) ids[i] = rand() % vocab;
  double* ms = malloc(sizeof(double) * (size_t)steps);
  for (int s = -1; s < steps; s++) { /* the first warms up */
    const double start = now();
    gpt2_forward(&model, ids, ids + 1, (size_t)batch, (size_t)length);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, s + 2);
    if (s >= 0) ms[s] = now() - start;
  }
  qsort(ms, (size_t)steps, sizeof(double), ascending);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("step %.1f\npeak_memory_mb %.0f\n", ms[steps / 2], usage.ru_maxrss / 1024.0);
  return 0;
}
