#include "qkv/convert/rwkv_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/byte_reader.h"
#include "qkv/quant/quantize.h"
#include "qkv/text/byte_alphabet.h"

namespace qkv {
namespace {

constexpr uint32_t kRwkvMagic = 0x67676d66;
constexpr int32_t kVersionOfBlocks = 101;
constexpr int64_t kMost = 1 << 24;
constexpr float kEpsilon = 1e-5F;
constexpr int64_t kBytes = 256;

struct RwkvHeader {
  int64_t vocab_size, width, layers;
  int32_t version;
};

RwkvHeader read_rwkv_header(ByteReader& in) {
  check(in.left() >= 4 && in.number<uint32_t>() == kRwkvMagic, "{}: is no model of rwkv.cpp", in.where());
  RwkvHeader h{};
  h.version = in.number<int32_t>();
  check(h.version == 100 || h.version == kVersionOfBlocks, "{}: version {} is not supported: 100 and 101 are",
        in.where(), h.version);
  for (int64_t* n : {&h.vocab_size, &h.width, &h.layers}) {
    *n = in.number<int32_t>();
    check(*n >= 1 && *n <= kMost, "{}: its header says {}: is it a model of rwkv.cpp?", in.where(), *n);
  }
  static_cast<void>(in.number<int32_t>());  // the type of most tensors
  return h;
}

WeightType type_of(int32_t number, const RwkvHeader& h, const std::string& at) {
  static const std::map<int32_t, WeightType> types = {
      {0, WeightType::f32},  {1, WeightType::f16},  {2, WeightType::q4_0}, {3, WeightType::q4_1},
      {7, WeightType::q5_0}, {8, WeightType::q5_1}, {9, WeightType::q8_0}};
  const auto it = types.find(number);
  check(it != types.end(), "{}: type {} is not supported", at, number);
  check(number < 2 || h.version == kVersionOfBlocks, "{}: blocks of version {} are not supported", at,
        h.version);
  return it->second;
}

// A file's tensors as f32, [.., columns] with the fastest dimension last.
std::map<std::string, Tensor> read_tensors(ByteReader& in, const RwkvHeader& h) {
  std::map<std::string, Tensor> out;
  while (in.left() > 0) {
    const auto rank = in.number<int32_t>(), length = in.number<int32_t>(), number = in.number<int32_t>();
    check(rank >= 1 && rank <= 3 && length >= 1 && length <= 256,
          "{}: at byte {} a tensor of {} dimensions and a name of {} bytes", in.where(), in.at(), rank,
          length);
    std::vector<int64_t> sizes;
    for (int32_t i = 0; i < rank; ++i) {
      sizes.push_back(in.number<int32_t>());
      check(sizes.back() >= 1 && sizes.back() <= kMost, "{}: at byte {} a dimension of {}", in.where(),
            in.at(), sizes.back());
    }
    const std::string name(in.take(static_cast<uint64_t>(length))),
        at = fmt::format("{}: '{}'", in.where(), name);
    const WeightType type = type_of(number, h, at);
    const int64_t columns = sizes[0], elements = layout_of(type).elements;
    check(columns % elements == 0, "{}: rows of {} are no blocks of {}", at, columns, elements);
    const auto rows =
        static_cast<uint64_t>(rank > 1 ? sizes[1] : 1) * static_cast<uint64_t>(rank > 2 ? sizes[2] : 1);
    const uint64_t of_row =
        static_cast<uint64_t>(columns / elements) * static_cast<uint64_t>(layout_of(type).bytes);
    check(rows <= in.left() / of_row, "{}: the file ends within it", at);
    const std::string_view bytes = in.take(rows * of_row);
    Tensor x = Tensor::empty({static_cast<int64_t>(rows), columns}, DType::f32);
    for (int64_t r = 0; r < x.dim(0); ++r) {
      const char* from = bytes.data() + static_cast<uint64_t>(r) * of_row;
      if (type == WeightType::f32)
        std::memcpy(x.mutable_row<float>(r).data(), from, of_row);
      else
        dequantize_row(type, reinterpret_cast<const std::byte*>(from), columns,
                       x.mutable_row<float>(r).data());
    }
    check(out.emplace(name, x).second, "{}: is there twice", at);
  }
  return out;
}

// The file's tensors under the engine's names.
class RwkvNames {
 public:
  RwkvNames(std::map<std::string, Tensor> tensors, std::string where)
      : from_(std::move(tensors)), where_(std::move(where)) {}

  const Tensor& at(const std::string& name) const {
    const auto it = from_.find(name);
    check(it != from_.end(), "{}: tensor '{}' is missing", where_, name);
    return it->second;
  }
  bool has(const std::string& name) const { return from_.contains(name); }
  void matrix(const std::string& engine, const std::string& file) { to_[engine] = at(file); }
  void vector(const std::string& engine, const std::string& file) {
    const Tensor& x = at(file);
    to_[engine] = x.reshape({x.count()});
  }
  void norm(const std::string& engine, const std::string& file) {
    vector(engine + ".gamma", file + ".weight");
    vector(engine + ".beta", file + ".bias");
  }
  void add(const std::string& engine, Tensor x) { to_[engine] = std::move(x); }
  std::map<std::string, Tensor> take() { return std::move(to_); }

 private:
  std::map<std::string, Tensor> from_, to_;
  std::string where_;
};

std::string in_block(int64_t layer, const char* name) {
  return fmt::format("blocks.{}.{}", layer, name);
}

ModelSpec common_spec(const RwkvHeader& h, const RwkvNames& n, int64_t context) {
  ModelSpec s;
  s.vocab_size = h.vocab_size;
  s.width = h.width;
  s.layers = h.layers;
  s.context = context;
  s.hidden = n.at(in_block(0, "ffn.key.weight")).dim(0);
  s.activation = Activation::relu_squared;
  s.feed_forward_bias = false;
  s.norm_epsilon = kEpsilon;
  s.embedding_norm = true;
  s.positions = Positions::none;
  s.attention.d_qk = s.attention.d_vo = 1;
  s.tied = false;
  return s;
}

ModelSpec spec_of(const RwkvHeader& h, const RwkvNames& n, int64_t context, bool seventh) {
  ModelSpec s = common_spec(h, n, context);
  if (!seventh) {
    Rwkv4Mixer m;
    m.inner = n.at(in_block(0, "att.key.weight")).dim(0);
    s.mixer = m;
    s.channel_mix = ChannelMix::rwkv4;
    return s;
  }
  const auto rank = [&](int64_t layer, const char* name) { return n.at(in_block(layer, name)).dim(0); };
  Rwkv7Mixer m;
  m.derive(s.width);
  m.heads = n.at(in_block(0, "att.r_k")).dim(0);
  m.decay_rank = rank(0, "att.w1");
  m.rate_rank = rank(0, "att.a1");
  m.gate_rank = rank(0, "att.g1");
  if (s.layers > 1) m.value_rank = rank(1, "att.v1");
  s.mixer = m;
  s.channel_mix = ChannelMix::rwkv7;
  return s;
}

void add_fourth(RwkvNames& n, const std::string& e, const std::string& f) {
  for (const auto& [part, name] : {std::pair("k", "key"), {"v", "value"}, {"r", "receptance"}}) {
    n.matrix(fmt::format("{}rwkv4.{}.weight", e, part), fmt::format("{}att.{}.weight", f, name));
    n.vector(fmt::format("{}rwkv4.shift.{}", e, part), fmt::format("{}att.time_mix_{}", f, part));
  }
  n.matrix(e + "rwkv4.out.weight", f + "att.output.weight");
  n.vector(e + "rwkv4.bonus", f + "att.time_first");
  // The file has -exp() of it.
  Tensor rates = Tensor::empty({n.at(f + "att.time_decay").count()}, DType::f32);
  for (int64_t i = 0; i < rates.count(); ++i)
    rates.mutable_values<float>()[i] = std::log(-n.at(f + "att.time_decay").values<float>()[i]);
  n.add(e + "rwkv4.log_rate", rates);
  n.vector(e + "feed_forward.shift.k", f + "ffn.time_mix_k");
  n.vector(e + "feed_forward.shift.r", f + "ffn.time_mix_r");
  n.matrix(e + "feed_forward.receptance.weight", f + "ffn.receptance.weight");
}

void add_seventh(RwkvNames& n, const std::string& e, const std::string& f, bool first_layer) {
  const Tensor& mixes = n.at(f + "att.x_rwkvag");
  constexpr const char* kParts[] = {"r", "w", "k", "v", "a", "g"};
  check(mixes.dim(0) == std::ssize(kParts), "{}att.x_rwkvag: expected {} rows, got {}", f, std::ssize(kParts),
        mixes.dim(0));
  for (int64_t i = 0; i < mixes.dim(0); ++i)
    n.add(fmt::format("{}rwkv7.shift.{}", e, kParts[i]), mixes.slice_rows(i, i + 1).reshape({mixes.width()}));
  for (const auto& [part, name] :
       {std::pair("k", "key"), {"v", "value"}, {"r", "receptance"}, {"out", "output"}})
    n.matrix(fmt::format("{}rwkv7.{}.weight", e, part), fmt::format("{}att.{}.weight", f, name));
  for (const auto& [part, name] : {std::pair("decay", "w"), {"rate", "a"}, {"value", "v"}, {"gate", "g"}}) {
    if (first_layer && *name == 'v') continue;
    n.matrix(fmt::format("{}rwkv7.{}.down.weight", e, part), fmt::format("{}att.{}1", f, name));
    n.matrix(fmt::format("{}rwkv7.{}.up.weight", e, part), fmt::format("{}att.{}2", f, name));
    if (*name != 'g') n.vector(fmt::format("{}rwkv7.{}.up.bias", e, part), fmt::format("{}att.{}0", f, name));
  }
  n.vector(e + "rwkv7.key_scale", f + "att.k_k");
  n.vector(e + "rwkv7.key_rate", f + "att.k_a");
  n.vector(e + "rwkv7.bonus", f + "att.r_k");
  n.norm(e + "rwkv7.head_norm", f + "att.ln_x");
  n.vector(e + "feed_forward.shift.k", f + "ffn.x_k");
}

// A tokenizer.json whose tokens are the bytes.
std::string tokenizer_of_bytes() {
  OrderedJson vocabulary = OrderedJson::object();
  for (int64_t b = 0; b < kBytes; ++b)
    vocabulary[text::spell_bytes(std::string(1, static_cast<char>(b)))] = b;
  const OrderedJson level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const OrderedJson json = {
      {"version", "1.0"},
      {"added_tokens", OrderedJson::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", level},
      {"post_processor", nullptr},
      {"decoder", level},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", OrderedJson::array()}}}};
  return json.dump(1) + "\n";
}

}  // namespace

bool is_rwkv_file(std::string_view bytes) {
  uint32_t magic = 0;
  if (bytes.size() >= sizeof(magic)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  return magic == kRwkvMagic;
}

std::unique_ptr<Transformer> parse_rwkv(std::string_view bytes, const std::string& where, int64_t context) {
  ByteReader in(bytes, where);
  const RwkvHeader h = read_rwkv_header(in);
  check(static_cast<uint64_t>(h.layers) <= bytes.size() / static_cast<size_t>(h.width),
        "{}: {} layers of width {} are more than the file has", where, h.layers, h.width);
  RwkvNames n(read_tensors(in, h), where);
  const bool seventh = n.has("blocks.0.att.r_k"),
             fourth = n.has("blocks.0.att.time_decay") && !n.has("blocks.0.att.ln_x.weight");
  check(seventh || fourth, "{}: generations 4 and 7 of RWKV are supported, and this is neither", where);
  const ModelSpec spec = spec_of(h, n, context, seventh);
  check_spec(spec);
  n.matrix("embedding.token", "emb.weight");
  n.norm("embedding.norm", "blocks.0.ln0");
  n.norm("decoder.norm", "ln_out");
  n.matrix("unembedding.weight", "head.weight");
  for (int64_t l = 0; l < h.layers; ++l) {
    const std::string e = fmt::format("decoder.block.{}.", l), f = fmt::format("blocks.{}.", l);
    n.norm(e + spec.mixer.part() + ".norm", f + "ln1");
    n.norm(e + "feed_forward.norm", f + "ln2");
    n.matrix(e + "feed_forward.up.weight", f + "ffn.key.weight");
    n.matrix(e + "feed_forward.down.weight", f + "ffn.value.weight");
    seventh ? add_seventh(n, e, f, l == 0) : add_fourth(n, e, f);
  }
  const TensorFile file{.tensors = n.take(), .metadata = {}};
  auto model = std::make_unique<Transformer>(spec);
  bind_weights(*model, native_family().weights(spec), {where, file, where, ""}, DType::f32);
  return model;
}

ForeignModel read_rwkv(const std::string& path, const std::string& tokenizer, int64_t context) {
  ForeignModel out;
  out.model = parse_rwkv(MappedFile::open(path)->text(), path, context);
  const int64_t tokens = out.model->spec().vocab_size;
  check(tokens == kBytes || !tokenizer.empty(),
        "{}: its vocabulary has {} tokens: --tokenizer names their tokenizer.json", path, tokens);
  out.tokenizer_files = {{"tokenizer.json", tokenizer.empty()
                                                ? tokenizer_of_bytes()
                                                : std::string(MappedFile::open(tokenizer)->text())}};
  return out;
}

}  // namespace qkv
