// Small models for the tests of traces.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/models/transformer.h"

namespace qkv::testing {

// A model with weights large enough that all parts matter.
inline std::unique_ptr<Transformer> random_model(ModelSpec spec, uint64_t seed) {
  spec.init_std = 0.4F;
  auto model = std::make_unique<Transformer>(spec);
  model->parameters().draw(seed, DType::f32);
  return model;
}

// An input of one sequence.
inline ModelInput sequence(const std::vector<int32_t>& ids) {
  ModelInput input;
  input.ids = ids;
  input.layout = Layout::of({static_cast<int32_t>(ids.size())});
  return input;
}

}  // namespace qkv::testing
