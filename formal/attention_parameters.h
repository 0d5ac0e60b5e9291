#pragma once

// W_qkv of Algorithm 4 and W of Algorithm 5, eq. (4).

#include <string>
#include <vector>

#include "formal/notation.h"
#include "formal/parameters.h"

namespace qkv::formal {

// W_qkv, the parameters of one head (Algorithm 4). An empty bias is absent.
template <typename T>
struct AttentionParameters {
  Matrix<T> W_q;  // [d_attn x d_x]
  Vector<T> b_q;  // [d_attn]
  Matrix<T> W_k;  // [d_attn x d_z]
  Vector<T> b_k;  // [d_attn]
  Matrix<T> W_v;  // [d_out x d_z]; d_out is called d_mid inside Algorithm 5
  Vector<T> b_v;  // [d_out]

  AttentionParameters() = default;
  AttentionParameters(Index d_attn, Index d_out, Index d_x, Index d_z)
      : W_q(Matrix<T>::Constant(d_attn, d_x, T(0))),
        b_q(Vector<T>::Constant(d_attn, T(0))),
        W_k(Matrix<T>::Constant(d_attn, d_z, T(0))),
        b_k(Vector<T>::Constant(d_attn, T(0))),
        W_v(Matrix<T>::Constant(d_out, d_z, T(0))),
        b_v(Vector<T>::Constant(d_out, T(0))) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_q", f, p.W_q...);
    visit_parameter(prefix + "b_q", f, p.b_q...);
    visit_parameter(prefix + "W_k", f, p.W_k...);
    visit_parameter(prefix + "b_k", f, p.b_k...);
    visit_parameter(prefix + "W_v", f, p.W_v...);
    visit_parameter(prefix + "b_v", f, p.b_v...);
  }
};

// W, the parameters of a multi-head attention layer (Algorithm 5, eq. (4)).
template <typename T>
struct MHAttentionParameters {
  std::vector<AttentionParameters<T>> head;  // H of them; head[h - 1] is W^h_qkv
  Matrix<T> W_o;                             // [d_out x H d_mid]
  Vector<T> b_o;                             // [d_out]

  MHAttentionParameters() = default;
  MHAttentionParameters(Index H, Index d_attn, Index d_mid, Index d_x, Index d_z, Index d_out)
      : head(static_cast<std::size_t>(H), AttentionParameters<T>(d_attn, d_mid, d_x, d_z)),
        W_o(Matrix<T>::Constant(d_out, H * d_mid, T(0))),
        b_o(Vector<T>::Constant(d_out, T(0))) {}

  template <typename F, typename First, typename... Rest>
  static void visit(const std::string& prefix, const F& f, First& first, Rest&... rest) {
    visit_each(prefix + "head", f, first.head, rest.head...);
    visit_parameter(prefix + "W_o", f, first.W_o, rest.W_o...);
    visit_parameter(prefix + "b_o", f, first.b_o, rest.b_o...);
  }
};

}  // namespace qkv::formal
