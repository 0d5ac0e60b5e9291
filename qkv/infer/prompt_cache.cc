#include "qkv/infer/prompt_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "qkv/base/hash.h"
#include "qkv/base/parallel.h"
#include "qkv/base/version.h"
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

std::string hash_of_weight(const Weight& weight) {
  if (!weight.is_packed())
    return fmt::format("{} {}", name_of(weight.dense().dtype()), hash_of(weight.dense().value_bytes()));
  std::string all;
  for (const Weight::Rows& run : weight.runs())
    all += fmt::format("{} {}\n", name_of(run.view.type),
                       hash_of({static_cast<const std::byte*>(run.view.data),
                                static_cast<size_t>(run.count * run.view.row_bytes())}));
  return all;
}

void add_model(const Transformer& model, std::string& out) {
  const auto add_texts = [&](const std::vector<FieldText>& texts) {
    for (const FieldText& t : texts) out += fmt::format("{}={}\n", t.field.name, t.text);
  };
  add_texts(field_texts(model.spec()));
  out += fmt::format("activations {}\n", name_of(model.parameters().compute));
  for (const BlockSpec* block : model.spec().blocks_in_use()) add_texts(field_texts(*block));
  const auto& parameters = model.parameters().all();
  std::vector<std::string> hashes(parameters.size());
  parallel_for(std::ssize(parameters), 1, [&](int64_t i, int64_t end) {
    for (; i < end; ++i)
      if (parameters[i].defined()) hashes[i] = hash_of_weight(parameters[i].weight());
  });
  for (size_t i = 0; i < hashes.size(); ++i)
    out += fmt::format("{} {} {}\n", parameters[i].name, parameters[i].shape, hashes[i]);
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
  std::string all =
      fmt::format("{} {} {} {}\n", kVersion, version(), kernels().name, fast == nullptr ? "" : fast);
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
    if (!name.starts_with(prefix_) || !name.ends_with(kEnd) || ::access(path.c_str(), R_OK) != 0) continue;
    try {
      const TensorFile file = read_safetensors(path);
      const auto tokens = file.tensors.at("tokens").values<int32_t>();
      out.push_back({path, Tokens(tokens.begin(), tokens.end())});
    } catch (const std::bad_alloc&) {
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
    } catch (const std::bad_alloc&) {
    } catch (const std::exception&) {
      remove(f.path);
    }
  return std::nullopt;
}

void PromptCache::add(const Tokens& tokens, const EnsembleState& state) {
  if (state.bytes() > most_bytes_) return;
  std::error_code error;
  if (fs::create_directories(folder_, error)) fs::permissions(folder_, fs::perms::owner_all, error);
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
    // Only the owner may read it: it tells what was read.
    if (const int fd = ::open(temporary.c_str(), O_CREAT | O_WRONLY | O_TRUNC, S_IRUSR | S_IWUSR); fd >= 0)
      ::close(fd);
    write_safetensors(temporary, tensors, {{"hash", hash_of_tensors(tensors)}});
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
