#include "tests/formal/varied_layers.h"

namespace qkv::formal {

template Matrix<double> varied_layers(const Matrix<double>&, const Matrix<double>&, const Tokens&,
                                      const VariedStack<double>&, const VariedHyperparameters&,
                                      SegmentMemory*, const Matrix<double>&);

}  // namespace qkv::formal
