// "model_type": "qkv": a spec that no other family can express, written in full under the engine's names.
#include <fmt/format.h>

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"
#include "qkv/models/spec_schema.h"
#include "qkv/models/transformer.h"

namespace qkv {
namespace {

// Limits of older versions. 1: pre-norm decoders with learned positions only. 2: only tokens as output, and
// no parts of T5. 3: no recurrences, and only the stack's order. 4: one vocabulary, and no variants of
// blocks. 5: no experts, latents, caps and sinks, and windows instead of patterns. 6: no relative
// attention, unit embeddings, global projections, grids and encoders of another shape. 7: heads of one
// size, no features. 8: no memory. 9: no axial positions, and no keys shared with queries. 10: no clips.
// 11: no factors of pairs, first positions, and activations and experts of single parts. 12: no norm of the
// stream, and a norm at the end whenever sums are not normalized. 13: one kind of block. 14: no mixers
// except attention. 15: no biases in mixtures, and none beside positions. 16: each layer has keys of its own.
// 17: no multi-token prediction. 18: no fast weights. 19: no states of
// convolutions and no gates of attention. 20: no RWKV.
// 21: no random features. 22: no hashes, though a length beyond which they would begin. 23: no random
// features of unit rows, and no rings.
constexpr int64_t kVersion = 24;

// Reads the fields that files of a version have; others keep their defaults. A `partial` object may lack
// fields.
class Reader {
 public:
  Reader(const JsonField& file, int64_t version, bool partial = false)
      : file_(file), version_(version), partial_(partial) {}

  template <typename T, typename... Range>
  void operator()(const SpecField& f, T&& out, Range... range) {
    if (!f.in_model_file() || f.since > version_) return;
    names_.emplace_back(f.name_in_file());
    if (!partial_ || file_.json().contains(f.name_in_file())) read(file_[f.name_in_file()], out, range...);
  }
  // Throws Error if the object has other members.
  void expect_no_others() const { file_.expect_keys(names_); }

 private:
  static void read(const JsonField& from, bool& out) { out = from.boolean(); }
  static void read(const JsonField& from, int64_t& out, Integers range) {
    out = from.integer(range.least, range.most);
  }
  static void read(const JsonField& from, std::vector<int64_t>& out, Integers range) {
    out = from.integers(range.least, range.most);
  }
  static void read(const JsonField& from, double& out, Numbers) { out = from.number(); }
  static void read(const JsonField& from, float& out, Numbers) { out = static_cast<float>(from.number()); }
  static void read(const JsonField& from, std::vector<double>& out, Numbers) { out = from.numbers(); }
  static void read(const JsonField& from, std::vector<std::string>& out) {
    out.clear();
    for (size_t i = 0; i < from.size(); ++i) out.push_back(from.at(i).string());
  }
  static void read(const JsonField& from, std::vector<Pattern>& out) {
    std::vector<std::string> texts;
    read(from, texts);
    out = patterns_from_texts(texts);
  }
  template <typename E>
  requires std::is_enum_v<E>
  static void read(const JsonField& from, E& out) {
    const std::vector<std::string> names = names_of<E>();
    if (std::ranges::find(names, from.string()) == names.end())
      from.refuse(fmt::format("one of {}", fmt::join(names, ", ")));
    out = from_name<E>(from.string());
  }
  template <typename Optional, typename T>
  static void read(const JsonField& from, const OrElse<Optional, T>& out) {
    T value = out.value();
    read(from, value);
    out.set(value);
  }

  const JsonField& file_;
  int64_t version_;
  bool partial_;
  std::vector<std::string_view> names_;
};

// Writes each field.
class Writer {
 public:
  explicit Writer(OrderedJson& file) : file_(file) {}

  template <typename T, typename... Range>
  void operator()(const SpecField& f, const T& value, Range...) const {
    if (f.in_model_file()) file_[f.name_in_file()] = json(value);
  }

 private:
  template <typename T>
  static OrderedJson json(const T& value) {
    if constexpr (std::is_enum_v<T>)
      return name_of(value);
    else
      return value;
  }
  static OrderedJson json(float value) { return decimal(value); }
  static OrderedJson json(const std::vector<Pattern>& value) { return texts_of(value); }
  template <typename Optional, typename T>
  static OrderedJson json(const OrElse<Optional, T>& value) {
    return json(value.value());
  }

  OrderedJson& file_;
};

// Throws Error if a file has fields of another mixer than the one it names.
void expect_its_mixer(const JsonField& file, const BlockSpec& block) {
  OrderedJson written = OrderedJson::object();
  Writer writer(written);
  for_each_field(block.mixer, writer);
  for (const auto& [name, value] : written.items())
    if (const auto given = file.json().find(name); given != file.json().end())
      check(OrderedJson::parse(given->dump()) == value, "{}: {} is not of mixer {}", file.place(), name,
            name_of(block.mixer.kind()));
}

// Kinds of blocks by name, each with the fields that differ from the model's own block.
std::vector<BlockKind> read_kinds(const JsonField& file, const BlockSpec& own, int64_t version) {
  std::vector<BlockKind> kinds;
  for (const auto& [name, value] : file.object().items()) {
    BlockKind kind{name, own};
    const JsonField its_file = file[name];
    static_cast<void>(its_file.object());
    Reader reader(its_file, version, true);
    for_each_field(kind.block, reader);
    reader.expect_no_others();
    if (version >= 15) expect_its_mixer(its_file, kind.block);
    kinds.push_back(std::move(kind));
  }
  std::ranges::sort(kinds, {}, &BlockKind::name);
  return kinds;
}

OrderedJson write_kinds(const std::vector<BlockKind>& kinds, const BlockSpec& own) {
  OrderedJson of_own = OrderedJson::object(), out = OrderedJson::object();
  Writer own_writer(of_own);
  for_each_field(own, own_writer);
  for (const BlockKind& kind : kinds) {
    OrderedJson all = OrderedJson::object(), differing = OrderedJson::object();
    Writer writer(all);
    for_each_field(kind.block, writer);
    for (const auto& [name, value] : all.items())
      if (value != of_own[name]) differing[name] = value;
    out[kind.name] = differing;
  }
  return out;
}

ModelSpec read_native(const JsonField& c) {
  const JsonField q = c["qkv"];
  const auto version = q["version"].integer(0, kMost);
  check(version >= 1 && version <= kVersion, "{}: version {} is not supported, expected 1 to {}", q.place(),
        version, kVersion);
  ModelSpec s;
  Reader reader(q, version);
  for_each_field(s, reader);
  if (version >= 15) expect_its_mixer(q, s);
  if (version >= 14) s.kinds = read_kinds(q["kinds"], s, version);
  if (version < 5) s.attention.out_bias = s.attention.bias;
  if (version < 23) {
    s.attention.hashing = {};
    for (BlockKind& kind : s.kinds) kind.block.attention.hashing = {};
  }
  if (version == 5)
    for (const int64_t w : q["windows"].integers(0, kMost)) s.attention.patterns.push_back({.window = w});
  return s;
}

OrderedJson write_native(const ModelSpec& s) {
  OrderedJson file = {{"version", kVersion}};
  Writer writer(file);
  for_each_field(s, writer);
  file["kinds"] = write_kinds(s.kinds, s);
  return {{"model_type", "qkv"}, {"qkv", std::move(file)}};
}

std::vector<WeightName> native_weights(const ModelSpec& s) {
  std::vector<WeightName> names;
  const Transformer model(s);
  for (const Parameter& p : model.parameters().all()) names.push_back({p.name, p.name});
  return names;
}

}  // namespace

const Family& native_family() {
  static const Family family = {"qkv",
                                read_native,
                                write_native,
                                [](const ModelSpec&) { return true; },
                                native_weights,
                                "",
                                [](const ModelSpec&, const std::string&) { return false; }};
  return family;
}

}  // namespace qkv
