// The arithmetic on raw arrays. Kernels are dispatched through one table of functions, which is filled once
// from CPUID. generic/ has the plain loops, against which the SIMD kernels in cpu/ are tested. Kernels run
// on the calling thread, and ops/ divides the rows among threads. matrix_product() (gemm.h) uses all
// threads itself.
//
// T is float or BFloat16. Arithmetic, statistics and sums are in f32 for both.
#pragma once

#include <cstdint>
#include <string_view>

#include "qkv/base/rng.h"
#include "qkv/kernels/activation.h"
#include "qkv/kernels/gemm.h"
#include "qkv/kernels/ignored.h"
#include "qkv/kernels/mask.h"
#include "qkv/kernels/pair_term.h"
#include "qkv/kernels/tile_product.h"
#include "qkv/tensor/dtype.h"

namespace qkv {

// Chooses the elements of a row-major array that are kept. The choice depends only on the key and an
// element's global index.
struct Dropout {
  float p = 0;  // probability of dropping; 0 switches it off
  DropoutKey key;
  int64_t first_row = 0;  // global index of the first row given to the kernel
  bool on() const { return p > 0; }
};

// sum = x + dropout(branch); mean, rstd of each row of sum; y = (sum - mean) rstd gamma + beta. Algorithm 6
// of Phuong & Hutter with rstd = 1/sqrt(v + epsilon), after the residual addition. Without beta it is
// RMSNorm (Zhang & Sennrich 2019): the mean is taken to be 0.
template <typename T>
struct ResidualNorm {
  int64_t rows, width;
  const T* x;       // [rows, width]
  const T* branch;  // [rows, width], or null: sum = x
  Dropout dropout;
  const float* gamma;  // [width]
  const float* beta;   // [width], or null
  float epsilon;
  T* sum;       // [rows, width], or null
  T* y;         // [rows, width]
  float* mean;  // [rows]
  float* rstd;  // [rows]
};

// d_sum = d_sum_in + (gradient of the norm); dgamma += ..., dbeta += ...
template <typename T>
struct ResidualNormGrad {
  int64_t rows, width;
  const T* dy;       // [rows, width]
  const T* dsum_in;  // [rows, width], or null
  const T* sum;      // [rows, width]
  const float* gamma;
  const float* mean;
  const float* rstd;
  T* dsum;        // [rows, width]
  float* dgamma;  // [width], added to
  float* dbeta;   // [width], added to; null for RMSNorm
};

// With p = softmax(logits[r]), Z its denominator and q = (1 - smoothing) onehot(target[r]) + smoothing /
// vocab (label smoothing, Szegedy et al. 2016): losses[r] = -sum_j q_j log p_j + z_loss log(Z)^2 (the
// z-loss of Chowdhery et al., PaLM, 2022), or 0 if target is kIgnored. Unless dlogits is null, dlogits[r] =
// scale times the gradient, p (1 + 2 z_loss log Z) - q.
template <typename T>
struct CrossEntropy {
  int64_t rows, vocab;
  const float* logits;  // [rows, stride]
  int64_t stride;
  const int32_t* target;  // [rows]
  float scale;
  float* losses;  // [rows]
  T* dlogits;     // [rows, stride] or null; may be the logits themselves when T is float
  float smoothing = 0;
  float z_loss = 0;
};

// Attention over a flat batch: sequence s has queries [q_offsets[s], q_offsets[s+1]) and key_lengths[s]
// keys. In self-attention the last keys are those of its queries (cached decoding). Key j of sequence s is
// row blocks[block_offsets[s] + j / block_rows] + j % block_rows of k and v; a contiguous buffer is one
// block. Query head h uses key/value head h / (heads / kv_heads). Algorithm 4 of Phuong & Hutter per head,
// with an online softmax per tile (Dao et al., FlashAttention, 2022).
template <typename T>
struct Attention {
  int64_t sequences, heads, kv_heads, d_qk, d_vo;
  const int32_t* q_offsets;      // [sequences + 1]
  const int32_t* key_lengths;    // [sequences]
  const int32_t* block_offsets;  // [sequences]
  const int64_t* blocks;
  int64_t block_rows;
  // A ranked mask has the ranks of all queries and all keys, by row. A table's mask has the tables of all
  // sequences in turn.
  Mask mask;
  int64_t padded_length = 0;  // length that patterns assume for every sequence; 0: its own
  ScoreTerm term = {};
  PairTerm pair = {};
  float scale;              // usually 1/sqrt(d_qk)
  float cap = 0;            // scaled scores s become cap tanh(s / cap) before the terms are added; 0: off
  const float* sinks = {};  // [heads] scores that count only in the denominator; or null
  Dropout dropout;          // dropout of probabilities; its rows are queries of the flat batch
  const T* q;
  int64_t q_stride;  // head h of row r starts at q + r q_stride + h d_qk
  const T* k;
  int64_t k_stride;
  const T* v;
  int64_t v_stride;
  T* out;
  int64_t out_stride;  // [rows, heads, d_vo]
  float* lse;  // [rows, heads] log of the softmax's denominator; -inf, and out 0, if a query sees no key

  // The mask of one sequence.
  Mask mask_of(int64_t sequence) const {
    if (!mask.is_given()) {
      const int64_t n = key_lengths[sequence];
      Mask its_own = mask.of_length(n, padded_length > 0 ? padded_length : n);
      if (mask.globals != nullptr) its_own.globals = mask.globals + q_offsets[sequence];
      return its_own;
    }
    Mask its_own = mask;
    if (mask.kind == Mask::Kind::table) {
      for (int64_t s = 0; s < sequence; ++s) its_own.table += int64_t{key_lengths[s]} * key_lengths[s];
    } else {
      its_own.query_rank += q_offsets[sequence];
      its_own.key_rank += q_offsets[sequence];
    }
    its_own.length = its_own.keys = key_lengths[sequence];
    return its_own;
  }
};

// Computes the gradients of q, k and v from that of the output.
template <typename T>
struct AttentionGrad {
  Attention<T> forward;  // out and lse as the forward pass left them
  const T* dout;
  int64_t dout_stride;
  T* dq;
  int64_t dq_stride;
  T* dk;
  int64_t dk_stride;  // same blocks as k
  T* dv;
  int64_t dv_stride;
  float* dterm = nullptr;   // [sequences, heads, term.row()] gradient of the score term, added to; or null
  PairTermGrad dpair = {};  // gradients of the pair term's tables, added to
};

// How an update rule moves each weight w by its gradient g; m and v are the rule's state for the weight.
// First g <- grad_scale g + l2 w; then, with eta = lr and lambda = decay:
enum class Rule : uint8_t {
  sgd,       // w <- w - eta g
  momentum,  // m <- mu m + g; w <- w - eta m (Polyak 1964)
  nesterov,  // m <- mu m + g; w <- w - eta (g + mu m) (Sutskever et al. 2013)
  adagrad,   // v <- v + g^2; w <- w - eta g / (sqrt(v) + epsilon) (Duchi et al. 2011)
  rmsprop,   // v <- beta2 v + (1 - beta2) g^2; w <- w - eta g / (sqrt(v) + epsilon) (Hinton 2012)
  adam,      // m <- beta1 m + (1 - beta1) g; v as rmsprop's;
             // w <- w - eta (m / bias1 / (sqrt(v / bias2) + epsilon) + lambda w) (Kingma & Ba 2015, with the
             // decoupled decay of Loshchilov & Hutter 2019)
  lion,      // c = beta1 m + (1 - beta1) g; w <- w - eta (sign(c) + lambda w);
             // m <- beta2 m + (1 - beta2) g (Chen et al. 2023)
};
constexpr bool remembers_first(Rule r) {
  return r == Rule::momentum || r == Rule::nesterov || r == Rule::adam || r == Rule::lion;
}
constexpr bool remembers_second(Rule r) {
  return r == Rule::adagrad || r == Rule::rmsprop || r == Rule::adam;
}

// One step of a rule over a contiguous run of weights.
struct Update {
  Rule rule = Rule::sgd;
  float lr = 0;
  float grad_scale = 1;  // clipping
  float l2 = 0;          // decay that enters through the gradient
  float decay = 0;       // decoupled decay (adam, lion)
  float momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  float bias1 = 1, bias2 = 1;  // 1 - beta1^t, 1 - beta2^t
};

// Rows times a matrix stored as [n, k], as activations meet a weight:
//   c[r, j] = sum_l a[r, l] b[j, l] for j in [begin, end).
// The bits of c[r, j] depend on row r of a and row j of b alone. Up to kFewRows rows read b once, at the
// speed of memory.
inline constexpr int64_t kFewRows = 8;
template <typename T>
struct RowProduct {
  int64_t rows, k;
  const float* a;  // [rows, k]
  int64_t a_stride;
  const T* b;  // [n, k]
  int64_t b_stride;
  float* c;  // [rows, n]
  int64_t c_stride;
};

// Tokens in a row of one head whose state is a matrix S [d_k, d_v], the fast weights. Each token changes it:
//   S_t = diag(w_t) S_{t-1} + b_t (S_{t-1}^T a_t)^T + k_t v_t^T,   y_t = S_t^T q_t
// (the generalised delta rule, as RWKV-7 writes it). Without w it is 1, without a and b that term is 0.
struct FastWeights {
  static constexpr int64_t kMultiple = 16;  // widths are multiples of it; what is added consists of zeros
  int64_t tokens, d_k, d_v;
  const float *q, *k, *v;  // [tokens, d_k], [tokens, d_k], [tokens, d_v]
  const float* w;          // [tokens, d_k], or null
  const float *a, *b;      // [tokens, d_k], or both null
};
// All are written but `state`, which holds the gradient of the last state and becomes that of the first.
struct FastWeightsGrad {
  FastWeights forward;
  const float* states;  // [tokens + 1, d_k, d_v]: S_0, ..., S_tokens
  const float* dy;      // [tokens, d_v]
  float* state;         // [d_k, d_v]
  float *dq, *dk, *dv;  // as q, k, v
  float *dw, *da, *db;  // as w, a, b, or null
  float* memory;        // [2, d_v]
};

// The functions that exist for f32 and for bf16.
template <typename T>
struct TypedKernels {
  void (*to_f32)(int64_t n, const T* x, float* y);
  void (*from_f32)(int64_t n, const float* x, T* y);
  void (*add)(int64_t n, const T* x, const T* y, T* out);
  void (*dropout)(int64_t rows, int64_t width, const T* x, Dropout dropout, T* out);  // its own gradient
  void (*activation)(Activation kind, int64_t n, const T* x, T* y);
  void (*activation_grad)(Activation kind, int64_t n, const T* x, const T* dy, T* dx);
  void (*residual_norm)(const ResidualNorm<T>&);
  void (*residual_norm_grad)(const ResidualNormGrad<T>&);
  void (*cross_entropy)(const CrossEntropy<T>&);
  // sums[c] += sum over rows of x[r, c], for columns [begin, end).
  void (*column_sums)(int64_t rows, int64_t width, const T* x, int64_t begin, int64_t end, float* sums);
  // table[ids[r], c] += x[r, c] for columns [begin, end); rows in order.
  void (*scatter_add)(int64_t rows, int64_t width, const T* x, const int32_t* ids, int64_t begin, int64_t end,
                      float* table);
  void (*row_product)(const RowProduct<T>&, int64_t begin, int64_t end);
  // Independent tasks of an attention pass. Scratch: see attention_scratch().
  void (*attention)(const Attention<T>&, int64_t sequence, int64_t kv_head, int64_t first_query,
                    float* scratch);
  // The same by vectors: a query's bits do not depend on how many there are.
  void (*lone_attention)(const Attention<T>&, int64_t sequence, int64_t kv_head, int64_t first_query,
                         float* scratch);
  void (*attention_grad)(const AttentionGrad<T>&, int64_t sequence, int64_t kv_head, float* scratch);
};

// Queries of one forward task: those from first_query on, which is a multiple of this.
inline constexpr int64_t kQueryTile = 128;
// Keys that a task processes at a time.
inline constexpr int64_t kKeyTile = 64;

// Floats of scratch memory that one task of attention or attention_grad needs. The latter grows linearly
// with the number of keys.
template <typename T>
int64_t attention_scratch(const Attention<T>&);
template <typename T>
int64_t attention_grad_scratch(const Attention<T>&, int64_t max_keys);

// All functions for one instruction set.
struct KernelTable {
  std::string_view name;  // "generic", "avx2", "avx512", "amx"
  TypedKernels<float> f32;
  TypedKernels<BFloat16> bf16;
  void (*row_product_f16)(const RowProduct<Float16>&, int64_t begin, int64_t end);
  double (*sum_squares)(int64_t n, const float* x);
  double (*log_sum_exp)(int64_t n, const float* x);  // log of the sum of exp(x), which SIMD sums in f32
  void (*exp)(int64_t n, const float* x, float* y);  // y = exp(x), 0 below 2^-126; y may be x
  void (*scale)(int64_t n, float factor, float* x);
  void (*axpy)(int64_t n, float factor, const float* x, float* y);  // y += factor x
  // m, v: null if the rule does not use them; shadow: w in bf16, or null.
  void (*update)(const Update&, int64_t n, float* w, const float* g, float* m, float* v, BFloat16* shadow);

  // state: S_0, becomes S_tokens. y [tokens, d_v]. states [tokens + 1, d_k, d_v] gets all states, or null.
  // memory [d_v].
  void (*fast_weights)(const FastWeights&, float* state, float* y, float* states, float* memory);
  void (*fast_weights_grad)(const FastWeightsGrad&);

  // A matrix product with f32 sums; null if the table has none. scratch: product_scratch() floats, aligned
  // to 64 bytes. The bits of an element of C depend only on its row of A, its column of B and k.
  void (*product)(const Product&, float* scratch);
  int64_t (*product_scratch)(const Product&);

  template <typename T>
  const TypedKernels<T>& typed() const;
};
template <>
inline const TypedKernels<float>& KernelTable::typed<float>() const {
  return f32;
}
template <>
inline const TypedKernels<BFloat16>& KernelTable::typed<BFloat16>() const {
  return bf16;
}

// Instruction sets that kernels are written for, slowest first.
enum class Isa { generic, avx2, avx512, amx };
// The highest instruction set that may be used: QKV_MAX_ISA ("generic", "avx2", "avx512", "amx"), or else
// all. It does not say what the processor has. Throws Error if the variable has another value.
Isa max_isa();

// The table in use: the best that the processor has and max_isa() allows.
const KernelTable& kernels();
// The plain loops.
const KernelTable& generic_kernels();
// Every table this processor can run, the generic one first (for tests).
int kernel_table_count();
const KernelTable& kernel_table(int i);

// The AVX-512 table with bf16 attention on tiles, "amx" or "emulated tiles"; null if those are not
// available. The first is also one of the tables above; the second is for tests.
const KernelTable* tile_kernels(TileUnit);

// True if bf16 products are faster than f32 products on this processor.
bool bf16_is_fast();

}  // namespace qkv
