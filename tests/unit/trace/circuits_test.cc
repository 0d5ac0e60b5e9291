#include "qkv/trace/circuits.h"

#include <Eigen/Dense>

#include "qkv/trace/intervention.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/trace/trace_testing.h"

namespace qkv::circuits_test {
namespace {

using testing::random_model;
using testing::sequence;
using Matrix = Eigen::MatrixXd;

constexpr int64_t kWidth = 12, kHeads = 3, kEach = 4;

ModelSpec spec_of(NormPlacement placement, Normalization kind = Normalization::layer) {
  ModelSpec spec = gpt2_spec(11, kWidth, kWidth, 2, kHeads);
  spec.norm_placement = placement;
  spec.normalization = kind;
  return spec;
}

Matrix matrix_of(const Tensor& x) {
  Matrix out(x.rows(), x.width());
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t c = 0; c < x.width(); ++c) out(r, c) = x.row<float>(r)[c];
  return out;
}

Tensor identity() {
  Tensor x = Tensor::zeros({kWidth, kWidth}, DType::f32);
  for (int64_t i = 0; i < kWidth; ++i) x.mutable_row<float>(i)[i] = 1;
  return x;
}

// A value of the model where another one is the identity.
Matrix response(const Transformer& model, const std::string& set, const std::string& seen) {
  Trace trace({seen});
  Intervention probe({{set, Change::Kind::set, {}, 0, 0, identity()}}, &trace);
  const NoGrad guard;
  Context context;
  context.probe = &probe;
  model.hidden(sequence({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}), context);
  return matrix_of(trace.at(seen).rows);
}

struct HeadMatrices {
  Matrix qk, ov;
};

// Both matrices of a head, as the engine acts: `size` is the length that a norm gives a row of the identity.
HeadMatrices of_engine(const Transformer& model, int64_t layer, int64_t head, double size) {
  const std::string before = layer == 0 ? "decoder.embedding" : "decoder.block.0.feed_forward.sum",
                    at = fmt::format("decoder.block.{}.attention", layer);
  const auto part = [&](const Matrix& x) { return Matrix(x.middleCols(head * kEach, kEach)); };
  const Matrix q = part(response(model, before, at + ".queries")),
               k = part(response(model, before, at + ".keys")),
               v = part(response(model, before, at + ".values")),
               o = response(model, at + ".heads", at + ".branch").middleRows(head * kEach, kEach);
  return {q * k.transpose() * size * size, v * o * size};
}

// Sums and norms of the products that the engine computes.
TEST(Circuits, AreWhatTheEngineComputes) {
  for (const auto& [placement, kind] : {std::pair(NormPlacement::none, Normalization::layer),
                                        {NormPlacement::pre, Normalization::layer},
                                        {NormPlacement::pre, Normalization::rms},
                                        {NormPlacement::pre, Normalization::rms_plus_one}}) {
    const auto model = random_model(spec_of(placement, kind), 1);
    for (Parameter& p : model->parameters().all())  // gammas with something to say, and no biases
      if (p.shape.rank() == 1)
        for (float i = 1; float& x : p.value.mutable_values<float>())
          x = p.name.ends_with(".gamma") ? x + 0.3F * std::sin(i++) : 0;
    const double n = kWidth;
    const double size = placement == NormPlacement::none ? 1
                        : kind == Normalization::layer   ? std::sqrt((1 - 1 / n) / n + 1e-5)
                                                         : std::sqrt(1 / n + 1e-5);
    const Circuits circuits = circuits_of(*model);
    ASSERT_EQ(circuits.heads.size(), 6U);
    std::vector<HeadMatrices> all;
    for (const HeadCircuits& head : circuits.heads) {
      all.push_back(of_engine(*model, head.layer, head.head, size));
      const auto compare = [](const Matrix& m, const std::vector<double>& singular,
                              const std::vector<std::complex<double>>& eigenvalues) {
        double squares = 0;
        std::complex<double> sum = 0;
        for (const double s : singular) squares += s * s;
        for (const auto& z : eigenvalues) sum += z;
        EXPECT_EQ(singular.size(), size_t{kEach});
        EXPECT_NEAR(squares, m.squaredNorm(), 1e-4 * m.squaredNorm());
        EXPECT_NEAR(sum.real(), m.trace(), 1e-4 * m.norm());
        EXPECT_NEAR(sum.imag(), 0, 1e-9);
        EXPECT_EQ(rank_of(singular), kEach);
      };
      compare(all.back().qk, head.qk_singular, head.qk_eigenvalues);
      compare(all.back().ov, head.ov_singular, head.ov_eigenvalues);
    }
    ASSERT_EQ(circuits.composed.size(), 9U);
    for (const Composition& c : circuits.composed) {
      const HeadMatrices &w = all[c.writer], &r = all[c.reader];
      EXPECT_EQ(circuits.heads[c.writer].layer, 0);
      EXPECT_EQ(circuits.heads[c.reader].layer, 1);
      EXPECT_NEAR(c.query, (w.ov * r.qk).norm() / w.ov.norm() / r.qk.norm(), 1e-4);
      EXPECT_NEAR(c.key, (w.ov * r.qk.transpose()).norm() / w.ov.norm() / r.qk.norm(), 1e-4);
      EXPECT_NEAR(c.value, (w.ov * r.ov).norm() / w.ov.norm() / r.ov.norm(), 1e-4);
    }
  }
}

// A head that writes what it reads copies; with the other sign it does the opposite. A width beyond D fills
// no more ranks.
TEST(Circuits, CopyingAndRanks) {
  ModelSpec spec = gpt2_spec(11, 8, 6, 1, 1);
  spec.norm_placement = NormPlacement::none;
  spec.attention.d_qk = spec.attention.d_vo = 9;
  const auto model = random_model(spec, 2);
  Parameters& all = model->parameters();
  for (const float sign : {1.0F, -1.0F}) {
    Tensor qkv = Tensor::zeros({27, 6}, DType::f32), out = Tensor::zeros({6, 9}, DType::f32);
    for (int64_t i = 0; i < 6; ++i) {
      qkv.mutable_row<float>(18 + i)[i] = 1;
      out.mutable_row<float>(i)[i] = sign;
    }
    for (int64_t i = 0; i < 2; ++i) qkv.mutable_row<float>(i)[i] = qkv.mutable_row<float>(9 + i)[i] = 1;
    all.find("decoder.block.0.attention.qkv.weight")->value = qkv;
    all.find("decoder.block.0.attention.out.weight")->value = out;
    const HeadCircuits head = circuits_of(*model).heads[0];
    EXPECT_NEAR(head.copying, sign, 1e-6);
    EXPECT_NEAR(head.matching, 1, 1e-6);
    EXPECT_EQ(head.qk_singular.size(), 6U);
    EXPECT_EQ(rank_of(head.ov_singular), 6);
    EXPECT_EQ(rank_of(head.qk_singular), 2);
  }
}

TEST(Circuits, OfWhatIsNoProductAreRefused) {
  ModelSpec normed = spec_of(NormPlacement::pre);
  normed.attention.query_key_norm = QueryKeyNorm::heads;
  testing::expect_error([&] { circuits_of(*random_model(normed, 3)); }, {"circuits", "norms"});
  ModelSpec two = spec_of(NormPlacement::pre);
  two.branches = Branches::reversible;
  two.tied = false;
  testing::expect_error([&] { circuits_of(*random_model(two, 3)); }, {"circuits", "two"});
  ModelSpec embedded = spec_of(NormPlacement::pre);  // tokens are not the stream
  embedded.embedding_norm = true;
  EXPECT_TRUE(std::isnan(circuits_of(*random_model(embedded, 3)).heads[0].copying));
}

}  // namespace
}  // namespace qkv::circuits_test
