// The layers of a transformer block. Each holds only weights; what it remembers comes in as an argument.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "qkv/nn/adapter.h"
#include "qkv/nn/attention_spec.h"
#include "qkv/nn/context.h"
#include "qkv/nn/layer_state.h"
#include "qkv/nn/norm.h"
#include "qkv/nn/parameter.h"
#include "qkv/nn/relative.h"
#include "qkv/ops/gather_columns.h"
#include "qkv/ops/linear.h"

namespace qkv {

// W X + b 1^T.
class Linear {
 public:
  // weight [out, in] drawn with standard deviation `std`; bias [out] of zeros where wanted.
  Linear(Parameters& parameters, const std::string& name, int64_t in, int64_t out, bool bias, float std,
         IdleBias idle = {});
  // [N, in] -> [N, out]. `context`: of the dropout that adapters have; without one there is none.
  Tensor forward(const Tensor& x, const Context& context = {}) const;

 private:
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  IdleBias idle_;
  Adapters adapters_;
};

class GlobalAttention;

// f in x + f(norm(x)) or norm(x + f(x)).
class Sublayer {
 public:
  virtual ~Sublayer() = default;
  // x [N, D] -> [N, D]. `state` is appended to; null when nothing is remembered.
  virtual Tensor forward(const Tensor& x, const Context& context, LayerState* state) const = 0;
  // After a training step's passes: what they were observed to do moves what no gradient moves.
  virtual void finish_step() const {}
  // The memory this sublayer needs for decoding, or null.
  virtual std::unique_ptr<LayerState> make_state(int64_t /*sequences*/) const { return nullptr; }
};

// What fresh weights are drawn with: those that end a residual branch apart.
struct InitStd {
  float inner, out;
};

// Algorithm 5 of Phuong & Hutter, MHAttention(X, Z | W, Mask), for projected queries, keys and values.
class MultiHeadAttention {
 public:
  // `layer` counts from 0; `site` is this layer's place among the uses of randomness. `self`: takes the
  // context's bias by distance and its ranks, where there are any.
  MultiHeadAttention(Parameters& parameters, const std::string& name, int64_t width,
                     const AttentionSpec& spec, Mask mask, bool self, int64_t layer, uint32_t site,
                     InitStd std);
  // Lines 4-9: the heads' outputs, projected.
  Tensor forward(const Heads& q, const Heads& k, const Heads& v, const KeyLayout& keys,
                 const Context& context, const PairTables& pair = {}) const;
  // The two halves of that: [N, heads v.width], and its projection, less what heads are narrower than that.
  Tensor heads(const Heads& q, const Heads& k, const Heads& v, const KeyLayout& keys, const Context& context,
               const PairTables& pair = {}) const;
  Tensor project(Tensor heads, const Context& context) const;
  const std::string& name() const { return name_; }
  const AttentionSpec& spec() const { return spec_; }
  float scale() const { return scale_; }
  const Mask& mask() const { return mask_; }
  uint32_t site() const { return site_; }

 private:
  std::string name_;
  AttentionSpec spec_;
  Mask mask_;
  bool self_;
  float scale_;
  uint32_t site_;
  Parameter* sinks_ = nullptr;  // f32 [heads]
  std::shared_ptr<const ColumnMap> narrow_;
  Linear out_;  // W_o
};

// Z = X; one fused projection gives the queries, keys and values of all heads.
class SelfAttention : public Sublayer {
 public:
  // `norm_epsilon`: of the norms of queries and keys.
  SelfAttention(Parameters& parameters, const std::string& name, int64_t width, const AttentionSpec& spec,
                float norm_epsilon, Mask mask, int64_t layer, uint32_t site, InitStd std);
  ~SelfAttention() override;
  Tensor forward(const Tensor& x, const Context& context, LayerState* state) const override;
  std::unique_ptr<LayerState> make_state(int64_t sequences) const override;

 private:
  // Keys of unit mean square made of the queries in qkv [N, ..].
  Heads keys_of_queries(const Tensor& qkv, const Context& context) const;

  bool shared_;  // keys are made of queries
  Linear qkv_;   // rows: all queries' weights, then keys' where they have any, then values'
  std::shared_ptr<const ColumnMap> spread_;
  // gamma and, of layer_norm with one, beta of queries and keys; null: there is no norm.
  struct HeadNorm {
    Parameter *gamma = nullptr, *beta = nullptr;
  };
  Tensor normed(const Tensor& qkv, int64_t column, int64_t heads, const HeadNorm& norm) const;

  HeadNorm query_norm_, key_norm_;
  float norm_epsilon_;
  MultiHeadAttention attention_;
  std::unique_ptr<RelativeEncoding> relative_;
  std::unique_ptr<GlobalAttention> global_;
};

// Z = context.source, all of which each query sees. With a state the keys and values are computed once.
class CrossAttention : public Sublayer {
 public:
  // `source`: the width of the source's rows.
  CrossAttention(Parameters& parameters, const std::string& name, int64_t width, int64_t source,
                 const AttentionSpec& spec, int64_t layer, uint32_t site, InitStd std);
  Tensor forward(const Tensor& x, const Context& context, LayerState* state) const override;
  std::unique_ptr<LayerState> make_state(int64_t sequences) const override;

 private:
  Linear q_;
  Linear kv_;  // rows: all keys' weights, then values'
  std::shared_ptr<const ColumnMap> spread_q_, spread_kv_;
  MultiHeadAttention attention_;
};

// The shape and the options of a feed-forward network.
struct FeedForwardSpec {
  int64_t hidden = 0;  // d_mlp
  Activation activation = Activation::gelu_tanh;
  bool gated = false;  // f(W_1 X) times V X, element by element (Shazeer 2020)
  bool bias = true;
  int64_t hidden_layers = 1;
};

// W_2 f(W_1 X + b_1 1^T) + b_2 1^T; each further hidden layer is h -> f(W h + b).
class FeedForward : public Sublayer {
 public:
  FeedForward(Parameters& parameters, const std::string& name, int64_t width, const FeedForwardSpec& spec,
              InitStd std);
  Tensor forward(const Tensor& x, const Context& context, LayerState* state) const override;

 private:
  std::string name_;
  FeedForwardSpec spec_;
  Linear up_;  // W_mlp1; gated: then V's rows
  std::vector<Linear> inner_;
  Linear down_;  // W_mlp2
};

// A sublayer around another, whose memory is that one's.
class Wrapper : public Sublayer {
 public:
  std::unique_ptr<LayerState> make_state(int64_t sequences) const override {
    return inner_->make_state(sequences);
  }
  void finish_step() const override { inner_->finish_step(); }

 protected:
  explicit Wrapper(std::unique_ptr<Sublayer> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<Sublayer> inner_;
};

// f(norm(x)): a branch that reads through a norm of its own.
class Normed : public Wrapper {
 public:
  Normed(const Norm& norm, std::unique_ptr<Sublayer> inner) : Wrapper(std::move(inner)), norm_(norm) {}
  Tensor forward(const Tensor& x, const Context& context, LayerState* state) const override;

 private:
  Norm norm_;
};

// norm(f(x)): what a branch adds is normalised.
class OutputNormed : public Wrapper {
 public:
  OutputNormed(const Norm& norm, std::unique_ptr<Sublayer> inner) : Wrapper(std::move(inner)), norm_(norm) {}
  Tensor forward(const Tensor& x, const Context& context, LayerState* state) const override;

 private:
  Norm norm_;
};

// factor f(x).
class Multiplied : public Wrapper {
 public:
  Multiplied(float factor, std::unique_ptr<Sublayer> inner) : Wrapper(std::move(inner)), factor_(factor) {}
  Tensor forward(const Tensor& x, const Context& context, LayerState* state) const override;

 private:
  float factor_;
};

// f(x) + g(x): attention and the feed-forward network beside each other (Wang & Komatsuzaki 2021, GPT-J).
class SideBySide : public Wrapper {
 public:
  SideBySide(std::unique_ptr<Sublayer> attention, std::unique_ptr<Sublayer> feed_forward)
      : Wrapper(std::move(attention)), feed_forward_(std::move(feed_forward)) {}
  void finish_step() const override { feed_forward_->finish_step(); }
  Tensor forward(const Tensor& x, const Context& context, LayerState* state) const override;

 private:
  std::unique_ptr<Sublayer> feed_forward_;
};

// The residual stream between two norms: x and the branch that is still to be added to it. Adding it together
// with the next normalisation saves a pass over memory. Where there are two streams, x is the one that is
// read next: each branch reads one and is added to the other.
struct ResidualStream {
  Tensor x;
  Tensor branch;      // undefined: nothing to add
  Dropout dropout;    // of the branch
  std::string name;   // of x + branch, for probes
  Tensor other = {};  // undefined: there is one stream

  // Adds the branch and returns the normalised sum, which becomes x.
  Tensor add_and_norm(const Norm& norm, const Context& context);
  // Adds the branch: x alone.
  void add_branch(const Context& context);
};

// Where a block normalises.
enum class NormPlacement : uint8_t {
  pre,       // x + sublayer(norm(x))
  post,      // norm(x + sublayer(x))
  sandwich,  // x + norm'(sublayer(norm(x))) (Ding et al. 2021; Gemma 2)
  branch,    // x + norm(sublayer(x)) (OLMo 2)
  none,      // x + sublayer(x)
  stream,    // norm(x) + sublayer(norm(x)) (an option of BLOOM)
};

// How a block's attention and its feed-forward network follow each other.
enum class Branches : uint8_t {
  serial,      // the second reads what the first has added
  parallel,    // both read the same, each through a norm of its own (GPT-NeoX)
  one_norm,    // both read the same normalised x (GPT-J)
  reversible,  // of two streams x and y: y + f(x), then x + g(that) (Gomez et al. 2017, eq. 8; Reformer)
};

// A sublayer with the stream around it, and its norm: before it, on the sum, or none.
struct Residual {
  NormPlacement placement;  // pre, post, stream or none
  std::optional<Norm> norm;
  std::unique_ptr<Sublayer> sublayer;
  float dropout;
  uint32_t site;
  std::string name;

  // REQUIRES, of post: no branch is pending; none is afterwards.
  void forward(ResidualStream& stream, const Context& context, LayerState* state) const;
};

}  // namespace qkv
