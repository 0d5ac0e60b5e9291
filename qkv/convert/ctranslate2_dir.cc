#include "qkv/convert/ctranslate2_dir.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/ctranslate2.h"

namespace qkv {
namespace {

// The engine's names of a file's variables.
class Names {
 public:
  Names(const Ctranslate2File& file, const std::string& where) : file_(file), where_(where) {}

  void tensor(const std::string& engine, const std::string& name) { all_.push_back({engine, name}); }
  void linear(const std::string& engine, const std::string& name) {
    tensor(engine + ".weight", name + "/weight");
    tensor(engine + ".bias", name + "/bias");
  }
  void norm(const std::string& engine, const std::string& name) {
    tensor(engine + ".gamma", name + "/gamma");
    tensor(engine + ".beta", name + "/beta");
  }
  bool has(const std::string& name) const { return file_.tensors.contains(name); }
  const Tensor& at(const std::string& name) const {
    const auto found = file_.tensors.find(name);
    check(found != file_.tensors.end(), "{}: variable '{}' is missing", where_, name);
    return found->second;
  }
  const std::vector<WeightName>& all() const { return all_; }

 private:
  const Ctranslate2File& file_;
  const std::string& where_;
  std::vector<WeightName> all_;
};

int64_t layers_of(const Names& names, const std::string& stack) {
  int64_t layers = 0;
  while (names.has(fmt::format("{}/layer_{}/ffn/linear_0/weight", stack, layers))) ++layers;
  return layers;
}

std::string embedding_of(const Names& names, const std::string& stack) {
  const std::string several = stack + "/embeddings_0/weight";
  return names.has(several) ? several : stack + "/embeddings/weight";
}

// Settings that both stacks have in newer files; older ones have the class's.
int64_t setting(const Ctranslate2File& file, const char* name, int64_t otherwise, const std::string& where) {
  std::optional<int64_t> value;
  for (const char* stack : {"encoder/", "decoder/"}) {
    const auto found = file.settings.find(std::string(stack) + name);
    if (found == file.settings.end()) continue;
    check(!value || *value == found->second,
          "{}: {} differs between encoder and decoder, which is not supported", where, name);
    value = found->second;
  }
  return value.value_or(otherwise);
}

Activation activation_of(int64_t code, const std::string& where) {
  constexpr Activation kInOrder[] = {Activation::relu, Activation::gelu_tanh,  Activation::silu,
                                     Activation::gelu, Activation::gelu_quick, Activation::tanh};
  check(code >= 0 && code < std::ssize(kInOrder), "{}: the unknown activation {}", where, code);
  return kInOrder[code];
}

// Settings that change nothing here, and those that are read below.
void expect_known_settings(const Ctranslate2File& file, const std::string& where) {
  static const std::set<std::string> known = {"num_heads",        "pre_norm",
                                              "activation",       "scale_embeddings",
                                              "alignment_layer",  "alignment_heads",
                                              "embeddings_merge", "start_from_zero_embedding",
                                              "scale_outputs",    "multi_query_attention"};
  for (const auto& [name, value] : file.settings) {
    const std::string setting = name.substr(name.find('/') + 1);
    const bool of_source =
        name == "with_source_bos" || name == "with_source_eos" || name == "with_target_bos";
    check(of_source || known.contains(setting), "{}: setting '{}' is not supported", where, name);
    const bool off = setting == "start_from_zero_embedding" || setting == "scale_outputs" ||
                     setting == "multi_query_attention";
    check(!off || value == 0, "{}: {} = {} is not supported", where, name, value);
  }
}

ModelSpec spec_of(const Ctranslate2File& file, const Names& names, int64_t context,
                  const std::string& where) {
  check(file.spec == "TransformerBase" || file.spec == "TransformerBig" || file.spec == "TransformerSpec",
        "{}: a {} is not supported (TransformerBase, TransformerBig and TransformerSpec are)", where,
        file.spec);
  expect_known_settings(file, where);
  const Tensor &source = names.at(embedding_of(names, "encoder")),
               &target = names.at(embedding_of(names, "decoder"));
  check(source.shape().rank() == 2 && target.shape().rank() == 2, "{}: embeddings are no matrices", where);
  const int64_t width = target.width(),
                heads = setting(file, "num_heads", file.spec == "TransformerBig" ? 16 : 8, where);
  check(heads >= 1 && width % heads == 0 && source.width() == width,
        "{}: widths {} and {} do not go with {} heads", where, source.width(), width, heads);
  const int64_t layers = layers_of(names, "decoder"), encoder_layers = layers_of(names, "encoder");
  check(layers > 0 && encoder_layers > 0,
        "{}: variable 'decoder/layer_0/ffn/linear_0/weight' or the encoder's is missing", where);
  ModelSpec s = gpt2_spec(target.rows(), context, width, layers, heads);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = encoder_layers;
  s.source_vocab_size = source.rows();
  s.hidden = names.at("decoder/layer_0/ffn/linear_0/weight").rows();
  if (const int64_t own = names.at("encoder/layer_0/ffn/linear_0/weight").rows(); own != s.hidden)
    s.encoder.hidden = own;
  s.activation = activation_of(setting(file, "activation", 0, where), where);
  s.norm_placement = setting(file, "pre_norm", 1, where) != 0 ? NormPlacement::pre : NormPlacement::post;
  s.embedding_scaled = setting(file, "scale_embeddings", 1, where) != 0;
  s.embedding_norm = names.has("encoder/layernorm_embedding/gamma");
  s.unembedding_bias = names.has("decoder/projection/bias");
  s.tied = !names.has("decoder/projection/weight");
  if (names.has("encoder/position_encodings/encodings")) {
    const int64_t rows = names.at("encoder/position_encodings/encodings").rows();
    check(names.at("decoder/position_encodings/encodings").rows() == rows,
          "{}: encoder and decoder have tables of different lengths, which is not supported", where);
    s.positions = Positions::learned;
    s.context = rows;
  } else {
    s.positions = Positions::sinusoidal_closed;
    s.first_position = 1;
  }
  return s;
}

void add_names(const ModelSpec& s, Names& n) {
  n.tensor("encoder.embedding.token", embedding_of(n, "encoder"));
  n.tensor("embedding.token", embedding_of(n, "decoder"));
  for (const std::string stack : {"encoder", "decoder"}) {
    if (s.positions == Positions::learned)
      n.tensor(stack + ".embedding.position", stack + "/position_encodings/encodings");
    if (s.embedding_norm) n.norm(stack + ".embedding.norm", stack + "/layernorm_embedding");
    for (int64_t l = 0; l < (stack == "encoder" ? s.encoder_layers : s.layers); ++l) {
      const std::string e = fmt::format("{}.block.{}.", stack, l), f = fmt::format("{}/layer_{}/", stack, l);
      n.norm(e + "attention.norm", f + "self_attention/layer_norm");
      n.linear(e + "attention.qkv", f + "self_attention/linear_0");
      n.linear(e + "attention.out", f + "self_attention/linear_1");
      if (stack == "decoder") {
        n.norm(e + "cross_attention.norm", f + "attention/layer_norm");
        n.linear(e + "cross_attention.q", f + "attention/linear_0");
        n.linear(e + "cross_attention.kv", f + "attention/linear_1");
        n.linear(e + "cross_attention.out", f + "attention/linear_2");
      }
      n.norm(e + "feed_forward.norm", f + "ffn/layer_norm");
      n.linear(e + "feed_forward.up", f + "ffn/linear_0");
      n.linear(e + "feed_forward.down", f + "ffn/linear_1");
    }
    if (s.norm_placement == NormPlacement::pre) n.norm(stack + ".norm", stack + "/layer_norm");
  }
  if (!s.tied) n.tensor("unembedding.weight", "decoder/projection/weight");
  if (s.unembedding_bias) n.tensor("unembedding.bias", "decoder/projection/bias");
}

// The tokens of "source" or "target", one for each row of its table; an unknown token may stand behind them.
std::vector<std::string> read_vocabulary(const std::string& dir, const std::string& of, int64_t rows) {
  std::vector<std::string> tokens;
  std::string path;
  for (const std::string& name : {of, std::string("shared")})
    for (const char* end : {"_vocabulary.txt", "_vocabulary.json"})
      if (path.empty() && file_exists(dir + "/" + name + end)) path = dir + "/" + name + end;
  check(!path.empty(), "{}: neither {}_vocabulary nor shared_vocabulary is here (.txt or .json)", dir, of);
  const std::string content = read_file(path);
  if (path.ends_with(".json")) {
    const Json json = parse_json(content, path);
    const JsonField list(json, path);
    for (size_t i = 0; i < list.size(); ++i) tokens.push_back(list.at(i).string());
  } else {
    for (size_t at = 0; at < content.size();) {
      const size_t end = std::min(content.find('\n', at), content.size());
      tokens.push_back(content.substr(at, end - at));
      at = end + 1;
    }
  }
  if (std::ssize(tokens) == rows - 1) tokens.push_back("<unk>");
  check(std::ssize(tokens) == rows, "{}: {} tokens for {} rows of the embedding", path, tokens.size(), rows);
  return tokens;
}

OrderedJson tokenizer_json(const std::vector<std::string>& tokens, TokenSplit split, const std::string& dir) {
  OrderedJson vocabulary = OrderedJson::object(), added = OrderedJson::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    check(!vocabulary.contains(tokens[id]), "{}: the token \"{}\" appears twice", dir, tokens[id]);
    vocabulary[tokens[id]] = id;
    for (const char* special : {"<blank>", "<pad>", "<s>", "</s>", "<unk>"})
      if (tokens[id] == special)
        added.push_back({{"id", id},
                         {"content", special},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
  }
  const bool characters = split == TokenSplit::characters;
  const OrderedJson by_character = {
      {"type", "Split"}, {"pattern", {{"Regex", "[\\s\\S]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", characters ? by_character : OrderedJson({{"type", "WhitespaceSplit"}})},
          {"post_processor", nullptr},
          {"decoder", characters ? OrderedJson({{"type", "Fuse"}}) : OrderedJson(nullptr)},
          {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}}};
}

int64_t id_of(const std::vector<std::string>& tokens, const std::string& token) {
  const auto found = std::ranges::find(tokens, token);
  return found == tokens.end() ? -1 : found - tokens.begin();
}

// The tokens that begin and end texts: of config.json in newer directories.
SpecialIds ids_of(const Ctranslate2File& file, const std::string& dir, const std::vector<std::string>& source,
                  const std::vector<std::string>& target) {
  const std::string path = dir + "/config.json";
  const Json json = file_exists(path) ? parse_json(read_file(path), path) : Json::object();
  const JsonField config(json, path);
  const std::string bos = config.string_or("bos_token", "<s>"), eos = config.string_or("eos_token", "</s>"),
                    start = config.string_or("decoder_start_token", bos);
  const auto says = [&](const char* key, const char* older, bool otherwise) {
    const auto found = file.settings.find(older);
    return config.boolean_or(key, found == file.settings.end() ? otherwise : found->second != 0);
  };
  const auto expect = [&](const std::vector<std::string>& tokens, const std::string& token) {
    const int64_t id = id_of(tokens, token);
    check(id >= 0, "{}: its vocabulary lacks the token {}", dir, token);
    return id;
  };
  SpecialIds ids;
  ids.bos = id_of(target, bos);
  ids.eos = {expect(target, eos)};
  ids.pad = std::max(id_of(target, "<blank>"), id_of(target, "<pad>"));
  ids.decoder_start = expect(target, start);
  ids.source_begin = std::vector<int64_t>();
  ids.source_end = std::vector<int64_t>();
  if (says("add_source_bos", "with_source_bos", false)) ids.source_begin->push_back(expect(source, bos));
  if (says("add_source_eos", "with_source_eos", false)) ids.source_end->push_back(expect(source, eos));
  return ids;
}

}  // namespace

bool is_ctranslate2_dir(const std::string& dir) {
  const std::string path = dir + "/model.bin";
  return file_exists(path) && is_ctranslate2(MappedFile::open(path)->text());
}

ForeignModel read_ctranslate2(const std::string& dir, TokenSplit split, int64_t context) {
  const std::string path = dir + "/model.bin";
  const Ctranslate2File file = parse_ctranslate2(MappedFile::open(path)->text(), path);
  Names names(file, path);
  const ModelSpec spec = spec_of(file, names, context, path);
  add_names(spec, names);
  std::set<std::string> read;
  for (const WeightName& w : names.all()) read.insert(w.file);
  for (const auto& [name, tensor] : file.tensors)
    check(read.contains(name), "{}: variable '{}' is not supported", path, name);
  check_spec(spec);
  ForeignModel out;
  out.model = std::make_unique<Transformer>(spec);
  const TensorFile tensors{.tensors = file.tensors, .metadata = {}};
  bind_weights(*out.model, names.all(), {path, tensors, path, ""}, DType::f32);
  const auto source = read_vocabulary(dir, "source", spec.source_vocab_size),
             target = read_vocabulary(dir, "target", spec.vocab_size);
  out.ids = ids_of(file, dir, source, target);
  out.tokenizer_files = {{"tokenizer.json", tokenizer_json(target, split, dir).dump(1) + "\n"},
                         {"source/tokenizer.json", tokenizer_json(source, split, dir).dump(1) + "\n"}};
  return out;
}

}  // namespace qkv
