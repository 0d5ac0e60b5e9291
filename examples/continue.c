/* Continues a prompt through the C interface, printing the text as it appears.
 *   gcc -c continue.c $(pkg-config --cflags qkv) && g++ continue.o $(pkg-config --libs qkv) -o continue
 *   ./continue DIR PROMPT */
#include <stdio.h>
#include <string.h>

#include "qkv/api/qkv.h"

static int print(void* user, int32_t token, const char* text, size_t length) {
  (void)user, (void)token;
  fwrite(text, 1, length, stdout);
  return fflush(stdout) == 0; /* a closed pipe ends the text */
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: continue DIR PROMPT\n"), 2;
  qkv_model* model = NULL;
  if (qkv_load(argv[1], "f32", &model) != QKV_OK)
    return fprintf(stderr, "continue: %s\n", qkv_last_error()), 1;
  qkv_generation options;
  qkv_generation_defaults(model, &options, sizeof options);
  options.max_new_tokens = 50;
  options.temperature = 0.8;
  printf("%s", argv[2]);
  const qkv_status status = qkv_generate(model, argv[2], strlen(argv[2]), &options, print, NULL);
  if (status != QKV_OK) fprintf(stderr, "continue: %s\n", qkv_last_error());
  printf("\n");
  qkv_free(model);
  return status == QKV_OK ? 0 : 1;
}
