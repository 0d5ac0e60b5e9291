#include "qkv/train/run/average.h"

#include "qkv/base/file.h"
#include "qkv/io/auxiliary_files.h"
#include "qkv/io/binding.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {
namespace {

// Names the first parameter that tells the models apart, where there is one.
void expect_same_spec(const std::string& first_dir, const ModelSpec& first, const std::string& dir,
                      const ModelSpec& spec) {
  if (spec == first) return;
  const Transformer a(first), b(spec);
  const auto &ps = a.parameters().all(), &qs = b.parameters().all();
  for (size_t i = 0; i < std::min(ps.size(), qs.size()); ++i)
    check(ps[i].name == qs[i].name && ps[i].shape == qs[i].shape,
          "{}: cannot be averaged with {}: it has {} {} where that has {} {}", dir, first_dir, qs[i].name,
          qs[i].shape, ps[i].name, ps[i].shape);
  check(spec.labels == first.labels && spec.problem == first.problem,
        "{}: cannot be averaged with {}: it has other classes", dir, first_dir);
  fail("{}: cannot be averaged with {}: their config.json differ", dir, first_dir);
}

}  // namespace

void average_models(const std::vector<std::string>& dirs, const std::string& out) {
  check(dirs.size() >= 2, "a mean takes at least two models, got {}", dirs.size());
  check(!file_exists(out), "{}: exists already", out);
  // All that may be refused is looked at before the first weight is read.
  const ModelSpec spec = load_spec(dirs[0]);
  const auto tokenizer = text::Tokenizer::load(dirs[0]);
  for (size_t m = 1; m < dirs.size(); ++m) {
    expect_same_spec(dirs[0], spec, dirs[m], load_spec(dirs[m]));
    const auto other = text::Tokenizer::load(dirs[m]);
    check(other.to_json() == tokenizer.to_json() &&
              other.of_sources().to_json() == tokenizer.of_sources().to_json(),
          "{}: cannot be averaged with {}: it has another tokenizer", dirs[m], dirs[0]);
  }
  std::vector<std::vector<double>> sums;
  std::unique_ptr<Transformer> model;
  for (const std::string& dir : dirs) {
    model = load_model(dir, DType::f32);
    const auto& parameters = model->parameters().all();
    sums.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor weight = trained_value(parameters[i]);
      const auto values = weight.values<float>();
      sums[i].resize(values.size());
      for (size_t k = 0; k < values.size(); ++k) sums[i][k] += double{values[k]};
    }
  }
  size_t i = 0;
  for (Parameter& p : model->parameters().all()) {
    std::vector<double>& sum = sums[i++];
    std::vector<float> mean(sum.size());
    for (size_t k = 0; k < sum.size(); ++k)
      mean[k] = static_cast<float>(sum[k] / static_cast<double>(dirs.size()));
    p.value = Tensor::of(p.shape, mean);
    p.packed = {};
    sum = {};
  }
  write_directory_atomically(out, [&](const std::string& to) {
    save_model(to, *model, load_special_ids(dirs[0]));
    tokenizer.save(to);
    keep_auxiliary_files(dirs[0], to);
  });
}

}  // namespace qkv
