// Memory of segments: what the layers of a model read before is seen as if the text had been read at once.
// Covers: qkv/nn/streams.cc
#include "qkv/nn/segment_state.h"

#include "qkv/train/tasks/evaluate.h"
#include "tests/unit/expect_error.h"

namespace qkv::segment_state_test {
namespace {

Tensor rows_of(std::initializer_list<float> values, int64_t width = 1) {
  return Tensor::of({std::ssize(values) / width, width}, std::vector<float>(values));
}
std::vector<float> floats(const Tensor& x) {
  return {x.data<float>(), x.data<float>() + x.count()};
}
using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

TEST(SegmentState, RemembersTheLastRowsOfEachSequence) {
  SegmentState state(2, 3);
  EXPECT_EQ(floats(state.extended(rows_of({1, 2, 10}), Layout::of({2, 1}))), (Floats{1, 2, 10}));
  EXPECT_EQ(state.length(0), 0);  // not yet: a pass may be repeated
  state.advance();
  const Tensor z = state.extended(rows_of({3, 4, 11}), Layout::of({2, 1}));
  EXPECT_EQ(floats(z), (Floats{1, 2, 3, 4, 10, 11}));
  const auto place = state.place(Layout::of({2, 1}));
  EXPECT_EQ(place.layout.offsets, (Ints{0, 4, 6}));
  EXPECT_EQ(Ints(place.own.values().begin(), place.own.values().end()), (Ints{2, 3, 5}));
  state.advance();
  EXPECT_EQ(state.length(0), 3);
  EXPECT_EQ(floats(state.extended(rows_of({5, 12}), Layout::of({1, 1}))), (Floats{2, 3, 4, 5, 10, 11, 12}));
}

TEST(SegmentState, IsReorderedCutAndSaved) {
  SegmentState state(3, 2);
  state.extended(rows_of({1, 2, 3, 4, 5}), Layout::of({2, 1, 2}));
  state.advance();
  state.reorder(Ints{2, 0, 2});
  state.truncate(1, 1);
  SegmentState copy(1, 2);
  copy.load(state.save());
  for (SegmentState* s : {&state, &copy})
    EXPECT_EQ(floats(s->extended(rows_of({7, 8, 9}), Layout::of({1, 1, 1}))),
              (Floats{4, 5, 7, 1, 8, 4, 5, 9}));
  state.truncate(0, 0);
  EXPECT_EQ(floats(state.extended(rows_of({7, 8, 9}), Layout::of({1, 1, 1}))), (Floats{7, 1, 8, 4, 5, 9}));
  EXPECT_EQ(floats(copy.fork()->save()[1]), (Floats{4, 5, 1, 4, 5}));
}

TEST(SegmentState, RefusesWhatDoesNotFit) {
  SegmentState state(2, 3);
  testing::expect_error([&] { state.advance(); }, {"nothing was read"});
  testing::expect_error([&] { state.extended(rows_of({1}), Layout::of({1})); }, {"2 sequences", "1"});
  state.extended(rows_of({1, 2}), Layout::of({1, 1}));
  state.advance();
  testing::expect_error([&] { state.extended(rows_of({1, 2, 3, 4}, 2), Layout::of({1, 1})); }, {"holds f32"});
  testing::expect_error([&] { state.reorder(Ints{2}); }, {"no sequence 2"});
  testing::expect_error([&] { state.truncate(0, 2); }, {"1 positions", "2"});
  testing::expect_error([&] { state.load({}); }, {"lengths and rows"});
  testing::expect_error([&] { state.load({Tensor::of({1}, Ints{4})}); }, {"bad length 4"});
  testing::expect_error([&] { state.load({Tensor::of({1}, Ints{2}), rows_of({1})}); }, {"expected 2 rows"});
  testing::expect_error([&] { state.load({Tensor::of({1}, Ints{2})}); }, {"2 rows are missing"});
  EXPECT_EQ(state.length(0), 1);
}

ModelSpec spec() {
  ModelSpec s = gpt2_spec(13, 8, 16, 2, 2);
  s.positions = Positions::none;
  s.init_std = 0.3F;
  return s;
}

// Segment by segment with a memory that holds all, the text's loss is that of reading it at once; with a
// short one it is not.
TEST(Memory, SegmentsReadLikeTheWholeText) {
  const std::vector<std::function<void(ModelSpec&)>> kinds = {
      [](ModelSpec&) {},
      [](ModelSpec& s) {
        s.positions = Positions::rotary;
        s.attention.rotary.width = 4;
      },
      [](ModelSpec& s) {
        s.positions = Positions::rotary;
        s.attention.rotary.width = 8;
        s.attention.head_sizes = {8, 12};
        s.attention.d_qk = s.attention.d_vo = 12;
      },
      [](ModelSpec& s) { s.positions = Positions::alibi; },
      [](ModelSpec& s) { s.positions = Positions::relative; },
      [](ModelSpec& s) { s.positions = Positions::toeplitz; },
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::shaw, 5};
      },
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::shaw_both, 5};
      },
      [](ModelSpec& s) { s.attention.relative = {RelativeAttention::transformer_xl}; },
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::disentangled, 9};
      },
      [](ModelSpec& s) {
        s.attention.patterns = patterns_from_texts({"window 9", "stride 3"});
      },
      [](ModelSpec& s) {
        s.attention.kv_heads = 1;
        s.attention.query_key_norm = QueryKeyNorm::heads;
        s.norm_placement = NormPlacement::post;
      },
      [](ModelSpec& s) { s.branches = Branches::parallel; },
  };
  std::vector<int32_t> first, second;
  for (int i = 0; i < 37; ++i) first.push_back(static_cast<int32_t>(RandomStream{3, 0, 0}.below(i, 13)));
  for (int i = 0; i < 21; ++i) second.push_back(static_cast<int32_t>(RandomStream{4, 0, 0}.below(i, 13)));
  TokenStream stream;
  stream.append(first);
  stream.append(second);
  for (size_t k = 0; k < kinds.size(); ++k) {
    const auto loss = [&](int64_t context, int64_t memory) {
      ModelSpec s = spec();
      kinds[k](s);
      s.context = context;
      s.memory = memory;
      Transformer model(s);
      model.parameters().draw(7, DType::f32);
      return evaluate(model, stream, 1).total;
    };
    const double whole = loss(64, 0);
    EXPECT_NEAR(loss(8, 64) / whole, 1, 1e-6) << "kind " << k;
    EXPECT_GT(std::abs(loss(8, 2) / whole - 1), 1e-5) << "kind " << k;
    EXPECT_GT(std::abs(loss(8, 0) / whole - 1), 1e-5) << "kind " << k;
  }
}

}  // namespace
}  // namespace qkv::segment_state_test
