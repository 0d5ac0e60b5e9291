/** \file
 * The C interface: load a model with its tokenizer, then tokenize, compute logits, generate or embed. It is
 * stable: functions stay, and a struct grows only at its end (its field `size` tells how far).
 *
 * A function that can fail returns QKV_OK or another status; qkv_last_error() then explains it in one line.
 * Text is UTF-8 with a length in bytes. Use a model from one thread at a time; each call divides its work
 * among OMP_NUM_THREADS threads. */
#ifndef QKV_API_QKV_H_
#define QKV_API_QKV_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a call ended. */
typedef enum qkv_status {
  QKV_OK = 0,
  QKV_ERROR = 1,     /**< bad input or a bad file */
  QKV_TOO_SMALL = 2, /**< the output has no room; *count or *length has the room needed */
} qkv_status;

/** A model with its tokenizer. */
typedef struct qkv_model qkv_model;

/** The version of the library: "MAJOR.MINOR.PATCH". */
const char* qkv_version(void);

/** The error of this thread's last failed call, in one line. Valid until this thread's next call fails. */
const char* qkv_last_error(void);

/** Loads a model directory or a run. Free *model with qkv_free(); it is NULL if loading fails. `dtype` is the
 * type of the matrices: "f32" (as NULL) or "bf16". */
qkv_status qkv_load(const char* path, const char* dtype, qkv_model** model);
/** Frees a model and its memory; NULL is allowed. */
void qkv_free(qkv_model* model);

/** Size of the vocabulary: logits per token. */
int64_t qkv_vocab_size(const qkv_model* model);
/** Context: maximum number of tokens in a sequence. */
int64_t qkv_context(const qkv_model* model);
/** Width of the model: floats per embedding. */
int64_t qkv_width(const qkv_model* model);

/** Converts a text to token ids, with special tokens around it unless `special` is 0. *count becomes the
 * number of tokens. If `capacity` is lower, the call writes no id and returns QKV_TOO_SMALL; `ids` may then
 * be NULL. */
qkv_status qkv_tokenize(const qkv_model* model, const char* text, size_t length, int special, int32_t* ids,
                        size_t capacity, size_t* count);

/** Converts token ids to text, without a terminating 0. *length becomes its number of bytes. If `capacity` is
 * lower, the call writes nothing and returns QKV_TOO_SMALL; `text` may then be NULL. */
qkv_status qkv_detokenize(const qkv_model* model, const int32_t* ids, size_t count, char* text,
                          size_t capacity, size_t* length);

/** Computes the logits [count, vocab_size], row by row, of one sequence. The model must predict tokens: a
 * decoder, or an encoder with a masked language model's head. */
qkv_status qkv_forward(const qkv_model* model, const int32_t* ids, size_t count, float* logits);

/** Settings of qkv_generate(). */
typedef struct qkv_generation {
  size_t size; /**< bytes of this struct; qkv_generation_defaults() sets it */
  int64_t max_new_tokens;
  double temperature; /**< 0: greedy, always the most likely token */
  int64_t top_k;      /**< keep the k most likely tokens; 0: all */
  double top_p;       /**< keep the likeliest tokens whose probabilities sum to this; 1: all */
  double min_p;       /**< drop tokens below this share of the highest probability; 0: none */
  double repetition_penalty;
  uint64_t seed;
  const char*
      settings; /**< more keys of qkv forward --generate, e.g. "num_beams=4,length_penalty=0.6"; NULL: none */
} qkv_generation;

/** Sets *options to the values of the model's generation_config.json. Other values are neutral, with seed 0,
 * no settings, and temperature 0 for an encoder-decoder. Pass sizeof(qkv_generation) as `size`: nothing is
 * written beyond it. */
void qkv_generation_defaults(const qkv_model* model, qkv_generation* options, size_t size);

/** Receives each new token and the text that it completes: whole characters, often none. The last call may
 * have token -1 and the rest of the text. Return a value other than 0 to go on, 0 to stop. */
typedef int (*qkv_on_token)(void* user, int32_t token, const char* text, size_t length);

/** Generates text: a decoder continues `prompt`, an encoder-decoder writes its target (a translation, a
 * summary). It ends at an end token, at max_new_tokens, or if the callback returns 0. `options` may be NULL
 * for the defaults.
 *
 * Without a search, `on_token` gets each token as soon as it is chosen; beams in generation_config.json are
 * ignored. If options->settings ask for a search (num_beams above 1, ...), `on_token` gets its
 * num_return_sequences outputs, best first, each in one call with token -1. */
qkv_status qkv_generate(const qkv_model* model, const char* prompt, size_t length,
                        const qkv_generation* options, qkv_on_token on_token, void* user);

/** Embeds a text by an encoder: writes floats [width], a vector of length 1. */
qkv_status qkv_embed(const qkv_model* model, const char* text, size_t length, float* vector);

/** A value inside a model while it runs. */
typedef struct qkv_value {
  size_t size;      /**< bytes of this struct */
  const char* name; /**< as docs/notation.md lists them: "decoder.block.0.attention.queries" */
  int64_t head;     /**< from 0, where the values are scores or probabilities; else -1 */
  int64_t rows;     /**< tokens */
  int64_t columns;  /**< numbers of a token; scores and probabilities have keys */
  float* data;      /**< row by row, during the call only */
} qkv_value;

/** Receives a value as soon as it is computed. If the call writes into value->data, the model goes on with
 * the new numbers. Return a value other than 0 to go on, 0 to stop: qkv_trace() then returns QKV_ERROR. */
typedef int (*qkv_on_value)(void* user, const qkv_value* value);

/** Runs one sequence as qkv_forward() does, and shows `on_value` the values whose names fit `names`: names
 * with commas between them, in which * stands for any characters. Nothing is kept, so a whole data set takes
 * the memory of its longest text. An encoder-decoder reads `source` first; for other models it is NULL and
 * `source_count` 0. `logits` [count, vocab_size] may be NULL, and must be for a model with classes. */
qkv_status qkv_trace(const qkv_model* model, const int32_t* source, size_t source_count, const int32_t* ids,
                     size_t count, const char* names, qkv_on_value on_value, void* user, float* logits);

#ifdef __cplusplus
}
#endif

#endif
