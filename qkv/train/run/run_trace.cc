#include "qkv/train/run/run_trace.h"

#include <fmt/format.h>

#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/trace/page.h"
#include "qkv/trace/roles.h"

namespace qkv {
namespace {

constexpr int64_t kTokens = 24, kRepeated = 50;  // tokens of the pictures, and of each pass for the roles
constexpr uint64_t kPasses = 4;

ModelInput one_sequence(std::vector<int32_t> ids) {
  ModelInput input;
  input.layout = Layout::of({static_cast<int32_t>(ids.size())});
  input.ids = std::move(ids);
  return input;
}

// Empty where nothing attends, or a text has no room for tokens that come again.
OrderedJson roles_json(const Transformer& model) {
  const ModelSpec& spec = model.spec();
  const bool attends = spec.has_blocks() && spec.any_attends();
  if (!attends || std::min(spec.context, spec.longest()) < 4) return OrderedJson::object();
  RoleMeter meter(model);
  for (uint64_t pass = 0; pass < kPasses; ++pass)
    meter.add(one_sequence(
        repeated_tokens({}, 0, spec.vocab_size, std::min({kRepeated, spec.context, spec.longest()}), pass)));
  OrderedJson out = OrderedJson::object();
  for (const HeadRole& r : meter.roles())
    out[fmt::format("{}.{}", r.layer, r.head)] = {{"previous", r.previous},
                                                  {"first", r.first},
                                                  {"same", r.same},
                                                  {"duplicate", r.duplicate},
                                                  {"induction", r.induction}};
  return out;
}

}  // namespace

void write_run_trace(const RunSetup& run, const Transformer& model) {
  const std::vector<int32_t> ids = run.task->opening(std::min(kTokens, model.spec().longest()));
  check(!ids.empty(), "train.trace_every: there is no validation text to trace");
  WalkLabels labels;
  labels.ids = ids;
  const text::Tokenizer& tokenizer = run.task->tokenizer();
  labels.piece = [&](int64_t id) {
    return shown_piece(tokenizer.decode(std::vector<text::TokenId>{static_cast<text::TokenId>(id)}));
  };
  for (const int32_t id : ids) labels.tokens.push_back(labels.piece(id));
  OrderedJson trace = {{"step", run.state.step}};
  trace.update(attention_and_lens(model, one_sequence(ids), labels));
  trace["roles"] = roles_json(model);
  const std::string folder = run.config.out + "/traces";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "{}: cannot be created: {}", folder, error.message());
  write_file_atomically(fmt::format("{}/step-{:08}.json", folder, run.state.step),
                        trace.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace qkv
