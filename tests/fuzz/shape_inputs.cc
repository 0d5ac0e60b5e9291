#include "tests/fuzz/shape_inputs.h"

#include <algorithm>

#include "qkv/models/feature_embedding.h"
#include "qkv/ops/elementwise.h"
#include "tests/fuzz/shape_parts.h"

namespace qkv::testing {

bool of_images(const ModelSpec& s) {
  return s.features.kind == FeatureSpec::Kind::patches;
}
bool of_frames(const ModelSpec& s) {
  return s.features.kind == FeatureSpec::Kind::frames;
}
bool has_both(const ModelSpec& s) {
  return s.architecture == Architecture::encoder_decoder;
}

Padded draw_padded(int64_t rows, int64_t columns, int64_t vocab, Draw& d) {
  Padded p{.rows = rows, .columns = columns};
  const int64_t kind = d.between(0, 3);  // none, behind, before, between
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t length = kind == 0 ? columns : d.between(1, columns);
    const int64_t sure = d.between(0, columns - 1);
    int32_t count = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const bool real = kind == 3   ? c == sure || d.chance(0.6)
                        : kind == 2 ? c >= columns - length
                                    : c < length;
      const int64_t id = d.between(0, vocab - 1);
      p.ids.push_back(id);
      p.mask.push_back(real);
      if (!real) continue;
      p.places.push_back(r * columns + c);
      p.flat.push_back(static_cast<int32_t>(id));
      ++count;
    }
    p.lengths.push_back(count);
  }
  return p;
}

Tensor random_tensor(const Shape& shape, Draw& d) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.count(); ++i) x.mutable_data<float>()[i] = static_cast<float>(d.normal());
  return x;
}

namespace {

Padded full(int64_t rows, int64_t columns) {
  Padded p{.rows = rows, .columns = columns};
  p.mask.assign(static_cast<size_t>(rows * columns), 1);
  for (int64_t i = 0; i < rows * columns; ++i) p.places.push_back(i);
  p.lengths.assign(static_cast<size_t>(rows), static_cast<int32_t>(columns));
  return p;
}

}  // namespace

void add_images(const ModelSpec& s, int64_t rows, Draw& d, Case& c) {
  const FeatureSpec& f = s.features;
  const Tensor pixels = random_tensor({rows, f.channels, f.image, f.image}, d);
  c.file.emplace_back("pixel_values", pixels);
  c.tokens = full(rows, s.context);
  const int64_t side = f.image / f.patch;
  std::vector<float> features;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < s.context; ++t)
      c.tokens.flat.push_back(t < s.vocab_size ? static_cast<int32_t>(t) : kFeature);
    for (int64_t p = 0; p < side * side; ++p)
      for (int64_t i = 0; i < f.width(); ++i) {
        const int64_t channel = i / (f.patch * f.patch), y = p / side * f.patch + i / f.patch % f.patch,
                      x = p % side * f.patch + i % f.patch;
        features.push_back(pixels.data<float>()[((r * f.channels + channel) * f.image + y) * f.image + x]);
      }
  }
  c.input.features = Tensor::of({rows * side * side, f.width()}, features);
}

namespace {

// input_features [B, channels, frames], and the same frame by frame.
void add_frames(const ModelSpec& s, int64_t rows, Draw& d, Case& c) {
  const int64_t places = d.between(1, s.encoder_spec().longest()), channels = s.features.channels;
  const Tensor x = random_tensor({rows, channels, 2 * places}, d);
  c.file.emplace_back("input_features", x);
  c.source = full(rows, places);
  c.source.flat.assign(static_cast<size_t>(rows * places), kFeature);
  std::vector<float> features;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t t = 0; t < 2 * places; ++t)
      for (int64_t i = 0; i < channels; ++i)
        features.push_back(x.data<float>()[(r * channels + i) * 2 * places + t]);
  c.input.features = Tensor::of({rows * 2 * places, channels}, features);
}

}  // namespace

void add_texts(const std::string& ids, const std::string& mask, const Padded& p, Case& c) {
  c.file.emplace_back(ids, p.of(p.ids));
  if (std::ssize(p.places) < p.rows * p.columns) c.file.emplace_back(mask, p.of(p.mask));
}

Named inputs_of_generation(const Case& c) {
  Named in;
  for (const auto& [name, x] : c.file)
    if (!name.starts_with("decoder_") && name != "labels")
      in.emplace_back(name,
                      x.shape().rank() == 3 && name == "attention_mask" ? c.tokens.of(c.tokens.mask) : x);
  return in;
}

namespace {

Indices flat_of(const Padded& p, const std::vector<int64_t>& values) {
  Tokens out;
  for (const int64_t place : p.places)
    out.push_back(static_cast<int32_t>(values[static_cast<size_t>(place)]));
  return out;
}

// True if the model's blocks follow a mask of pairs of tokens.
bool takes_pairs(const ModelSpec& s) {
  if (s.latents.any()) return false;
  return s.order == Order::stack && s.problem != Problem::multiple_choice && !has_both(s) && !of_images(s) &&
         s.all_attend() && s.memory == 0 && s.experts_in_use().count == 0 &&
         std::ranges::none_of(s.blocks_in_use(), [&](const BlockSpec* block) {
           const AttentionSpec& a = block->attention;
           return a.global_projections || !a.shared_query_key.empty() || a.ring.chunk > 0 ||
                  (s.causal() && a.relative.on());
         });
}

// A mask of its own for each pair of tokens. Each token sees itself, or it would be padding.
void add_pairs(Draw& d, Case& c) {
  const Padded& p = c.tokens;
  std::vector<int64_t> pairs(static_cast<size_t>(p.rows * p.columns * p.columns), 0);
  Tokens table;
  for (size_t r = 0, first = 0; r < p.lengths.size(); first += static_cast<size_t>(p.lengths[r++]))
    for (size_t q = first; q < first + static_cast<size_t>(p.lengths[r]); ++q)
      for (size_t k = first; k < first + static_cast<size_t>(p.lengths[r]); ++k) {
        table.push_back(q == k || d.chance(0.5) ? 1 : 0);
        pairs[static_cast<size_t>(p.places[q] * p.columns + p.places[k] % p.columns)] = table.back();
      }
  c.input.visibility.table = std::move(table);
  std::erase_if(c.file, [](const auto& tensor) { return tensor.first == "attention_mask"; });
  c.file.emplace_back("attention_mask", Tensor::of({p.rows, p.columns, p.columns}, pairs));
}

// Takes the rows as questions with as many choices each.
void divide_into_questions(Draw& d, Case& c) {
  const int64_t rows = c.tokens.rows, choices = divisor_of(rows, d, 4);
  for (int64_t r = 0; r <= rows; r += choices) c.input.choices.push_back(static_cast<int32_t>(r));
  for (auto& [name, x] : c.file) x = x.reshape({rows / choices, choices, c.tokens.columns});
}

// Labels of the model's output, as the file and the library have them.
void add_labels(const ModelSpec& s, Draw& d, Case& c) {
  const Padded& p = c.tokens;
  if (s.output == Output::embedding || s.features.distilled) return;
  const auto label = [&](int64_t classes) {
    return d.chance(0.2) ? int64_t{kIgnored} : d.between(0, classes - 1);
  };
  std::vector<int64_t> labels;
  if (s.output == Output::span) {
    std::vector<int64_t> ends[2];
    Tokens both;
    for (int64_t r = 0; r < p.rows; ++r)
      for (auto& to : ends) {
        to.push_back(d.between(0, p.lengths[static_cast<size_t>(r)] - 1));
        both.push_back(static_cast<int32_t>(to.back()));
      }
    c.file.emplace_back("start_positions", Tensor::of({p.rows}, ends[0]));
    c.file.emplace_back("end_positions", Tensor::of({p.rows}, ends[1]));
    c.targets = Indices(std::move(both), 2);
    return;
  }
  if (s.problem == Problem::multiple_choice) {
    const int64_t choices = c.input.choices[1], questions = p.rows / choices;
    for (int64_t q = 0; q < questions; ++q) labels.push_back(q == 0 ? 0 : label(choices));
    c.file.emplace_back("labels", Tensor::of({questions}, labels));
    c.targets = Indices(std::vector<int32_t>(labels.begin(), labels.end()));
    return;
  }
  if (s.output == Output::sequence_classes) {
    for (int64_t r = 0; r < p.rows; ++r) labels.push_back(r == 0 ? 0 : label(s.classes()));
    c.file.emplace_back("labels", Tensor::of({p.rows}, labels));
    c.targets = Indices(std::vector<int32_t>(labels.begin(), labels.end()));
    return;
  }
  const int64_t classes = s.output == Output::tokens ? s.vocab_size : s.classes();
  for (int64_t i = 0; i < p.rows * p.columns; ++i) labels.push_back(label(classes));
  const bool shifted = s.architecture == Architecture::decoder && s.output == Output::tokens;
  Tokens targets;
  for (const int64_t place : p.places) {
    const bool last = (place + 1) % p.columns == 0;
    const auto at = static_cast<size_t>(place);
    targets.push_back(static_cast<int32_t>(!shifted ? labels[at] : last ? kIgnored : labels[at + 1]));
  }
  if (std::ranges::all_of(targets, [](int32_t t) { return t == kIgnored; })) {
    if (shifted && p.places[0] % p.columns + 1 == p.columns) return;
    labels[static_cast<size_t>(p.places[0] + shifted)] = targets[0] = 0;
  }
  c.targets = targets;
  if (!s.latents.any() || s.output != Output::tokens) {
    c.file.emplace_back("labels", p.of(labels));
    return;
  }
  // Latents have labels of all positions of the context.
  std::vector<int64_t> all(static_cast<size_t>(p.rows * s.context), kIgnored);
  auto next = targets.begin();
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t i = 0; i < p.lengths[static_cast<size_t>(r)]; ++i)
      all[static_cast<size_t>(r * s.context + i)] = *next++;
  c.file.emplace_back("labels", Tensor::of({p.rows, s.context}, all));
}

}  // namespace

int64_t draw_columns(int64_t longest, Draw& d) {
  return d.between(1, std::min<int64_t>(longest, d.chance(0.1) ? 140 : 12));
}

Case draw_case(const ModelSpec& s, Draw& d) {
  Case c;
  const int64_t rows = s.output == Output::embedding           ? 2 * d.between(1, 2)
                       : s.problem == Problem::multiple_choice ? d.between(1, 6)
                                                               : d.between(1, 3);
  if (of_images(s)) {
    add_images(s, rows, d, c);
  } else {
    c.tokens = draw_padded(rows, draw_columns(s.longest(), d), s.vocab_size, d);
    if (of_frames(s))
      add_frames(s, rows, d, c);
    else if (has_both(s))
      c.source = draw_padded(rows, draw_columns(s.encoder_spec().longest(), d), s.input_vocab_size(), d);
    if (has_both(s) && !of_frames(s)) add_texts("input_ids", "attention_mask", c.source, c);
    add_texts(has_both(s) ? "decoder_input_ids" : "input_ids",
              has_both(s) ? "decoder_attention_mask" : "attention_mask", c.tokens, c);
  }
  const Padded& p = c.tokens;
  const auto flags = [&](const char* name, int64_t most) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < p.rows * p.columns; ++i) values.push_back(d.between(0, most));
    c.file.emplace_back(name, p.of(values));
    return flat_of(p, values);
  };
  if (s.architecture == Architecture::encoder && !of_images(s)) {
    if ((s.segments > 1 || s.attention.relative.segments) && d.chance(0.6))
      c.input.segments = flags("token_type_ids", s.segments > 1 ? s.segments - 1 : 1);
    if (!s.attention.patterns.empty() && d.chance(0.5)) c.input.globals = flags("global_attention_mask", 1);
  }
  c.input.ids = p.flat;
  c.input.layout = Layout::of(p.lengths);
  c.input.layout.padded_length = p.columns;
  if (has_both(s)) {
    c.input.source = c.source.flat;
    c.input.source_layout = Layout::of(c.source.lengths);
    c.input.source_layout.padded_length = c.source.columns;
  }
  if (s.order == Order::prefix) {
    Tokens prefixes;
    for (const int32_t n : p.lengths) prefixes.push_back(static_cast<int32_t>(d.between(0, n)));
    c.input.visibility = prefix_ranks(c.input.layout, prefixes);
  }
  if (takes_pairs(s) && !c.input.globals.defined() && d.chance(0.2)) add_pairs(d, c);
  if (s.order == Order::permuted)
    c.input.visibility = ranks_without(c.input.ids, static_cast<int32_t>(d.between(0, s.vocab_size)));
  if (s.problem == Problem::multiple_choice) divide_into_questions(d, c);
  add_labels(s, d, c);
  return c;
}

}  // namespace qkv::testing
