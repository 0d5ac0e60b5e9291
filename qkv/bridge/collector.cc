#include "qkv/bridge/collector.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/error.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"

namespace qkv {

Inputs read_images(const TensorFile& in, const std::string& path, const ModelSpec& spec) {
  const FeatureSpec& f = spec.features;
  const Tensor& pixels = in.tensors.at("pixel_values");
  check(pixels.shape().rank() == 4 && pixels.dim(1) == f.channels && pixels.dim(2) == f.image &&
            pixels.dim(3) == f.image && pixels.dtype() == DType::f32,
        "{}: pixel_values: expected F32 [batch, {}, {}, {}], got {} {}", path, f.channels, f.image, f.image,
        name_of(pixels.dtype()), pixels.shape());
  Inputs out;
  PaddedBatch& b = out.tokens;
  b.rows = pixels.dim(0);
  b.columns = spec.context;
  std::vector<Tensor> patches;
  for (int64_t r = 0; r < b.rows; ++r) {
    patches.push_back(cut_patches(pixels.part<float>(r), f));
    for (int64_t t = 0; t < b.columns; ++t) {
      b.ids.push_back(t < spec.vocab_size ? static_cast<int32_t>(t) : kFeature);
      b.places.push_back(r * b.columns + t);
    }
    b.lengths.push_back(static_cast<int32_t>(b.columns));
  }
  check(b.rows > 0, "{}: pixel_values: there is no image", path);
  out.input.features = join_rows(patches);
  out.input.ids = b.ids;
  out.input.layout = b.layout();
  return out;
}

Collector::Collector(const ModelSpec& spec, const Inputs& inputs, bool hidden_states, bool attentions,
                     bool last_normed)
    : spec_(spec), last_normed_(last_normed && spec.features.kind != FeatureSpec::Kind::patches) {
  attentions = attentions && !spec.recurrence.any();
  const bool both = spec.architecture == Architecture::encoder_decoder;
  const auto add = [&](const std::string& stack, const std::string& prefix, int64_t layers,
                       const PaddedBatch& batch, const ModelSpec& its_spec) {
    if (spec.latents.any()) return;
    if (hidden_states) add_hidden(stack, prefix, layers, batch);
    if (attentions)
      for (int64_t l = 0, next = 0; l < layers; ++l) {
        const BlockSpec& block = its_spec.block(l);
        if (!block.mixer.attends()) continue;
        const AttentionSpec& a = block.attention;
        const int64_t length = filled(batch.columns, a);
        const bool hashes = a.hashes(l) && length > a.hashing.chunk,
                   chunks = hashes || (a.rings(l) && length > a.ring.chunk);
        places_[fmt::format("{}.block.{}.attention.{}", stack, l, chunks ? "chunks" : "probabilities")] = {
            {fmt::format("{}attentions.{}", prefix, next++)}, &batch, &batch, block.attention.heads};
        if (hashes)
          places_[fmt::format("{}.block.{}.attention.buckets", stack, l)] = {
              {fmt::format("{}buckets.{}", prefix, l)}, &batch, &batch, block.attention.heads};
      }
  };
  if (both) add("encoder", "encoder_", spec.encoder_layers, inputs.source, spec.encoder_spec());
  add(spec.architecture == Architecture::encoder ? "encoder" : "decoder", both ? "decoder_" : "", spec.layers,
      inputs.tokens, spec);
  if (both && attentions)
    for (int64_t l = 0; l < spec.layers; ++l)
      if (!spec.block(l).attention.cross_linear)
        places_[fmt::format("decoder.block.{}.cross_attention.probabilities", l)] = {
            {fmt::format("cross_attentions.{}", l)},
            &inputs.tokens,
            &inputs.source,
            spec.block(l).attention.heads};
  if (spec.latents.any()) add_latents(inputs, hidden_states, attentions);
  if (!attentions || !is_longformer(spec)) return;
  banded_ = true;
  globals_ = global_places(spec, inputs);
  for (int64_t l = 0; l < spec.layers; ++l)
    places_[fmt::format("encoder.block.{}.attention.global.probabilities", l)] = {
        {fmt::format("global_attentions.{}", l)},
        &inputs.tokens,
        &inputs.tokens,
        spec.block(l).attention.heads};
}

// A state before each block and one after the last, for each time that the blocks run; the reads' attention
// as that of cross-attention.
void Collector::add_latents(const Inputs& inputs, bool hidden_states, bool attentions) {
  const LatentSpec& l = spec_.latents;
  const int64_t rows = inputs.tokens.rows, heads = spec_.attention.heads;
  latents_ = PaddedBatch::whole(rows, l.count);
  queries_ = spec_.output == Output::sequence_classes ? PaddedBatch::whole(rows, 1) : inputs.outputs();
  for (int64_t r = 0; r < l.repeats; ++r) {
    const std::string run = r == 0 ? "encoder." : fmt::format("repeat.{}.encoder.", r);
    for (int64_t i = 0; i <= spec_.layers && hidden_states; ++i)
      places_[run + (i == 0 ? "embedding" : fmt::format("block.{}.feed_forward.sum", i - 1))] = {
          {fmt::format("hidden_states.{}", r * (spec_.layers + 1) + i)}, &latents_, &latents_};
    for (int64_t i = 0; i < spec_.layers && attentions; ++i)
      places_[run + fmt::format("block.{}.attention.probabilities", i)] = {
          {fmt::format("attentions.{}", r * spec_.layers + i)}, &latents_, &latents_, heads};
  }
  if (!attentions) return;
  const int64_t reads = l.read_again ? l.repeats : 1;
  for (int64_t r = 0; r < reads; ++r)
    places_[(r == 0 ? "" : fmt::format("repeat.{}.", r)) + "encoder.in.attention.probabilities"] = {
        {fmt::format("cross_attentions.{}", r)}, &latents_, &inputs.tokens, l.in.heads};
  places_["encoder.out.attention.probabilities"] = {
      {fmt::format("cross_attentions.{}", reads)}, &queries_, &latents_, l.out.heads};
}

void Collector::visit(std::string_view name, Tensor& value) {
  const Place& place = places_.at(std::string(name));
  for (const std::string& to : place.names) found[to] = place.rows->spread(convert(value, DType::f32));
}

void Collector::visit_head(std::string_view name, int64_t s, int64_t h, Tensor& p) {
  const Place& place = places_.at(std::string(name));
  if (banded_) return visit_banded(place, s, h, p);
  if (name.ends_with(".buckets")) {
    Tensor& all = found[place.names[0]];
    if (!all.defined()) all = Tensor::zeros({place.rows->rows, place.heads, p.dim(0), p.dim(1)}, DType::i64);
    // Those of a later round are behind those of an earlier one; only a batch with padding has a last bucket.
    int64_t in_round = 1;
    for (const int64_t n : spec_.block(layer_of(place)).attention.hashing.buckets) in_round *= n;
    in_round += std::ssize(place.rows->ids) < place.rows->rows * p.dim(1) ? 1 : 0;
    for (int64_t r = 0; r < p.dim(0); ++r)
      std::ranges::transform(p.row<float>(r), all.mutable_part<int64_t>(s, h, r).begin(),
                             [&](float x) { return static_cast<int64_t>(x) + r * in_round; });
    return;
  }
  if (name.ends_with(".chunks")) {  // all sequences are filled up to the same length
    Tensor& all = found_at(place, {place.rows->rows, place.heads, p.dim(0), p.dim(1), p.dim(2)});
    std::ranges::copy(p.values<float>(), all.mutable_part<float>(s, h).begin());
    return;
  }
  if (chunks_of(place) > 0) return visit_chunked(place, s, h, p);
  const int64_t queries = place.rows->columns, keys = place.keys->columns;
  Tensor& all = found_at(place, {place.rows->rows, place.heads, queries, keys});
  const auto first = [](const PaddedBatch& b, int64_t sequence) {
    int64_t sum = 0;
    for (int64_t i = 0; i < sequence; ++i) sum += b.lengths[i];
    return sum;
  };
  const int64_t first_query = first(*place.rows, s), first_key = first(*place.keys, s);
  for (int64_t i = 0; i < p.dim(0); ++i) {
    const auto to = all.mutable_part<float>(s, h, place.rows->places[first_query + i] % queries);
    const auto from = p.row<float>(i);
    for (int64_t j = 0; j < p.dim(1); ++j) to[place.keys->places[first_key + j] % keys] = from[j];
  }
}

// The tensor that collects a place's probabilities.
Tensor& Collector::found_at(const Place& place, const Shape& shape) {
  Tensor& all = found[place.names[0]];
  if (!all.defined()) all = Tensor::zeros(shape, DType::f32);
  return all;
}

int64_t Collector::layer_of(const Place& place) {
  return std::stoll(place.names[0].substr(place.names[0].find('.') + 1));
}

// The attention pattern of a layer.
Pattern Collector::pattern_of(int64_t layer) const {
  const std::vector<Pattern>& patterns = spec_.block(layer).attention.patterns;
  return patterns.empty() ? Pattern() : patterns[static_cast<size_t>(layer) % patterns.size()];
}

// Length of the chunks in a Reformer's layer; 0 if there is only one.
int64_t Collector::chunks_of(const Place& place) const {
  const Pattern pattern = pattern_of(layer_of(place));
  if (spec_.branches != Branches::reversible || pattern == Pattern()) return 0;
  const int64_t block = pattern.block;
  return place.rows->columns > block ? block : 0;
}

// The length that Hugging Face's code fills texts of `columns` tokens up to, for the chunks of all layers.
int64_t Collector::filled(int64_t columns, const AttentionSpec& a) {
  int64_t multiple = 1, least = columns;
  const auto take = [&](int64_t chunk) {
    if (chunk == 0) return;
    multiple = std::lcm(multiple, chunk);
    least = std::min(least, chunk);
  };
  for (const Pattern& p : a.patterns) take(p.block);
  if (!a.shared_query_key.empty()) take(a.hashing.chunk);
  take(a.ring.chunk);
  return columns <= least ? columns : (columns + multiple - 1) / multiple * multiple;
}

// Stores probabilities in Hugging Face's format for Reformer: [B, heads, chunks, chunk, keys of the
// previous chunks and of this one].
void Collector::visit_chunked(const Place& place, int64_t s, int64_t h, const Tensor& p) {
  const PaddedBatch& batch = *place.rows;
  const Pattern pattern = pattern_of(layer_of(place));
  const int64_t chunk = pattern.block, before = pattern.neighbours,
                chunks = filled(batch.columns, spec_.attention) / chunk, keys = (before + 1) * chunk;
  Tensor& all = found_at(place, {batch.rows, place.heads, chunks, chunk, keys});
  int64_t first = 0;
  for (int64_t i = 0; i < s; ++i) first += batch.lengths[static_cast<size_t>(i)];
  for (int64_t i = 0; i < p.dim(0); ++i) {
    const int64_t query = batch.places[static_cast<size_t>(first + i)] % batch.columns,
                  from = (query / chunk - before) * chunk;
    const auto to = all.mutable_part<float>(s, h, query / chunk, query % chunk);
    const auto values = p.row<float>(i);
    for (int64_t j = 0; j < p.dim(1); ++j) {
      const int64_t key = batch.places[static_cast<size_t>(first + j)] % batch.columns;
      if (key >= from && key < from + keys) to[key - from] = values[j];
    }
  }
}

// True if all layers have a window and the same global tokens, with separate projections for these.
bool Collector::is_longformer(const ModelSpec& spec) {
  const std::vector<Pattern>& patterns = spec.attention.patterns;
  return spec.layer_kinds.empty() && spec.attention.global_projections &&
         std::ranges::all_of(patterns, [&](const Pattern& p) {
           return p.window > 0 && p == Pattern{.window = p.window, .global = patterns[0].global};
         });
}

// The columns of each sequence's global tokens.
std::vector<std::vector<int64_t>> Collector::global_places(const ModelSpec& spec, const Inputs& inputs) {
  std::vector<std::vector<int64_t>> out;
  int64_t row = 0;
  for (const int32_t length : inputs.tokens.lengths) {
    out.emplace_back();
    for (int32_t i = 0; i < length; ++i, ++row) {
      const bool global = inputs.input.globals.defined() ? inputs.input.globals[row] != 0
                                                         : i < spec.attention.patterns[0].global;
      if (global)
        out.back().push_back(inputs.tokens.places[static_cast<size_t>(row)] % inputs.tokens.columns);
    }
  }
  return out;
}

// Stores probabilities in Hugging Face's format for Longformer. Each query has those of the global tokens,
// then those of the window around it without global tokens. Rows of global queries are 0; theirs are in
// global_attentions [B, heads, keys, globals].
void Collector::visit_banded(const Place& place, int64_t s, int64_t h, const Tensor& p) {
  const PaddedBatch& batch = *place.rows;
  const bool of_globals = place.names[0].starts_with("global");
  const int64_t columns = batch.columns;
  int64_t most = 0, first = 0;
  for (const auto& g : globals_) most = std::max(most, std::ssize(g));
  for (int64_t i = 0; i < s; ++i) first += batch.lengths[i];
  const int64_t window = pattern_of(layer_of(place)).window, band = most + 2 * window - 1;
  Tensor& all = found_at(place, {batch.rows, place.heads, columns, of_globals ? most : band});
  const std::vector<int64_t>& globals = globals_[static_cast<size_t>(s)];
  const auto is_global = [&](int64_t column) { return std::ranges::find(globals, column) != globals.end(); };
  for (int64_t i = 0; i < p.dim(0); ++i)
    for (int64_t j = 0; j < p.dim(1); ++j) {
      const int64_t key = batch.places[first + j] % columns;
      const float value = p.row<float>(i)[j];
      const auto place_of = [&](int64_t query) { return all.mutable_part<float>(s, h, query); };
      if (of_globals) {
        place_of(key)[i] = value;
        continue;
      }
      const int64_t query = batch.places[first + i] % columns;
      const auto among = std::ranges::find(globals, key) - globals.begin();
      if (is_global(query)) continue;
      if (is_global(key))
        place_of(query)[among] = value;
      else if (std::abs(key - query) < window)
        place_of(query)[most + key - query + window - 1] = value;
    }
}

// State 0 is the input of the first block, state l the output of block l. If sums are not normalized, the
// last state is taken after the final norm. A recurrence's state is h; of two streams the second is taken.
void Collector::add_hidden(const std::string& stack, const std::string& prefix, int64_t layers,
                           const PaddedBatch& batch) {
  const bool last_norm = spec_.ends_with_norm() && last_normed_ && spec_.branches != Branches::reversible;
  const Cell cell = stack == "encoder" ? spec_.recurrence.encoder : spec_.recurrence.decoder;
  const ModelSpec its = stack == "encoder" ? spec_.encoder_spec() : spec_;
  // In published code the norm of RWKV's embeddings is a part of its first block.
  const bool normed_inside = spec_.block(0).mixer.get_if<Rwkv4Mixer>() != nullptr && spec_.embedding_norm;
  const std::string first = stack + (normed_inside ? ".embedding.token" : ".embedding");
  for (int64_t l = 0; l <= layers; ++l) {
    const std::string name = l == 0                     ? first
                             : cell != Cell::none       ? fmt::format("{}.block.{}", stack, l - 1)
                             : last_norm && l == layers ? stack + ".norm"
                                                        : block_output(its, stack, l - 1);
    Place place{{fmt::format("{}hidden_states.{}", prefix, l)}, &batch, &batch};
    if (l == layers && prefix == "encoder_") place.names.emplace_back("encoder_last_hidden_state");
    places_[name] = place;
  }
}

}  // namespace qkv
