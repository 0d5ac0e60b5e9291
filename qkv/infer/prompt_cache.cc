#include "qkv/infer/prompt_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "qkv/base/hash.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/kernels/kernels.h"
#include "qkv/models/spec_schema.h"

namespace qkv {
namespace fs = std::filesystem;

namespace {

using Tokens = std::vector<int32_t>;
using Named = std::vector<std::pair<std::string, Tensor>>;

constexpr const char* kVersion = "1";  // a new one makes older files unreadable
constexpr std::string_view kBegin = "prompt-", kEnd = ".safetensors";
constexpr size_t kHashDigits = 16;

// The whole of a small weight, of others some lines of 64 bytes.
void add_samples(std::span<const std::byte> bytes, std::string& out) {
  constexpr size_t kSmall = 1 << 16, kLines = 32, kLine = 64;
  out += fmt::format("{}\n", bytes.size());
  if (bytes.size() <= kSmall) {
    out += hash_of(bytes);
    return;
  }
  for (size_t i = 0; i < kLines; ++i)
    out.append(reinterpret_cast<const char*>(bytes.data()) + (bytes.size() - kLine) / (kLines - 1) * i,
               kLine);
}

void add_samples(const Weight& weight, std::string& out) {
  if (!weight.is_packed()) {
    out += name_of(weight.dense().dtype());
    return add_samples(weight.dense().value_bytes(), out);
  }
  for (const Weight::Rows& run : weight.runs()) {
    out += name_of(run.view.type);
    add_samples(
        {static_cast<const std::byte*>(run.view.data), static_cast<size_t>(run.count * run.view.row_bytes())},
        out);
  }
}

void add_model(const Transformer& model, std::string& out) {
  const auto add_texts = [&](const std::vector<FieldText>& texts) {
    for (const FieldText& t : texts) out += fmt::format("{}={}\n", t.field.name, t.text);
  };
  add_texts(field_texts(model.spec()));
  out += fmt::format("activations {}\n", name_of(model.parameters().compute));
  for (const BlockSpec* block : model.spec().blocks_in_use()) add_texts(field_texts(*block));
  for (const Parameter& p : model.parameters().all()) {
    out += fmt::format("{} {}\n", p.name, p.shape);
    if (p.defined()) add_samples(p.weight(), out);
  }
  for (const AdapterSpec& a : model.parameters().adapters())
    out += fmt::format("{} {} {} {} {}\n", a.parameter, a.first_row, a.rows, a.rank, a.scale);
}

// A hash of all tensors, in their order.
std::string hash_of_tensors(const Named& tensors) {
  std::string all;
  for (const auto& [name, tensor] : tensors)
    all += fmt::format("{} {} {}\n", name, tensor.shape(), hash_of(tensor.value_bytes()));
  return hash_of(all);
}

std::string name_of_tensor(size_t model, size_t layer, size_t part) {
  return fmt::format("state.{}.{}.{}", model, layer, part);
}

bool begins_with(const Tokens& a, const Tokens& b) {
  return a.size() >= b.size() && std::equal(b.begin(), b.end(), a.begin());
}

void remove(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

}  // namespace

std::string fingerprint_of(const Ensemble& models) {
  const char* fast = std::getenv("QKV_FAST_PRODUCTS");
  std::string all = fmt::format("{} {} {}\n", kVersion, kernels().name, fast == nullptr ? "" : fast);
  for (const Transformer* model : models.models()) add_model(*model, all);
  return hash_of(all);
}

PromptCache::PromptCache(std::string folder, const Ensemble& models, int64_t most_bytes)
    : folder_(std::move(folder)),
      models_(models),
      most_bytes_(most_bytes),
      prefix_(fmt::format("{}{}-", kBegin, fingerprint_of(models).substr(0, kHashDigits))) {}

std::vector<PromptCache::File> PromptCache::files() const {
  std::vector<File> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string(), path = entry.path().string();
    if (!name.starts_with(prefix_) || !name.ends_with(kEnd)) continue;
    try {
      const TensorFile file = read_safetensors(path);
      const auto tokens = file.tensors.at("tokens").values<int32_t>();
      out.push_back({path, Tokens(tokens.begin(), tokens.end())});
    } catch (const std::exception&) {
      remove(path);
    }
  }
  return out;
}

std::optional<PromptCache::Entry> PromptCache::find(const Tokens& tokens, int64_t least) {
  const auto common = [&](const Tokens& other) {
    const int64_t n = std::ranges::mismatch(other, tokens).in2 - tokens.begin();
    return std::min(n, std::ssize(tokens) - 1);
  };
  std::vector<File> found = files();
  std::erase_if(found, [&](const File& f) { return common(f.tokens) <= least; });
  // Among those that share as much the shortest comes first, which takes least to read.
  std::ranges::sort(found, {}, [&](const File& f) { return std::pair(-common(f.tokens), f.tokens.size()); });
  for (File& f : found) try {
      TensorFile file = read_safetensors(f.path);
      Named all(file.tensors.begin(), file.tensors.end());
      check(hash_of_tensors(all) == file.metadata.at("hash"), "{}: damaged", f.path);
      EnsembleState::Saved saved(models_.models().size());
      for (size_t m = 0; m < saved.size(); ++m)
        for (size_t l = 0; file.tensors.contains(name_of_tensor(m, l, 0)); ++l) {
          saved[m].emplace_back();
          for (size_t k = 0; file.tensors.contains(name_of_tensor(m, l, k)); ++k)
            saved[m].back().push_back(file.tensors.at(name_of_tensor(m, l, k)));
        }
      Entry entry{std::move(f.tokens), EnsembleState(models_, 1)};
      entry.state.load(saved, std::ssize(entry.tokens));
      if (!entry.state.can_truncate(0, common(entry.tokens))) continue;
      ::utimensat(AT_FDCWD, f.path.c_str(), nullptr, 0);  // the last used
      return entry;
    } catch (const std::exception&) {
      remove(f.path);
    }
  return std::nullopt;
}

void PromptCache::add(const Tokens& tokens, const EnsembleState& state) {
  std::error_code error;
  fs::create_directories(folder_, error);
  const std::vector<File> old = files();
  if (std::ranges::any_of(old, [&](const File& f) { return begins_with(f.tokens, tokens); })) return;
  const std::string hash = hash_of(std::as_bytes(std::span(tokens)));
  const std::string path = fmt::format("{}/{}{}{}", folder_, prefix_, hash.substr(0, kHashDigits), kEnd),
                    temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  try {
    Named tensors;
    const EnsembleState::Saved saved = state.save();
    for (size_t m = 0; m < saved.size(); ++m)
      for (size_t l = 0; l < saved[m].size(); ++l)
        for (size_t k = 0; k < saved[m][l].size(); ++k)
          tensors.emplace_back(name_of_tensor(m, l, k), saved[m][l][k]);
    tensors.emplace_back("tokens", Tensor::of({std::ssize(tokens)}, tokens));
    std::ranges::sort(tensors, {}, &std::pair<std::string, Tensor>::first);  // as they are read
    write_safetensors(temporary, tensors, {{"hash", hash_of_tensors(tensors)}});
    ::chmod(temporary.c_str(), S_IRUSR | S_IWUSR);  // it tells what was read
    fs::rename(temporary, path);
    for (const File& f : old)
      if (begins_with(tokens, f.tokens) && f.path != path) remove(f.path);
  } catch (const std::exception&) {
    remove(temporary);
  }
  make_room();
}

void PromptCache::make_room() const {
  struct Aged {
    fs::file_time_type used;
    int64_t bytes;
    std::string path;
  };
  std::vector<Aged> all;
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kBegin)) continue;
    const auto used = entry.last_write_time(error);
    // A process that was killed has left it.
    constexpr auto kLong = std::chrono::hours(1);
    if (name.ends_with(".tmp") && fs::file_time_type::clock::now() - used > kLong)
      remove(entry.path().string());
    if (!name.ends_with(kEnd)) continue;
    const auto size = static_cast<int64_t>(entry.file_size(error));
    if (error) continue;  // another process has removed it
    all.push_back({used, size, entry.path().string()});
    bytes += size;
  }
  std::ranges::sort(all, {}, &Aged::used);
  for (const Aged& a : all) {
    if (bytes <= most_bytes_) return;
    remove(a.path);
    bytes -= a.bytes;
  }
}

}  // namespace qkv
