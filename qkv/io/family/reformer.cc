// Reformer (Kitaev et al. 2020): two residual streams and axial positions, as a decoder or as an encoder with
// classes. Some layers attend to chunks of neighbours, an encoder's in a ring. The others share queries and
// keys and attend by hashes (LSH), as in Hugging Face's code: up to a chunk's length to all keys, and beyond
// it without the paper's rule that keys be in the query's bucket. That code draws rotations in each pass; qkv
// keeps them with the model, as rotations.N.

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

void read_reformer_layers(const JsonField& c, ModelSpec& s) {
  const bool encoder = s.architecture == Architecture::encoder;
  const JsonField kinds = c["attn_layers"];
  check(static_cast<int64_t>(kinds.size()) == s.layers, "{}: attn_layers: expected {} of them, got {}",
        c.place(), s.layers, kinds.size());
  const Pattern chunks{.block = c.integer_or("local_attn_chunk_length", 64, 1, kMost),
                       .neighbours = c.integer_or("local_num_chunks_before", 1, 0, kMost)};
  std::vector<Pattern> patterns;
  std::vector<int64_t> shares;
  bool any_local = false, any_hashed = false;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const std::string kind = kinds.at(i).string();
    check(kind == "local" || kind == "lsh", "{}: expected \"local\" or \"lsh\", got \"{}\"",
          kinds.at(i).place(), kind);
    const bool local = kind == "local";
    (local ? any_local : any_hashed) = true;
    patterns.push_back(local ? chunks : Pattern());
    shares.push_back(local ? 0 : 1);
  }
  if (any_local && encoder)
    s.attention.ring = {.chunk = chunks.block,
                        .before = c.integer_or("local_num_chunks_before", 1, 0, 64),
                        .after = c.integer_or("local_num_chunks_after", 0, 0, 64)};
  // After the last chunk Hugging Face's code continues with the first.
  any_local = any_local && !encoder;
  check(!any_local || c.integer_or("local_num_chunks_after", 0, 0, kMost) == 0,
        "{}: local_num_chunks_after: only 0 is supported", c.place());
  check(!any_local || chunks.neighbours <= 1,
        "{}: local_num_chunks_before: only 0 and 1 are supported, got {}", c.place(), chunks.neighbours);
  if (any_local) s.attention.patterns = shortest_run(patterns);
  if (!any_hashed) return;
  s.attention.shared_query_key = shortest_run(shares);
  HashedAttention& h = s.attention.hashing;
  h.chunk = c.integer_or("lsh_attn_chunk_length", 64, 1, kMost);
  h.before = c.integer_or("lsh_num_chunks_before", 1, 0, 64);
  h.after = c.integer_or("lsh_num_chunks_after", 0, 0, 64);
  h.rounds = c.integer_or("num_hashes", 1, 1, 64);
  if (const auto buckets = c.find("num_buckets"); !buckets || buckets->json().is_null())
    h.buckets = usual_buckets(s.context, h.chunk);
  else if (buckets->json().is_array())
    h.buckets = buckets->integers(2, 1 << 20);
  else
    h.buckets = {buckets->integer(2, 1 << 20)};
}

void read_positions(const JsonField& c, ModelSpec& s) {
  if (!c.boolean_or("axial_pos_embds", true)) return;
  const std::vector<int64_t> shape = c["axial_pos_shape"].integers(1, kMost),
                             widths = c["axial_pos_embds_dim"].integers(1, kMost);
  check(shape.size() == 2 && widths.size() == 2 && shape[0] <= kMost / shape[1],
        "{}: axial_pos_shape, axial_pos_embds_dim: expected two numbers each", c.place());
  check(shape[0] * shape[1] == s.context,
        "{}: axial_pos_shape: {} by {} positions are not max_position_embeddings {}", c.place(), shape[0],
        shape[1], s.context);
  check(widths[0] + widths[1] == s.width, "{}: axial_pos_embds_dim: {} and {} columns are not hidden_size {}",
        c.place(), widths[0], widths[1], s.width);
  s.grid = shape[1];
  s.axial_width = widths[0];
}

// True if Hugging Face's code has an encoder with this output.
bool has_known_head(const ModelSpec& s) {
  switch (s.output) {
    case Output::tokens:
      return s.labels.empty();
    case Output::sequence_classes:
      return s.problem != Problem::multiple_choice;
    case Output::token_classes:
      return false;
    default:
      return true;
  }
}

ModelSpec read_reformer(const JsonField& c) {
  check(!c.boolean_or("tie_word_embeddings", false),
        "{}: tie_word_embeddings: the unembedding reads both streams, and is no token embedding", c.place());
  const bool decoder = c.boolean_or("is_decoder", false);
  ModelSpec s;
  s.tied = false;
  s.unembedding_bias = true;
  if (decoder) {
    if (const auto names = c.find("architectures"); names && names->size() > 0) {
      const JsonField head = names->at(0);
      check(head.string() == "ReformerModelWithLMHead",
            "{}: with is_decoder only ReformerModelWithLMHead is supported, not {}", head.place(),
            head.string());
    }
  } else {
    s.architecture = Architecture::encoder;
    read_head(c, "Reformer", s);
    const auto names = c.find("architectures");
    const bool named = names && names->size() > 0;
    check(has_known_head(s) && (!named || names->at(0).string() == "Reformer" + head_name(s)),
          "{}: architectures: of Reformer's encoders only ReformerForMaskedLM, ForSequenceClassification, "
          "ForQuestionAnswering and Model are supported",
          c.place());
    s.pooler = s.output == Output::sequence_classes;
    s.head_dropout = c.number_or("classifier_dropout", c.number_or("hidden_dropout_prob", 0.05F));
  }
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.width = c["hidden_size"].integer(0, kMost);
  AttentionSpec& a = s.attention;
  a.heads = a.kv_heads = c["num_attention_heads"].integer(1, kMost);
  a.d_qk = a.d_vo = c.integer_or("attention_head_size", 64, 1, kMost);
  a.bias = a.out_bias = false;
  s.layers = c.integer_or("num_hidden_layers", static_cast<int64_t>(c["attn_layers"].size()), 0, kMost);
  s.hidden = c.integer_or("feed_forward_size", 512, 1, kMost);
  s.activation = read_activation(c, "hidden_act", "relu");
  s.norm_epsilon = c.number_or("layer_norm_eps", 1e-12F);
  s.branches = Branches::reversible;
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.embedding_dropout = s.residual_dropout = c.number_or("hidden_dropout_prob", 0.05F);
  s.context = c.integer_or("max_position_embeddings", 4096, 1, kMost);
  read_reformer_layers(c, s);
  a.dropout = a.patterns.empty() && a.ring.chunk == 0
                  ? c.number_or("lsh_attention_probs_dropout_prob", 0)
                  : c.number_or("local_attention_probs_dropout_prob", 0.05F);
  read_positions(c, s);
  return s;
}

// The chunks of local layers; an empty pattern if there are none.
Pattern local_chunks(const AttentionSpec& a) {
  for (const Pattern& p : a.patterns)
    if (p.any()) return p;
  return {};
}

OrderedJson write_reformer(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  const bool decoder = s.architecture == Architecture::decoder;
  const Pattern chunks = local_chunks(a);
  std::vector<std::string> kinds;
  for (int64_t l = 0; l < s.layers; ++l) kinds.emplace_back(a.shares_query_key(l) ? "lsh" : "local");
  OrderedJson c = {{"model_type", "reformer"},
                   {"architectures", {decoder ? "ReformerModelWithLMHead" : "Reformer" + head_name(s)}},
                   {"is_decoder", decoder},
                   {"vocab_size", s.vocab_size},
                   {"hidden_size", s.width},
                   {"num_attention_heads", a.heads},
                   {"attention_head_size", a.d_qk},
                   {"num_hidden_layers", s.layers},
                   {"attn_layers", kinds},
                   {"feed_forward_size", s.hidden},
                   {"hidden_act", config_name_of(s.activation)},
                   {"layer_norm_eps", decimal(s.norm_epsilon)},
                   {"max_position_embeddings", s.context},
                   {"axial_pos_embds", s.axial_width > 0},
                   {"local_attn_chunk_length", std::max<int64_t>(1, decoder ? chunks.block : a.ring.chunk)},
                   {"local_num_chunks_before", !decoder       ? a.ring.before
                                               : chunks.any() ? chunks.neighbours
                                                              : 1},
                   {"local_num_chunks_after", decoder ? 0 : a.ring.after},
                   {"lsh_attn_chunk_length", std::max<int64_t>(1, a.hashing.chunk)},
                   {"lsh_num_chunks_before", a.hashing.before},
                   {"lsh_num_chunks_after", a.hashing.after},
                   {"num_hashes", a.hashing.rounds},
                   {"hidden_dropout_prob", decimal(s.residual_dropout)},
                   {"local_attention_probs_dropout_prob", decimal(a.dropout)},
                   {"lsh_attention_probs_dropout_prob", decimal(a.dropout)},
                   {"initializer_range", decimal(s.init_std)},
                   {"tie_word_embeddings", false},
                   {"torch_dtype", "float32"},
                   {"use_cache", true}};
  if (!decoder) {
    write_labels(s, c);
    c["classifier_dropout"] = decimal(s.head_dropout);
  }
  if (a.hashing.buckets.size() == 1)
    c["num_buckets"] = a.hashing.buckets[0];
  else if (!a.hashing.buckets.empty())
    c["num_buckets"] = a.hashing.buckets;
  if (s.axial_width > 0) {
    c["axial_pos_shape"] = {s.context / s.grid, s.grid};
    c["axial_pos_embds_dim"] = {s.axial_width, s.width - s.axial_width};
  }
  return c;
}

std::vector<WeightName> reformer_weights(const ModelSpec& s) {
  WeightNames n;
  const AttentionSpec& a = s.attention;
  const std::string embeddings = "reformer.embeddings.",
                    stack = s.architecture == Architecture::encoder ? "encoder" : "decoder";
  n.tensor("embedding.token", embeddings + "word_embeddings.weight");
  if (s.axial_width > 0) {
    const std::string tables = embeddings + "position_embeddings.weights.";
    n.all.push_back({.engine = "embedding.position",
                     .file = tables + "0",
                     .shape = {s.context / s.grid, 1, s.axial_width}});
    n.all.push_back(
        {.engine = "embedding.column", .file = tables + "1", .shape = {1, s.grid, s.width - s.axial_width}});
  } else {
    n.tensor("embedding.position", embeddings + "position_embeddings.embedding.weight");
  }
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("{}.block.{}.", stack, l),
                      f = fmt::format("reformer.encoder.layers.{}.", l),
                      heads = f + "attention.self_attention.";
    const int64_t columns = a.heads * a.d_qk;
    n.bias = true;
    n.norm(e + "attention.norm", f + "attention.layer_norm");
    n.norm(e + "feed_forward.norm", f + "feed_forward.layer_norm");
    n.linear(e + "feed_forward.up", f + "feed_forward.dense.dense");
    n.linear(e + "feed_forward.down", f + "feed_forward.output.dense");
    n.bias = false;
    if (a.hashes(l))
      n.all.push_back(
          {.engine = e + "attention.rotations", .file = fmt::format("rotations.{}", l), .drawn = true});
    if (a.shares_query_key(l))
      n.parts(e + "attention.qkv", {heads + "query_key", heads + "value"}, {columns, columns});
    else
      n.parts(e + "attention.qkv", {heads + "query", heads + "key", heads + "value"},
              {columns, columns, columns});
    n.linear(e + "attention.out", f + "attention.output.dense");
  }
  n.bias = true;
  n.norm(stack + ".norm", "reformer.encoder.layer_norm");
  if (s.output == Output::tokens) {
    n.tensor("unembedding.weight", "lm_head.decoder.weight");
    n.tensor("unembedding.bias", "lm_head.bias");
  } else if (s.output == Output::sequence_classes) {
    n.linear("pooler", "classifier.dense");
    n.linear("classifier", "classifier.out_proj");
  } else if (s.output == Output::span) {
    n.linear("classifier", "qa_outputs");
  }
  return n.all;
}

}  // namespace

const Family& reformer_family() {
  static const Family family = {
      "reformer",
      read_reformer,
      write_reformer,
      [](const ModelSpec& s) {
        const bool tokens = s.output == Output::tokens, decoder = s.architecture == Architecture::decoder,
                   known = decoder ? tokens : s.architecture == Architecture::encoder && has_known_head(s);
        return known && (!tokens || (!s.tied && s.unembedding_bias)) &&
               s.pooler == (s.output == Output::sequence_classes) && !s.attention.hashing.same_bucket &&
               (s.grid == 0 || s.context % s.grid == 0);
      },
      reformer_weights,
      "reformer.",
      [](const ModelSpec&, const std::string& name) {
        return name == "lm_head.decoder.bias" || name.find("mask_value_float") != std::string::npos;
      }};
  return family;
}

}  // namespace qkv
