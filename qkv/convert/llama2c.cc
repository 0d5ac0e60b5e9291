#include "qkv/convert/llama2c.h"

#include <array>
#include <cstring>
#include <vector>

#include "qkv/base/file.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/byte_reader.h"
#include "qkv/text/sentencepiece_file.h"

namespace qkv {
namespace {

constexpr uint32_t kLlama2cMagic = 0x616b3432;  // "ak42", since version 1
constexpr size_t kHeaderSize = 256;             // since version 1

struct Llama2cHeader {
  int64_t width, hidden, layers, heads, kv_heads, vocab_size, context;
  bool tied;
  bool legacy;  // the form before versions, with tables of cosines and sines

  int64_t head() const { return width / heads; }
};

Llama2cHeader read_llama2c_header(ByteReader& in) {
  Llama2cHeader h{};
  const auto first = in.number<int32_t>();
  h.legacy = static_cast<uint32_t>(first) != kLlama2cMagic;
  if (!h.legacy) {
    const auto version = in.number<int32_t>();
    check(version == 1, "{}: version {} is not supported: version 1 and the form before it (f32) are",
          in.where(), version);
  }
  h.width = h.legacy ? first : in.number<int32_t>();
  for (int64_t* n : {&h.hidden, &h.layers, &h.heads, &h.kv_heads, &h.vocab_size, &h.context})
    *n = in.number<int32_t>();
  if (h.legacy) {
    h.tied = h.vocab_size > 0;  // a negative size means an unembedding of its own
    h.vocab_size = std::abs(h.vocab_size);
  } else {
    h.tied = in.number<uint8_t>() != 0;
    in.take(kHeaderSize - in.at());
  }
  constexpr int64_t kMost = 1 << 24;
  for (const auto& [name, n] : {std::pair("dim", h.width),
                                {"hidden_dim", h.hidden},
                                {"n_layers", h.layers},
                                {"n_heads", h.heads},
                                {"n_kv_heads", h.kv_heads},
                                {"vocab_size", h.vocab_size},
                                {"max_seq_len", h.context}})
    check(n >= 1 && n <= kMost, "{}: its header says {} = {}: is it a model of llama2.c?", in.where(), name,
          n);
  check(h.width % h.heads == 0 && h.head() % 2 == 0 && h.heads % h.kv_heads == 0,
        "{}: its header says {} heads of dim {} and {} of keys: is it a model of llama2.c?", in.where(),
        h.heads, h.width, h.kv_heads);
  return h;
}

ModelSpec spec_of(const Llama2cHeader& h) {
  ModelSpec s = gpt2_spec(h.vocab_size, h.context, h.width, h.layers, h.heads);
  s.hidden = h.hidden;
  s.attention.kv_heads = h.kv_heads;
  s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
  s.activation = Activation::silu;
  s.gated = true;
  s.normalization = Normalization::rms;
  s.norm_epsilon = 1e-5F;
  s.positions = Positions::rotary;
  s.attention.rotary.width = h.head();
  s.tied = h.tied;
  return s;
}

// The next [rows, columns], or [rows] if columns is 0.
Tensor take(ByteReader& in, int64_t rows, int64_t columns) {
  const int64_t count = rows * std::max<int64_t>(1, columns);
  const std::string_view bytes = in.take(static_cast<uint64_t>(count) * sizeof(float));
  Tensor out = Tensor::empty(columns > 0 ? Shape{rows, columns} : Shape{rows}, DType::f32);
  std::memcpy(out.mutable_values<float>().data(), bytes.data(), bytes.size());
  return out;
}

// llama2.c turns entries 2 i and 2 i + 1 of a head, Hugging Face's Llama i and i + d / 2.
Tensor in_halves(const Tensor& x, int64_t head) {
  Tensor out = Tensor::empty(x.shape(), DType::f32);
  for (int64_t r = 0; r < x.rows(); ++r) {
    const int64_t i = r % head, from = r - i + (i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1);
    std::memcpy(out.mutable_row<float>(r).data(), x.row<float>(from).data(),
                static_cast<size_t>(x.width()) * sizeof(float));
  }
  return out;
}

// The tensors in a file's order, under the names of Hugging Face's Llama.
std::map<std::string, Tensor> read_tensors(ByteReader& in, const Llama2cHeader& h) {
  std::map<std::string, Tensor> out;
  const auto each_layer = [&](const char* name, int64_t rows, int64_t columns) {
    for (int64_t l = 0; l < h.layers; ++l)
      out[fmt::format("model.layers.{}.{}.weight", l, name)] = take(in, rows, columns);
  };
  const int64_t kv = h.kv_heads * h.head();
  const auto embedding = [&] { out["model.embed_tokens.weight"] = take(in, h.vocab_size, h.width); };
  const auto last_norm = [&] { out["model.norm.weight"] = take(in, h.width, 0); };
  const auto feed_forward_norms = [&] { each_layer("post_attention_layernorm", h.width, 0); };
  if (h.legacy) embedding();
  each_layer("input_layernorm", h.width, 0);
  if (!h.legacy) {
    feed_forward_norms();
    last_norm();
    embedding();
  }
  each_layer("self_attn.q_proj", h.width, h.width);
  each_layer("self_attn.k_proj", kv, h.width);
  each_layer("self_attn.v_proj", kv, h.width);
  each_layer("self_attn.o_proj", h.width, h.width);
  if (h.legacy) feed_forward_norms();
  each_layer("mlp.gate_proj", h.hidden, h.width);
  each_layer("mlp.down_proj", h.width, h.hidden);
  each_layer("mlp.up_proj", h.hidden, h.width);
  if (h.legacy) {
    last_norm();
    in.take(static_cast<uint64_t>(h.context * h.head()) * sizeof(float));  // cosines and sines
  }
  if (!h.tied) out["lm_head.weight"] = take(in, h.vocab_size, h.width);
  check(in.left() == 0, "{}: {} bytes follow the last tensor: is it a model of llama2.c?", in.where(),
        in.left());
  for (auto& [name, tensor] : out)
    if (name.ends_with(".q_proj.weight") || name.ends_with(".k_proj.weight"))
      tensor = in_halves(tensor, h.head());
  return out;
}

}  // namespace

std::unique_ptr<Transformer> parse_llama2c(std::string_view bytes, const std::string& where) {
  ByteReader in(bytes, where);
  const Llama2cHeader h = read_llama2c_header(in);
  check(static_cast<uint64_t>(h.layers) <= bytes.size() / static_cast<size_t>(h.width),
        "{}: {} layers of width {} are more than the file has", where, h.layers, h.width);
  const TensorFile file{.tensors = read_tensors(in, h), .metadata = {}};
  const ModelSpec spec = spec_of(h);
  check_spec(spec);
  auto model = std::make_unique<Transformer>(spec);
  bind_weights(*model, llama_family().weights(spec), {where, file, where, ""}, DType::f32);
  return model;
}

std::string sentencepiece_of_llama2c(std::string_view bytes, int64_t count, const std::string& where) {
  using PieceType = text::SentencePieceFile::PieceType;
  ByteReader in(bytes, where);
  static_cast<void>(in.number<uint32_t>());  // the longest token's length
  text::SentencePieceFile file;
  file.model_type = text::SentencePieceFile::ModelType::kBpe;
  file.byte_fallback = true;
  file.remove_extra_whitespaces = false;
  constexpr std::array<const char*, 3> kSpecial = {"<unk>", "<s>", "</s>"};
  for (int64_t id = 0; id < count; ++id) {
    text::SentencePieceFile::Piece piece;
    piece.score = in.number<float>();
    const std::string_view token = in.take(in.number<uint32_t>());
    if (id < std::ssize(kSpecial)) {  // llama2.c has line ends around them
      piece.piece = kSpecial[static_cast<size_t>(id)];
      piece.type = id == 0 ? PieceType::kUnknown : PieceType::kControl;
    } else {
      const bool is_byte = token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
      piece.type = is_byte ? PieceType::kByte : PieceType::kNormal;
      for (const char c : token) c == ' ' ? piece.piece += "\xE2\x96\x81" : piece.piece += c;
    }
    file.pieces.push_back(std::move(piece));
  }
  check(in.left() == 0, "{}: {} bytes follow token {}: it is the tokenizer of another model", where,
        in.left(), count);
  std::string out = text::serialize_sentencepiece(file);
  static_cast<void>(text::parse_sentencepiece(out, where));  // checks the pieces
  return out;
}

ForeignModel read_llama2c(const std::string& path, const std::string& tokenizer) {
  ForeignModel out;
  out.model = parse_llama2c(MappedFile::open(path)->text(), path);
  out.ids = {.bos = 1, .eos = {2}};
  const auto tokens = MappedFile::open(tokenizer);
  out.tokenizer_files = {
      {"tokenizer.model", sentencepiece_of_llama2c(tokens->text(), out.model->spec().vocab_size, tokenizer)},
      {"tokenizer_config.json",
       "{\"tokenizer_class\": \"LlamaTokenizer\", \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", "
       "\"unk_token\": \"<unk>\", "
       "\"add_bos_token\": true, \"add_eos_token\": false, \"legacy\": true}\n"}};
  return out;
}

}  // namespace qkv
