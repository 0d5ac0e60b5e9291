#pragma once

// A way to visit every parameter of a theta by name, which training, gradients and tests share.
//
// Every struct of parameters has a static `visit(prefix, f, p...)` that hands each of its matrices and
// vectors to f, in the order of the paper's declaration: of one object, or of several of the same shape side
// by side. An absent parameter (no bias, tied W_u, hard-coded W_p) is an empty matrix and is not visited.

#include <string>
#include <type_traits>

#include "formal/notation.h"

namespace qkv::formal {

// One parameter: f(name, matrix...), unless it is absent.
template <typename F, typename First, typename... Rest>
void visit_parameter(const std::string& name, const F& f, First& first, Rest&... rest) {
  if (first.size() != 0) f(name, first, rest...);
}

// A list of layers or heads: element i (from 1) is visited as prefix + "[i].".
template <typename F, typename First, typename... Rest>
void visit_each(const std::string& prefix, const F& f, First& first, Rest&... rest) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    First::value_type::visit(prefix + "[" + std::to_string(i + 1) + "].", f, first[i], rest[i]...);
  }
}

// f(name, p) for every parameter p of theta, p a Matrix<T>& or Vector<T>& (const if theta is).
template <typename Theta, typename F>
void for_each_parameter(Theta& theta, const F& f) {
  std::remove_const_t<Theta>::visit("", f, theta);
}

// f(name, p, q) for every parameter p of theta and the same parameter q of other, which may have another
// scalar. REQUIRES: both have the same hyperparameters.
template <typename Theta, typename Other, typename F>
void for_each_parameter(Theta& theta, Other& other, const F& f) {
  std::remove_const_t<Theta>::visit("", f, theta, other);
}

// Sets every coefficient of every parameter to next(name), parameter by parameter, each by columns. The paper
// takes the initial parameters as given; this is how tests make some.
template <typename Theta, typename Next>
void fill_parameters(Theta& theta, const Next& next) {
  for_each_parameter(theta, [&](const std::string& name, auto& p) {
    for (Index j = 0; j < p.cols(); ++j) {
      for (Index i = 0; i < p.rows(); ++i) p(i, j) = next(name);
    }
  });
}

}  // namespace qkv::formal
