// Covers: qkv/nn/parameter.cc
#include <cmath>

#include "qkv/nn/parameter.h"
#include "tests/unit/expect_error.h"

namespace qkv::parameters_test {
namespace {

using testing::expect_error;

constexpr Initializer kNormal{Initializer::Kind::normal, 0.5F};

// Adds these matrices, in this order, and a gamma.
void fill(Parameters& p, const std::vector<std::string>& names) {
  for (const auto& name : names) p.add(name, {65, 17}, ParameterKind::matrix, kNormal);
  p.add("gamma", {3}, ParameterKind::vector, {Initializer::Kind::ones});
  p.add("beta", {5}, ParameterKind::vector, {Initializer::Kind::zeros});
}

std::vector<float> values(const Tensor& x) {
  return {x.data<float>(), x.data<float>() + x.count()};
}

TEST(Parameters, ADrawDependsOnNameAndSeedOnly) {
  Parameters a, b, c;
  fill(a, {"x", "y"});
  fill(b, {"new", "y", "x"});
  fill(c, {"x", "y"});
  a.draw(1, DType::f32);
  b.prepare_training(DType::bf16, 1);
  c.draw(2, DType::f32);
  for (const char* name : {"x", "y"}) {
    EXPECT_EQ(values(a.find(name)->value), values(b.find(name)->master)) << name;
    EXPECT_NE(values(a.find(name)->value), values(c.find(name)->value)) << name;
  }
  EXPECT_NE(values(a.find("x")->value), values(a.find("y")->value));
  EXPECT_EQ(values(a.find("gamma")->value), std::vector<float>(3, 1));
  EXPECT_EQ(values(a.find("beta")->value), std::vector<float>(5, 0));
}

TEST(Parameters, ANormalDrawHasItsMeanAndDeviation) {
  Parameters p;
  p.add("w", {300, 100}, ParameterKind::matrix, kNormal);
  p.draw(7, DType::f32);
  double sum = 0, squares = 0;
  for (const float v : values(p.find("w")->value)) {
    sum += double{v};
    squares += double{v} * v;
  }
  // 5 standard deviations of the mean and of the variance of 30000 numbers.
  EXPECT_NEAR(sum / 30000, 0, 5 * 0.5 / std::sqrt(30000.0));
  EXPECT_NEAR(squares / 30000, 0.25, 5 * 0.25 * std::sqrt(2 / 30000.0));
}

TEST(Parameters, ArenasHoldEachKindInOneRun) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    Parameters p;
    fill(p, {"x", "y"});
    p.prepare_training(compute, 1);
    EXPECT_TRUE(p.training());
    EXPECT_EQ(p.count(), 2 * 65 * 17 + 3 + 5);
    for (Parameter& x : p.all()) {
      Arena& a = p.arena(x.kind);
      EXPECT_TRUE(x.master.same_storage(a.master));
      EXPECT_TRUE(x.leaf->grad.same_storage(a.gradient));
      const bool shadow = compute == DType::bf16 && x.kind == ParameterKind::matrix;
      EXPECT_TRUE(x.value.same_storage(shadow ? a.shadow : a.master));
      EXPECT_EQ(x.value.dtype(), shadow ? DType::bf16 : DType::f32);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(x.master.raw()) % 64, 0U);
      EXPECT_NE(x.value.edge(), nullptr);
    }
    EXPECT_FALSE(p.arena(ParameterKind::vector).shadow.defined());
    EXPECT_EQ(p.arena(ParameterKind::matrix).shadow.defined(), compute == DType::bf16);
  }
}

TEST(Parameters, ShadowsAreTheRoundedMasters) {
  Parameters p;
  fill(p, {"x"});
  p.prepare_training(DType::bf16, 1);
  Parameter& x = *p.find("x");
  const auto expect_rounded = [&] {
    for (int64_t i = 0; i < x.shape.count(); ++i)
      ASSERT_EQ(x.value.data<BFloat16>()[i].bits, BFloat16(x.master.data<float>()[i]).bits);
  };
  expect_rounded();
  for (int64_t i = 0; i < x.shape.count(); ++i) x.master.mutable_data<float>()[i] += 0.3F;
  p.refresh_shadows();
  expect_rounded();
}

TEST(Parameters, TrainingStartsFromBoundValues) {
  Parameters p;
  fill(p, {"x", "y"});
  const std::vector<float> given(65 * 17, 0.25F);
  p.find("x")->value = Tensor::of({65, 17}, given);
  p.prepare_training(DType::bf16, 1);
  EXPECT_EQ(values(p.find("x")->master), given);
  EXPECT_NE(values(p.find("y")->master), given);
}

TEST(Parameters, DrawLeavesBoundValuesAlone) {
  Parameters p;
  fill(p, {"x", "y"});
  const std::vector<float> given(65 * 17, 0.25F);
  p.find("x")->value = Tensor::of({65, 17}, given);
  p.draw(1, DType::bf16);
  EXPECT_EQ(values(p.find("x")->value), given);
  EXPECT_EQ(p.find("y")->value.dtype(), DType::bf16);
  EXPECT_EQ(p.find("gamma")->value.dtype(), DType::f32);  // vectors are always f32
}

TEST(Parameters, GradientsThatNothingReachedAreZero) {
  Parameters p;
  fill(p, {"x", "y"});
  p.prepare_training(DType::f32, 1);
  for (Parameter& x : p.all()) {
    for (int64_t i = 0; i < x.shape.count(); ++i) x.leaf->grad.mutable_data<float>()[i] = 7;
    x.leaf->fresh = false;
  }
  p.reset_gradients();
  p.find("y")->leaf->fresh = false;  // as if written
  p.complete_gradients();
  EXPECT_EQ(values(p.find("x")->leaf->grad), std::vector<float>(65 * 17, 0));
  EXPECT_EQ(values(p.find("y")->leaf->grad), std::vector<float>(65 * 17, 7));
  EXPECT_EQ(values(p.find("gamma")->leaf->grad), std::vector<float>(3, 0));
}

TEST(Parameters, RefusesDoubleNamesAndOtherTypes) {
  Parameters p;
  fill(p, {"x"});
  expect_error([&] { p.add("x", {1}, ParameterKind::vector, {}); }, {"'x'", "exists"});
  expect_error([&] { p.prepare_training(DType::f16, 1); }, {"f16"});
  p.prepare_training(DType::f32, 1);
  expect_error([&] { p.add("z", {1}, ParameterKind::vector, {}); }, {"'z'", "training"});
  EXPECT_EQ(p.find("z"), nullptr);
}

}  // namespace
}  // namespace qkv::parameters_test
