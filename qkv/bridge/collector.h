// Records a model's intermediate values under Hugging Face's names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkv/bridge/padded_batch.h"
#include "qkv/models/transformer.h"

namespace qkv {

// Inputs of one call: the tokens of the model's stack, and of its encoder if it has two.
struct Inputs {
  PaddedBatch tokens, source;
  // All positions of the context, if latents predict tokens; else no rows.
  PaddedBatch positions = {};
  ModelInput input;

  // The places of the rows that the head reads.
  const PaddedBatch& outputs() const { return positions.rows > 0 ? positions : tokens; }
};

// Reads images [B, channels, size, size]; each becomes the model's tokens followed by its patches.
Inputs read_images(const TensorFile& in, const std::string& path, const ModelSpec& spec);

// Collects hidden states and attention probabilities under Hugging Face's names.
class Collector : public Probe {
 public:
  // `last_normed`: with pre-norm blocks, take the last state after the final norm.
  Collector(const ModelSpec& spec, const Inputs& inputs, bool hidden_states, bool attentions,
            bool last_normed = true);
  bool wants(std::string_view name) const override { return places_.contains(std::string(name)); }
  void visit(std::string_view name, Tensor& value) override;
  void visit_head(std::string_view name, int64_t s, int64_t h, Tensor& p) override;
  std::map<std::string, Tensor> found;

 private:
  // The output names of a value, the batches of its rows and columns, and the number of attention heads.
  struct Place {
    std::vector<std::string> names;
    const PaddedBatch* rows;
    const PaddedBatch* keys;
    int64_t heads = 0;
  };

  static bool is_longformer(const ModelSpec& spec);
  static std::vector<std::vector<int64_t>> global_places(const ModelSpec& spec, const Inputs& inputs);
  void visit_banded(const Place& place, int64_t s, int64_t h, const Tensor& p);
  static int64_t layer_of(const Place& place);
  Pattern pattern_of(int64_t layer) const;
  Tensor& found_at(const Place& place, const Shape& shape);
  int64_t chunks_of(const Place& place) const;
  static int64_t filled(int64_t columns, const AttentionSpec& a);
  void visit_chunked(const Place& place, int64_t s, int64_t h, const Tensor& p);
  void add_latents(const Inputs& inputs, bool hidden_states, bool attentions);
  void add_hidden(const std::string& stack, const std::string& prefix, int64_t layers,
                  const PaddedBatch& batch);

  const ModelSpec& spec_;
  bool last_normed_;
  std::map<std::string, Place> places_;
  PaddedBatch latents_, queries_;              // the rows of latents and of what reads them
  bool banded_ = false;                        // attentions have Longformer's format
  std::vector<std::vector<int64_t>> globals_;  // columns of the global tokens of each sequence
};

}  // namespace qkv
