// Drafts by modules of multi-token prediction.
#include "qkv/infer/mtp_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "qkv/infer/engine.h"
#include "qkv/ops/parts.h"
#include "tests/unit/expect_error.h"

namespace qkv::mtp_drafter_test {
namespace {

using Tokens = std::vector<int32_t>;

ModelSpec with_modules(MtpForm form) {
  ModelSpec s = gpt2_spec(23, 40, 24, 2, 4);
  s.positions = Positions::rotary;
  s.attention.rotary.width = 6;
  s.attention.kv_heads = 2;
  s.normalization = Normalization::rms;
  s.mtp = {4, form};
  s.init_std = 0.4F;
  return s;
}

std::unique_ptr<Transformer> drawn(const ModelSpec& spec) {
  auto model = std::make_unique<Transformer>(spec);
  model->parameters().draw(3, DType::f32);
  return model;
}

// The draft of modules that read the whole text at once, without a memory. The last joined one also reads its
// own rows, in place of those that will come.
Tokens drafted_at_once(const Transformer& model, const DraftQuery& q) {
  const NoGrad guard;
  Tokens text = q.request->prompt, draft;
  text.insert(text.end(), q.written.begin(), q.written.end());
  const int64_t rows = std::ssize(text) - 1, count = model.mtp()->count();
  const MtpForm form = model.spec().mtp.form;
  const Tensor first =
      model.hidden({Tokens(text.begin(), text.end() - 1), Layout::of({static_cast<int32_t>(rows)})}, {});
  Tensor x = first;
  const int64_t most = form == MtpForm::joined ? q.most : std::min(q.most, count);
  for (int64_t i = 1; i <= most; ++i) {
    const int64_t k = std::min(i, count);
    Context context;
    context.layout = Layout::of({static_cast<int32_t>(x.dim(0))});
    const Tensor h =
        model.mtp()->forward(k, x, Tokens(text.begin() + k, text.begin() + k + x.dim(0)), context);
    const Tensor last = h.slice_rows(h.dim(0) - 1, h.dim(0));
    const Tensor logits = model.logits(model.mtp()->normalized(k, last));
    const auto z = logits.row<float>(0);
    draft.push_back(static_cast<int32_t>(std::ranges::max_element(z) - z.begin()));
    text.push_back(draft.back());
    if (i >= count)
      x = join_rows({x, last});
    else
      x = form == MtpForm::parallel ? first : h;
  }
  return draft;
}

// Compares each draft; and spoils some, so that they are accepted in part.
class Checker : public MtpDrafter {
 public:
  explicit Checker(const Transformer& model) : MtpDrafter(model), model_(model) {}
  std::vector<Tokens> draft(std::span<const DraftQuery> queries) override {
    std::vector<Tokens> drafts = MtpDrafter::draft(queries);
    for (size_t i = 0; i < queries.size(); ++i) {
      EXPECT_EQ(drafts[i], drafted_at_once(model_, queries[i])) << "after " << queries[i].written.size();
      ++compared;
      // The text goes on as it does: some of these tokens are accepted by chance, or most of them.
      if (compared % 3 == 0) drafts[i] = next_of(queries[i]);
    }
    return drafts;
  }
  Tokens answer;  // the tokens that the request gets without drafts
  int64_t compared = 0;

 private:
  Tokens next_of(const DraftQuery& q) const {
    const auto from = std::min(q.written.size(), answer.size());
    Tokens next(answer.begin() + static_cast<int64_t>(from), answer.end());
    next.resize(std::min<size_t>(next.size(), static_cast<size_t>(q.most)));
    if (next.size() > 2) next[2] = 0;
    return next;
  }
  const Transformer& model_;
};

Tokens written(const Transformer& model, const Request& request, EngineOptions options) {
  Engine engine(model, options);
  engine.add(request);
  Tokens out;
  while (engine.step([&](const NewToken& t) {
    out.push_back(t.token);
    return true;
  })) {
  }
  return out;
}

class MtpDrafterTest : public ::testing::TestWithParam<MtpForm> {};

TEST_P(MtpDrafterTest, SaysWhatModulesSayOfTheWholeText) {
  const auto model = drawn(with_modules(GetParam()));
  Request request{.prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5}, .max_new_tokens = 28};
  request.sampler.temperature = 0;
  const Tokens plain = written(*model, request, {});
  for (const int64_t at_once : {2, 256}) {
    for (const int64_t most : {1, 2, 3, 15}) {
      Checker checker(*model);
      checker.answer = plain;
      EXPECT_EQ(
          written(*model, request, {.prompt_tokens = at_once, .drafter = &checker, .drafted_tokens = most}),
          plain);
      EXPECT_GT(checker.compared, 5);
    }
  }
}

// A model with modules whose rows were never shown drafts nothing.
TEST_P(MtpDrafterTest, DraftsOnlyWhatItHasSeen) {
  const auto model = drawn(with_modules(GetParam()));
  MtpDrafter drafter(*model);
  const Request request{.prompt = {1, 2}};
  const DraftQuery query{7, &request, {}, 3};
  EXPECT_EQ(drafter.draft({&query, 1}), std::vector<Tokens>(1));
}

INSTANTIATE_TEST_SUITE_P(Forms, MtpDrafterTest,
                         ::testing::Values(MtpForm::chained, MtpForm::joined, MtpForm::parallel));

TEST(MtpDrafter, NeedsModules) {
  ModelSpec spec = with_modules(MtpForm::chained);
  spec.mtp = {};
  const auto model = drawn(spec);
  testing::expect_error([&] { MtpDrafter{*model}; }, {"no modules of multi-token prediction"});
}

}  // namespace
}  // namespace qkv::mtp_drafter_test
