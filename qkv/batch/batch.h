// A flat batch of sequences: a model's input and its targets.
#pragma once

#include <vector>

#include "qkv/batch/layout.h"
#include "qkv/batch/output.h"
#include "qkv/batch/pair_layout.h"
#include "qkv/kernels/ignored.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// A model's input: the tokens of a flat batch.
struct ModelInput {
  Indices ids;                // [N]
  Layout layout;              // sequences of ids
  Indices segments = {};      // [N]; undefined: all 0
  Indices source = {};        // [M]: the source of an encoder-decoder (the paper's z); else undefined
  Layout source_layout = {};  // sequences of source, as many as in `layout`
  // For latents: the positions that hidden rows are wanted of, in as many sequences; no rows: those of ids.
  Layout query_layout = {};
  // f32 [M, D]: rows that cross-attention takes as the sources of its keys and of its values, in place of an
  // encoded source; undefined: those of the encoder.
  Tensor source_keys = {}, source_values = {};
  // f32 [rows, features.width()]: the features at ids that are kFeature, in the source of an
  // encoder-decoder. Frames have two rows for each such id.
  Tensor features = {};
  // [N]: 1 for tokens of the encoder that see all and are seen by all; undefined: patterns decide.
  Indices globals = {};
  Visibility visibility = {};  // which ids see each other, if not as in the stack's mask
  // [S]: class of each sequence, which a model with labels predicts beside the tokens; undefined: none.
  Indices sequence_targets = {};
  // f32 [S, C]: targets of multi_label (0 or 1 for each label) and regression; else undefined.
  Tensor sequence_numbers = {};
  // Multiple choice: question q has the sequences [choices[q], choices[q + 1]), one for each choice.
  std::vector<int32_t> choices = {};
};

// One micro-batch: a flat list of tokens. A sequence is a run within one document.
struct Batch : ModelInput {
  Indices targets;  // [N]: the next tokens, kIgnored at a document's end; for other outputs see
                    // Transformer::loss()
  int64_t target_count = 0;
  // For streams that training or evaluation reads window by window (nn/streams.h): the window from which
  // each sequence was cut, and whether the sequence continues its stream. Empty: nothing came before.
  std::vector<int32_t> windows = {};
  std::vector<bool> continues = {};
};

}  // namespace qkv
