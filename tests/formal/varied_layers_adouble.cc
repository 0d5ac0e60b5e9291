#include "tests/formal/varied_layers.h"

namespace qkv::formal {

template Matrix<adouble> varied_layers(const Matrix<adouble>&, const Matrix<adouble>&, const Tokens&,
                                       const VariedStack<adouble>&, const VariedHyperparameters&,
                                       SegmentMemory*, const Matrix<adouble>&);

}  // namespace qkv::formal
