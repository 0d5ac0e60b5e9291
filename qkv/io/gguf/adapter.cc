#include "qkv/io/gguf/adapter.h"

#include "qkv/io/gguf/forms.h"
#include "qkv/io/gguf/tensors.h"

namespace qkv {
namespace {

constexpr const char *kType = "general.type", *kAdapterType = "adapter.type", *kAlpha = "adapter.lora.alpha",
                     *kArchitecture = "general.architecture";
constexpr std::string_view kA = ".lora_a", kB = ".lora_b", kOfWeight = ".weight";

// The forms whose rows and columns an adapter can follow: B has the rows, A the columns.
bool is_followed(GgufForm form) {
  switch (form) {
    case GgufForm::same:
    case GgufForm::rotary_queries:
    case GgufForm::rotary_keys:
    case GgufForm::groups:
    case GgufForm::transposed:
      return true;
    default:
      return false;
  }
}

// The form in which B's rows go from one file to the other: a transposed matrix has its rows in order.
GgufForm form_of_b(GgufForm form) {
  return form == GgufForm::transposed ? GgufForm::same : form;
}

}  // namespace

bool is_gguf_adapter(const Gguf& file) {
  const GgufValue* type = file.find(kType);
  return type != nullptr && !type->strings.empty() && type->strings.front() == "adapter";
}

GgufAdapter adapter_of_gguf(const Gguf& file, const Json& config) {
  check(is_gguf_adapter(file), "{}: key '{}': expected \"adapter\"", file.path, kType);
  check(file.string(kAdapterType) == "lora", "{}: key '{}': '{}' is not supported (lora is)", file.path,
        kAdapterType, file.string(kAdapterType).substr(0, 60));
  const GgufNaming naming = gguf_naming_of(config, "config.json");
  const std::string& architecture = file.string(kArchitecture);
  check(architecture == naming.architecture.name,
        "{}: an adapter of the architecture {}, but the model is a {}", file.path, architecture.substr(0, 60),
        naming.architecture.name);
  GgufAdapter adapter;
  adapter.alpha = file.number(kAlpha);
  check(adapter.alpha >= 0, "{}: key '{}': expected 0 or more", file.path, kAlpha);
  for (const auto& [name, weight] : file.tensors) {
    const bool a = name.ends_with(kA);
    const std::string of = name.substr(0, name.size() - kA.size());
    check((a || name.ends_with(kB)) && weight.shape().rank() == 2,
          "{}: tensor '{}': expected matrices named ...{} and ...{}", file.path, name, kA, kB);
    const auto place = file_name_of(of, naming);
    check(place && is_followed(place->form) && place->name.ends_with(kOfWeight),
          "{}: tensor '{}': no adapter of this model can change '{}'", file.path, name, of);
    GgufLowRank& pair = adapter.modules[place->name.substr(0, place->name.size() - kOfWeight.size())];
    const std::string at = file.path + ": tensor '" + name + "'";
    const Weight ours = a ? weight : from_gguf_form({form_of_b(place->form), naming.spec, at}, weight);
    (a ? pair.a : pair.b) = as_f32(ours);
  }
  check(!adapter.modules.empty(), "{}: it has no tensors", file.path);
  for (const auto& [name, pair] : adapter.modules) {
    check(pair.a.defined() && pair.b.defined(), "{}: '{}': only one of its two tensors is there", file.path,
          name);
    check(pair.a.dim(0) == pair.b.dim(1), "{}: '{}': its tensors are {} and {}, which have no common rank",
          file.path, name, pair.a.shape(), pair.b.shape());
  }
  return adapter;
}

GgufParts gguf_of_adapter(const GgufAdapter& adapter, const Json& config) {
  const GgufNaming naming = gguf_naming_of(config, "config.json");
  GgufParts parts;
  parts.metadata = {{kArchitecture, GgufValue::of(naming.architecture.name)},
                    {kType, GgufValue::of(std::string_view("adapter"))},
                    {kAdapterType, GgufValue::of(std::string_view("lora"))},
                    {kAlpha, GgufValue::of_f32(adapter.alpha)}};
  for (const auto& [name, pair] : adapter.modules) {
    const auto places = gguf_names_of(name + std::string(kOfWeight), naming);
    check(places.size() == 1 && is_followed(places.front().form),
          "gguf: '{}': files of the architecture {} have no adapter for it", name, naming.architecture.name);
    const std::string at = "gguf: adapter of '" + name + "'";
    parts.tensors.emplace_back(places.front().name + std::string(kA), pair.a);
    parts.tensors.emplace_back(places.front().name + std::string(kB),
                               to_gguf_form({form_of_b(places.front().form), naming.spec, at}, pair.b));
  }
  return parts;
}

}  // namespace qkv
