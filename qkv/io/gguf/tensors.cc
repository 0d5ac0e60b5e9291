#include "qkv/io/gguf/tensors.h"

#include <algorithm>
#include <optional>

#include "qkv/io/container/tensor_file.h"
#include "qkv/io/gguf/forms.h"
#include "qkv/io/gguf/names.h"

namespace qkv {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias";

// Tensors of rotary positions become part of the config.
constexpr std::string_view kOfConfig[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                          "rope_factors_short.weight"};

bool begins_with_any(std::string_view name, const std::vector<std::string_view>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

// The end that both names of an entry get for this tensor: ".weight" or ".bias", or none if they have it.
std::string_view end_for(const GgufTensorName& entry, std::string_view name) {
  const std::string_view gguf = entry.gguf;
  if (gguf.ends_with(kWeight) || gguf.ends_with(kBias)) return "";
  return name.ends_with(kBias) ? kBias : kWeight;
}

// Hugging Face's names that a model of this spec has.
using ExpectedNames = std::map<std::string, const WeightName*>;
ExpectedNames expected_names(const std::vector<WeightName>& names) {
  ExpectedNames expected;
  for (const WeightName& w : names)
    if (!w.file.empty()) expected.emplace(w.file, &w);
  return expected;
}

// An entry of the table that a tensor matches, and the numbers in its name.
struct Match {
  const GgufTensorName* entry;
  std::vector<int64_t> numbers;
  std::string_view end;
};

// The first of Hugging Face's names for an entry.
std::string first_name(const Match& m) {
  std::string_view pattern = m.entry->file;
  pattern = pattern.substr(0, pattern.find('|'));
  std::vector<int64_t> numbers = m.numbers;
  if (m.entry->form == GgufForm::stacked) numbers.push_back(0);
  return with_numbers(pattern, numbers) + std::string(m.end);
}

// The entry for a GGUF file's name whose counterpart is expected.
std::optional<Match> match_of_gguf(const std::string& name, const GgufArchitecture& architecture,
                                   const ExpectedNames& expected) {
  for (const GgufTensorName& entry : architecture.tensors) {
    const std::string_view end = end_for(entry, name);
    if (!name.ends_with(end)) continue;
    auto numbers = numbers_in(entry.gguf, std::string_view(name).substr(0, name.size() - end.size()));
    if (!numbers) continue;
    Match m = {&entry, std::move(*numbers), end};
    if (expected.contains(first_name(m))) return m;
  }
  return std::nullopt;
}

// The entries, of those that are written, for one of Hugging Face's names.
std::vector<Match> matches_of_file(const std::string& name, const GgufArchitecture& architecture) {
  std::vector<Match> out;
  for (const GgufTensorName& entry : architecture.tensors) {
    if (entry.only_read) continue;
    const std::string_view end = end_for(entry, name);
    if (!name.ends_with(end)) continue;
    if (auto numbers = numbers_in(entry.file, std::string_view(name).substr(0, name.size() - end.size())))
      out.push_back({&entry, std::move(*numbers), end});
  }
  return out;
}

class Reader {
 public:
  Reader(const Gguf& file, const GgufNaming& naming, std::set<std::string>& as_in_engine)
      : file_(file),
        naming_(naming),
        as_in_engine_(as_in_engine),
        names_(weights_of(naming.family, naming.spec)),
        expected_(expected_names(names_)) {}

  std::map<std::string, Weight> read() {
    for (const auto& [name, weight] : file_.tensors) {
      if (std::find(std::begin(kOfConfig), std::end(kOfConfig), name) != std::end(kOfConfig)) continue;
      const auto match = match_of_gguf(name, naming_.architecture, expected_);
      check(match.has_value(),
            "{}: tensor '{}' has no place in a model of the architecture {} with this metadata", file_.path,
            name, naming_.architecture.name);
      add(*match, weight);
    }
    for (const auto& [name, halves] : halves_) join(name, halves);
    for (const auto& [name, w] : expected_)
      if (!out_.contains(name)) supply(name, *w);
    return std::move(out_);
  }

 private:
  struct Halves {
    GgufForm form = GgufForm::same;  // that of either
    Weight first, second;
  };

  std::string at(const std::string& name) const { return fmt::format("{}: tensor '{}'", file_.path, name); }

  void put(const std::string& name, Weight w) {
    check(expected_.contains(name) && out_.emplace(name, std::move(w)).second,
          "{}: two tensors for one, or one too many", at(name));
  }

  void add(const Match& m, const Weight& w) {
    const std::string name = first_name(m);
    switch (m.entry->form) {
      case GgufForm::stacked:
        return add_experts(m, w);
      case GgufForm::queries_keys_values:
        return add_parts(m, w);
      case GgufForm::even_columns:
      case GgufForm::latent_keys:
        halves_[name].form = m.entry->form;
        halves_[name].first = w;
        return;
      case GgufForm::odd_columns:
      case GgufForm::latent_values:
        halves_[name].second = w;
        return;
      default:
        break;
    }
    Weight ours = from_gguf_form({m.entry->form, naming_.spec, at(name)}, w);
    release_copied(w, ours);
    const bool in_out = m.entry->form == GgufForm::transposed || m.entry->form == GgufForm::stack_transposed;
    if (in_out && !ours.dense().defined()) as_in_engine_.insert(name);
    put(name, std::move(ours));
  }

  // Tensors [E, ...] of E names. A name beyond the model's experts is not expected, and one too few is
  // missing.
  void add_experts(const Match& m, const Weight& w) {
    check(w.shape().rank() > 1, "{}: expected one more axis, for experts", at(first_name(m)));
    std::vector<int64_t> numbers = m.numbers;
    numbers.push_back(0);
    for (int64_t e = 0; e < w.dim(0); ++e) {
      numbers.back() = e;
      put(with_numbers(m.entry->file, numbers) + std::string(m.end), unstacked(w, e));
    }
  }

  // The rows of queries, keys and values.
  void add_parts(const Match& m, const Weight& w) {
    const AttentionSpec& a = naming_.spec.attention;
    const int64_t rows[] = {a.heads * a.d_qk, a.kv_heads * a.d_qk, a.kv_heads * a.d_vo};
    std::string_view patterns = m.entry->file;
    check(w.shape().rank() > 0 && w.dim(0) == rows[0] + rows[1] + rows[2], "{}: expected {} rows, got {}",
          at(first_name(m)), rows[0] + rows[1] + rows[2], w.shape());
    int64_t first = 0;
    for (const int64_t count : rows) {
      const std::string_view pattern = patterns.substr(0, patterns.find('|'));
      put(with_numbers(pattern, m.numbers) + std::string(m.end), w.slice_rows(first, first + count));
      patterns.remove_prefix(std::min(patterns.size(), pattern.size() + 1));
      first += count;
    }
  }

  void join(const std::string& name, const Halves& halves) {
    if (out_.contains(name)) return;  // the file has it as a whole, too
    check(halves.first.defined() && halves.second.defined(), "{}: one of its two parts is missing", at(name));
    if (halves.form == GgufForm::latent_keys)
      return put(name, joined_latents(halves.first, halves.second, naming_.spec, at(name)));
    Weight whole = joined_columns(halves.first, halves.second, at(name));
    if (!whole.dense().defined()) as_in_engine_.insert(name);
    put(name, std::move(whole));
  }

  // Zeros for a tensor that no file of the architecture has. Throws Error if it is missing from this one.
  void supply(const std::string& name, const WeightName& w) {
    if (begins_with_any(name, naming_.architecture.without)) {
      const int64_t width = naming_.spec.width;
      out_[name] = Tensor::zeros(name.ends_with(kBias) ? Shape{width} : Shape{width, width}, DType::f32);
      return;
    }
    check(w.optional, "{}: Hugging Face's tensor '{}' has no counterpart in it", file_.path, name);
  }

  const Gguf& file_;
  const GgufNaming& naming_;
  std::set<std::string>& as_in_engine_;
  const std::vector<WeightName> names_;
  const ExpectedNames expected_;
  std::map<std::string, Halves> halves_;
  std::map<std::string, Weight> out_;
};

class Writer {
 public:
  explicit Writer(const GgufNaming& naming)
      : naming_(naming), names_(weights_of(naming.family, naming.spec)), expected_(expected_names(names_)) {
    for (const WeightName& w : names_)
      if (!w.also.empty()) also_[w.also] = w.file;
  }

  void add(const std::string& given, const Weight& w) {
    const std::string name = full_name(given);
    if (name.empty() || begins_with_any(name, naming_.architecture.without)) return;
    check(seen_.insert(name).second, "gguf: tensor '{}' is there twice", given);
    const std::vector<Match> matches = matches_of_file(name, naming_.architecture);
    for (const Match& m : matches) add(m, w);
    check(!matches.empty(), "gguf: files of the architecture {} have no tensor for '{}'",
          naming_.architecture.name, given);
  }

  void finish(GgufParts& parts) {
    for (const auto& [name, w] : expected_)
      check(seen_.contains(name) || w->optional || begins_with_any(name, naming_.architecture.without),
            "gguf: tensor '{}' is missing", name);
    for (const auto& [place, tensor] : out_)
      parts.tensors.emplace_back(tensor.name, as_written(*tensor.entry, tensor.weight));
    for (const auto& [name, experts] : experts_)
      parts.tensors.emplace_back(
          name, as_written(*experts.entry, stacked(experts.of, "gguf: tensor '" + name + "'")));
  }

 private:
  struct Experts {
    const GgufTensorName* entry = nullptr;
    std::vector<Weight> of;
  };
  struct Written {
    const GgufTensorName* entry = nullptr;
    std::string name;
    Weight weight;
  };

  // The name with the prefix that a bare model's files omit; empty for a tensor that is no parameter.
  std::string full_name(const std::string& given) const {
    for (const std::string& name : {given, naming_.family.prefix + given}) {
      if (expected_.contains(name)) return name;
      if (const auto it = also_.find(name); it != also_.end()) return it->second;
    }
    check(naming_.family.ignores(naming_.spec, given), "gguf: tensor '{}' has no place in this {} model",
          given, naming_.family.model_type);
    return "";
  }

  void add(const Match& m, const Weight& w) {
    const GgufTensorName& entry = *m.entry;
    const auto place = static_cast<size_t>(m.entry - naming_.architecture.tensors.data());
    const int64_t layer = m.numbers.empty() ? -1 : m.numbers.front();
    std::vector<int64_t> numbers = m.numbers;
    if (entry.form == GgufForm::stacked) numbers.pop_back();
    const std::string name = with_numbers(entry.gguf, numbers) + std::string(m.end);
    if (entry.form == GgufForm::stacked) {
      Experts& experts = experts_[name];
      experts.entry = &entry;
      const auto e = static_cast<size_t>(m.numbers.back());
      if (experts.of.size() <= e) experts.of.resize(e + 1);
      experts.of[e] = w;
      return;
    }
    out_[{layer, m.end == kBias ? 2 * place + 1 : 2 * place}] = {
        &entry, name, to_gguf_form({entry.form, naming_.spec, "gguf: tensor '" + name + "'"}, w)};
  }

  static Weight as_written(const GgufTensorName& entry, const Weight& w) {
    const bool wide = entry.wide || w.shape().rank() < 2;
    return wide ? Weight(as_f32(w)) : w;
  }

  const GgufNaming& naming_;
  const std::vector<WeightName> names_;
  const ExpectedNames expected_;
  std::map<std::string, std::string> also_;
  std::set<std::string> seen_;
  std::map<std::string, Experts> experts_;
  // By layer (-1: outside of layers) and place in the table.
  std::map<std::pair<int64_t, size_t>, Written> out_;
};

}  // namespace

std::map<std::string, Weight> read_gguf_tensors(const Gguf& file, const GgufNaming& naming,
                                                std::set<std::string>& as_in_engine) {
  return Reader(file, naming, as_in_engine).read();
}

GgufNaming gguf_naming_of(const Json& config, const std::string& where) {
  const Family& family = family_of(JsonField(config, where));
  const GgufArchitecture* a = gguf_architecture_of(family.model_type);
  check(a != nullptr, "gguf: the model_type {} is not supported in GGUF files", family.model_type);
  try {
    ModelSpec spec = spec_of(family, JsonField(config, where));
    check_spec(spec);  // first, because families write a line for each layer
    spec.mtp = {};     // no architecture here has modules of multi-token prediction
    return {*a, family, std::move(spec)};
  } catch (const Error& e) {  // errors of the spec itself lack the file name
    if (std::string_view(e.what()).starts_with(where)) throw;
    fail("{}: {}", where, e.what());
  }
}

std::vector<GgufCounterpart> gguf_names_of(const std::string& name, const GgufNaming& naming) {
  std::vector<GgufCounterpart> out;
  for (const Match& m : matches_of_file(name, naming.architecture)) {
    std::vector<int64_t> numbers = m.numbers;
    int64_t part = 0;
    if (m.entry->form == GgufForm::stacked) {
      part = numbers.back();
      numbers.pop_back();
    }
    out.push_back({with_numbers(m.entry->gguf, numbers) + std::string(m.end), m.entry->form, part});
  }
  return out;
}

std::optional<GgufCounterpart> file_name_of(const std::string& name, const GgufNaming& naming) {
  const std::vector<WeightName> names = weights_of(naming.family, naming.spec);
  const auto m = match_of_gguf(name, naming.architecture, expected_names(names));
  if (!m) return std::nullopt;
  return GgufCounterpart{first_name(*m), m->entry->form, 0};
}

void write_gguf_tensors(const std::vector<std::pair<std::string, Weight>>& tensors, const GgufNaming& naming,
                        GgufParts& parts) {
  Writer writer(naming);
  for (const auto& [name, w] : tensors) writer.add(name, w);
  writer.finish(parts);
}

}  // namespace qkv
