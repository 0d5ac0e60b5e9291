// The layers of varied models, compiled once for each scalar: that takes longer than all tests of them.
#pragma once

#include "formal/gradient.h"
#include "formal/variations.h"

namespace qkv::formal {

extern template Matrix<double> varied_layers(const Matrix<double>&, const Matrix<double>&, const Tokens&,
                                             const VariedStack<double>&, const VariedHyperparameters&,
                                             SegmentMemory*, const Matrix<double>&);
extern template Matrix<adouble> varied_layers(const Matrix<adouble>&, const Matrix<adouble>&, const Tokens&,
                                              const VariedStack<adouble>&, const VariedHyperparameters&,
                                              SegmentMemory*, const Matrix<adouble>&);

}  // namespace qkv::formal
