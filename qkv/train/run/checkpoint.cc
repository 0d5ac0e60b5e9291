#include "qkv/train/run/checkpoint.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/parallel.h"
#include "qkv/io/auxiliary_files.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/model_dir.h"

namespace qkv {
namespace {

constexpr int64_t kVersion = 2;  // version of trainer_state.json

void write_model(const std::string& dir, const Transformer& model, const ModelFiles& files) {
  save_model(dir, model, files.ids);
  files.tokenizer.save(dir);
  if (!files.chat_template.empty()) write_file_atomically(dir + "/chat_template.jinja", files.chat_template);
  if (!files.auxiliary_files_of.empty()) keep_auxiliary_files(files.auxiliary_files_of, dir);
}

// Writes the state and the memory of all ranks.
void write_training(const std::string& path, TrainingState& training) {
  const NamedTensors state = training.state(), memory = training.memory();
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& [name, tensor] : state)
    entries.push_back({name, tensor.dtype(), training.whole_shape(name, tensor)});
  for (const auto& [name, tensor] : memory) entries.push_back({name, tensor.dtype(), tensor.shape()});
  SafetensorsWriter out(path, entries);
  const auto write = [&](std::span<const std::byte> bytes) { out.write(bytes); };
  for (const auto& [name, tensor] : state) training.collect(name, tensor, write);
  for (const auto& [name, tensor] : memory) {
    const auto bytes = tensor.value_bytes();
    write({bytes.data(), bytes.size()});
  }
  out.finish();
}

}  // namespace

void send_training(TrainingState& training) {
  const NamedTensors state = training.state();
  training.memory();
  for (const auto& [name, tensor] : state) training.collect(name, tensor, nullptr);
}

void save_model_dir(const std::string& dir, const Transformer& model, const ModelFiles& files) {
  write_directory_atomically(dir, [&](const std::string& to) { write_model(to, model, files); });
}

void save_model_dir(const std::string& dir, const Transformer& model, const text::Tokenizer& tokenizer) {
  save_model_dir(dir, model, {tokenizer, special_ids_of(tokenizer, model.spec())});
}

void save_checkpoint(const std::string& dir, TrainingState& training, const ModelFiles& files,
                     const TrainerState& state) {
  write_directory_atomically(dir, [&](const std::string& to) {
    write_model(to, training.model(), files);
    write_training(to + "/optimizer.safetensors", training);
    const OrderedJson json = {
        {"version", kVersion},
        {"step", state.step},
        {"batch", state.batch},
        {"evaluations_since_best", state.best.evaluations_since},
        {"best_loss", std::isfinite(state.best.error) ? OrderedJson(state.best.error) : OrderedJson(nullptr)},
        {"smoothed_loss", state.smoothed_loss},
        {"threads", state.threads},
        {"fingerprint", state.fingerprint}};
    write_file_atomically(to + "/trainer_state.json", json.dump(2) + "\n");
  });
}

TrainerState load_trainer_state(const std::string& dir) {
  const std::string path = dir + "/trainer_state.json";
  check(file_exists(path), "{}: missing: there is no checkpoint to resume from", path);
  const Json json = parse_json(read_file(path), path);
  const JsonField root(json, path);
  const int64_t version = root["version"].integer(0, int64_t{1} << 30);
  check(version == kVersion,
        "{}: version {} of a training state cannot be resumed, expected {}: start a new run{}", path, version,
        kVersion, version < kVersion ? "" : ", or use the newer qkv that wrote it");
  TrainerState s;
  s.step = root["step"].integer(0, int64_t{1} << 60);
  s.batch = root["batch"].integer(1, int64_t{1} << 31);
  s.best.evaluations_since = root["evaluations_since_best"].integer(0, int64_t{1} << 60);
  if (const auto best = root.find("best_loss"))
    s.best.error = best->number();  // null until the first evaluation
  s.smoothed_loss = root["smoothed_loss"].number();
  s.threads = static_cast<int>(root["threads"].integer(1, 1 << 20));
  s.fingerprint = root["fingerprint"].string();
  return s;
}

void load_training(const std::string& dir, TrainingState& training) {
  const std::string path = dir + "/optimizer.safetensors";
  const TensorFile file = read_safetensors(path);
  auto state = training.state();
  if (training.model().spec().memory > 0) training.load_memory(file.tensors);
  const auto is_memory = [](const auto& named) { return named.first.starts_with("memory."); };
  const size_t expected =
      state.size() + (training.model().spec().memory > 0
                          ? static_cast<size_t>(std::ranges::count_if(file.tensors, is_memory))
                          : 0);
  check(file.tensors.size() == expected, "{}: expected {} tensors, got {}", path, expected,
        file.tensors.size());
  for (auto& [name, tensor] : state) {
    const auto it = file.tensors.find(name);
    const Tensor saved = it == file.tensors.end() ? Tensor() : training.own_part(name, it->second);
    check(saved && saved.shape() == tensor.shape() && saved.dtype() == tensor.dtype(),
          "{}: '{}' does not fit this configuration", path, name);
    tensor.copy(saved);
  }
}

std::map<int64_t, std::string> older_checkpoints(const std::string& run, int64_t before) {
  std::map<int64_t, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || name.size() > 20) continue;
    const std::string digits = name.substr(5);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const int64_t step = std::stoll(digits); step < before) found.emplace(step, entry.path().string());
  }
  return found;
}

std::vector<std::string> newest_checkpoints(const std::string& run, int64_t count) {
  check(file_exists(run + "/last/trainer_state.json"), "{}: holds no run: expected a checkpoint in last/",
        run);
  std::vector<std::string> all;
  const int64_t last = load_trainer_state(run + "/last").step;  // an interrupted run may have it twice
  for (const auto& [step, dir] : older_checkpoints(run, last)) all.push_back(dir);
  all.push_back(run + "/last");
  check(std::ssize(all) >= count, "{}: keeps {} checkpoints, asked for {}: train with train.keep = {}", run,
        all.size(), count, count);
  return {all.end() - count, all.end()};
}

}  // namespace qkv
