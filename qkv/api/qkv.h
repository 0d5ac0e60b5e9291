/** \file
 * The C interface: models that are loaded, and what they make of text. Stable: functions stay, and structs
 * grow at their ends, which `size` tells.
 *
 * Functions that can fail return QKV_OK or what went wrong; qkv_last_error() says it in words. Text is UTF-8
 * with a length in bytes. A model may be used by one thread at a time; the work inside is divided among
 * threads (OMP_NUM_THREADS). */
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
  QKV_TOO_SMALL = 2, /**< the caller's room: the count needed is given back */
} qkv_status;

/** A model with its tokenizer. */
typedef struct qkv_model qkv_model;

/** "MAJOR.MINOR.PATCH". */
const char* qkv_version(void);

/** What the last call of this thread that failed complained of: one line, valid until its next call that
 * fails. */
const char* qkv_last_error(void);

/** Loads a model directory or a run; *model is NULL where that fails. `dtype`: of the matrices, "f32" or
 * "bf16"; NULL: f32. */
qkv_status qkv_load(const char* path, const char* dtype, qkv_model** model);
/** Ends a model; NULL is allowed. */
void qkv_free(qkv_model* model);

/** Of logits. */
int64_t qkv_vocab_size(const qkv_model* model);
/** Tokens of a sequence at most. */
int64_t qkv_context(const qkv_model* model);
/** Of a vector. */
int64_t qkv_width(const qkv_model* model);

/** The tokens of a text, with the special ones around it where `special` is not 0. Writes at most `capacity`
 * ids and the number of all to *count; QKV_TOO_SMALL where they do not fit (ids may be NULL then). */
qkv_status qkv_tokenize(const qkv_model* model, const char* text, size_t length, int special, int32_t* ids,
                        size_t capacity, size_t* count);

/** The text of some tokens, without a 0 at its end; likewise. */
qkv_status qkv_detokenize(const qkv_model* model, const int32_t* ids, size_t count, char* text,
                          size_t capacity, size_t* length);

/** One sequence through a decoder or an encoder of tokens: logits [count, vocab_size]. */
qkv_status qkv_forward(const qkv_model* model, const int32_t* ids, size_t count, float* logits);

/** How a decoder goes on, or how an encoder-decoder writes. */
typedef struct qkv_generation {
  size_t size; /**< of this struct: set by qkv_generation_defaults() */
  int64_t max_new_tokens;
  double temperature; /**< 0: always the most likely token */
  int64_t top_k;      /**< 0: all */
  double top_p;       /**< 1: all */
  double min_p;       /**< 0: all */
  double repetition_penalty;
  uint64_t seed;
  const char*
      settings; /**< more: "num_beams=4,length_penalty=0.6", the keys of qkv forward --generate; NULL: none */
} qkv_generation;

/** What the model's generation_config.json says, else neutral values (of an encoder-decoder temperature 0),
 * seed 0 and no settings. `size`: sizeof(qkv_generation) as the caller knows it, beyond which nothing is
 * written. */
void qkv_generation_defaults(const qkv_model* model, qkv_generation* options, size_t size);

/** Called with each new token and the text that it settles (whole characters, often none); the last call may
 * have token -1 and what was left. Not 0: go on. */
typedef int (*qkv_on_token)(void* user, int32_t token, const char* text, size_t length);

/** Continues a text by a decoder, or writes its target by an encoder-decoder (a translation, a summary),
 * until a token that ends it, max_new_tokens or the callback's 0. `options` NULL: the defaults. Tokens are
 * handed out as they are chosen, one after the other: what generation_config.json says of beams is not looked
 * at. But where options->settings ask for a search (num_beams above 1, ...) its outputs, num_return_sequences
 * of them, best first, are handed out each in one call with token -1. */
qkv_status qkv_generate(const qkv_model* model, const char* prompt, size_t length,
                        const qkv_generation* options, qkv_on_token on_token, void* user);

/** A text as a vector of length 1 by an encoder: floats [width]. */
qkv_status qkv_embed(const qkv_model* model, const char* text, size_t length, float* vector);

#ifdef __cplusplus
}
#endif

#endif
