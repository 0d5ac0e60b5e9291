// Recurrent encoder-decoders against loops in double by the papers' equations, and against themselves.
#include "qkv/models/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/infer/beam.h"
#include "qkv/io/model_dir.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::recurrent_test {
namespace {

using testing::expect_error;
using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;
using Tokens = std::vector<int32_t>;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
Vector plus(Vector a, const Vector& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
Vector joined(Vector a, const Vector& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Vector map(const std::function<double(double)>& f, Vector a) {
  for (double& v : a) v = f(v);
  return a;
}
double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
Vector softmax(Vector e) {
  double sum = 0;
  for (double& v : e) sum += v = std::exp(v);
  for (double& v : e) v /= sum;
  return e;
}

ModelInput input_of(const std::vector<Tokens>& sources, const std::vector<Tokens>& targets) {
  const auto flat = [](const std::vector<Tokens>& all, Layout& layout) {
    Tokens ids, lengths;
    for (const Tokens& t : all) {
      ids.insert(ids.end(), t.begin(), t.end());
      lengths.push_back(static_cast<int32_t>(t.size()));
    }
    layout = Layout::of(lengths);
    return ids;
  };
  ModelInput in;
  in.ids = flat(targets, in.layout);
  in.source = flat(sources, in.source_layout);
  return in;
}
// The model by the equations of its papers, one pair and one token at a time. The engine supplies the
// output of an encoder of blocks, which other tests compare with formal/.
class Reference {
 public:
  explicit Reference(const Transformer& model) : model_(model), spec_(model.spec()) {
    for (const Parameter& p : model.parameters().all()) {
      const auto x = p.value.values<float>();
      weights[p.name] = {Vector(x.begin(), x.end()), p.shape[-1]};
    }
  }

  // The logits after each token of the target.
  Vectors logits(const Tokens& source, const Tokens& target) const {
    const Vectors h = encode(source);
    std::vector<State> s = begin(h);
    Vectors out;
    for (const int32_t token : target) {
      Vector x = row("embedding.token", token), c;
      for (size_t l = 0; l < s.size(); ++l) {
        const std::string name = "decoder.block." + std::to_string(l);
        if (l == 0 && spec_.recurrence.attention == SourceAttention::additive) {
          c = additive(s[0].h, h);
          step(spec_.recurrence.decoder, name, x, times(name + ".context.weight", c), s[0]);
        } else {
          step(spec_.recurrence.decoder, name, x, {}, s[l]);
        }
        x = s[l].h;
      }
      if (spec_.recurrence.attention == SourceAttention::dot) c = weighed(softmax(scores(x, h)), h);
      if (spec_.recurrence.attention == SourceAttention::local) c = local(x, h);
      if (!c.empty()) x = map(tanh, times("decoder.readout.weight", joined(c, x)));
      out.push_back(times("embedding.token", x));
    }
    return out;
  }

  struct Weight {
    Vector values;
    int64_t columns;
  };
  std::map<std::string, Weight> weights;

 private:
  struct State {
    Vector h, c;
  };
  static double tanh(double x) { return std::tanh(x); }
  Vector row(const std::string& name, int64_t i) const {
    const Weight& w = weights.at(name);
    return {w.values.begin() + i * w.columns, w.values.begin() + (i + 1) * w.columns};
  }
  Vector times(const std::string& name, const Vector& x) const {
    const Weight& w = weights.at(name);
    Vector y;
    for (int64_t i = 0; i < std::ssize(w.values) / w.columns; ++i) y.push_back(dot(row(name, i), x));
    return y;
  }

  // `from_source`: term of the context in the gates; empty: none.
  void step(Cell cell, const std::string& name, const Vector& x, const Vector& from_source, State& s) const {
    const int64_t n = std::ssize(s.h);
    Vector wx = plus(times(name + ".input.weight", x), weights.at(name + ".input.bias").values);
    if (!from_source.empty()) wx = plus(wx, from_source);
    const auto gate = [&](int64_t k, const Vector& h) {  // W x + U h + b of the k-th gate
      Vector a(wx.begin() + k * n, wx.begin() + (k + 1) * n);
      for (int64_t j = 0; j < n; ++j) a[j] += dot(row(name + ".state.weight", k * n + j), h);
      return a;
    };
    if (cell == Cell::lstm) {
      const Vector i = map(sigmoid, gate(0, s.h)), f = map(sigmoid, gate(1, s.h)),
                   o = map(sigmoid, gate(2, s.h)), g = map(tanh, gate(3, s.h));
      for (int64_t j = 0; j < n; ++j) {
        s.c[j] = f[j] * s.c[j] + i[j] * g[j];
        s.h[j] = o[j] * std::tanh(s.c[j]);
      }
    } else {
      const Vector z = map(sigmoid, gate(0, s.h)), r = map(sigmoid, gate(1, s.h));
      Vector reset = s.h;
      for (int64_t j = 0; j < n; ++j) reset[j] *= r[j];
      const Vector proposed = map(tanh, gate(2, reset));
      for (int64_t j = 0; j < n; ++j) s.h[j] = (1 - z[j]) * s.h[j] + z[j] * proposed[j];
    }
  }

  Vectors read(const std::string& name, const Vectors& xs, int64_t width) const {
    State s{Vector(width), Vector(width)};
    Vectors out;
    for (const Vector& x : xs) {
      step(spec_.recurrence.encoder, name, x, {}, s);
      out.push_back(s.h);
    }
    return out;
  }
  Vectors encode(Tokens source) const {
    if (spec_.recurrence.encoder == Cell::none) return encoded_by_blocks(source);
    if (spec_.source_reversed) std::reverse(source.begin(), source.end());
    Vectors h;
    for (const int32_t token : source) h.push_back(row("embedding.token", token));
    for (int64_t l = 0; l < spec_.encoder_layers; ++l) {
      const std::string name = "encoder.block." + std::to_string(l);
      if (!spec_.recurrence.bidirectional) {
        h = read(name, h, spec_.width);
        continue;
      }
      const Vectors ahead = read(name + ".forward", h, spec_.width / 2);
      Vectors back = read(name + ".backward", {h.rbegin(), h.rend()}, spec_.width / 2);
      std::reverse(back.begin(), back.end());
      for (size_t t = 0; t < h.size(); ++t) h[t] = joined(ahead[t], back[t]);
    }
    return h;
  }
  Vectors encoded_by_blocks(const Tokens& source) const {
    const NoGrad guard;
    const Tensor z = model_.encode(input_of({source}, {{0}}), {});
    Vectors h;
    for (int64_t t = 0; t < z.dim(0); ++t) {
      const auto row = z.values<float>().subspan(t * z.width(), z.width());
      h.emplace_back(row.begin(), row.end());
    }
    return h;
  }
  std::vector<State> begin(const Vectors& h) const {
    const bool blocks = spec_.recurrence.encoder == Cell::none;
    const Vector v = blocks ? weighed(Vector(h.size(), 1 / static_cast<double>(h.size())), h)
                     : spec_.recurrence.bidirectional ? h.front()
                                                      : h.back();
    const Vector all = map(tanh, times("decoder.begin.weight", v));
    const int64_t parts = spec_.recurrence.decoder == Cell::lstm ? 2 : 1, n = spec_.width;
    std::vector<State> states;
    for (int64_t l = 0; l < spec_.layers; ++l) {
      const auto at = all.begin() + l * parts * n;
      states.push_back({Vector(at, at + n), parts == 2 ? Vector(at + n, at + 2 * n) : Vector()});
    }
    return states;
  }

  static Vector weighed(const Vector& a, const Vectors& h) {
    Vector c(h[0].size());
    for (size_t j = 0; j < h.size(); ++j)
      for (size_t k = 0; k < c.size(); ++k) c[k] += a[j] * h[j][k];
    return c;
  }
  static Vector scores(const Vector& s, const Vectors& h) {
    Vector e;
    for (const Vector& key : h) e.push_back(dot(s, key));
    return e;
  }
  // e_j = v^T tanh(W s + U h_j).
  Vector additive(const Vector& s, const Vectors& h) const {
    const std::string name = "decoder.source_attention";
    Vector e;
    for (const Vector& key : h)
      e.push_back(dot(weights.at(name + ".v").values,
                      map(tanh, plus(times(name + ".q.weight", s), times(name + ".k.weight", key)))));
    return weighed(softmax(e), h);
  }
  // p = S sigmoid(v^T tanh(W s)); the softmax over [p - D, p + D], each times exp(-(j - p)^2 / (2 (D/2)^2)).
  Vector local(const Vector& s, const Vectors& h) const {
    const std::string name = "decoder.source_attention";
    const double p = static_cast<double>(h.size()) *
                     sigmoid(
                         times(name + ".to_place.weight", map(tanh, times(name + ".place.weight", s)))[0]),
                 d = static_cast<double>(spec_.recurrence.window), sigma = d / 2;
    Vectors near;
    Vector distances;
    for (size_t j = 0; j < h.size(); ++j)
      if (std::abs(static_cast<double>(j) - p) <= d) {
        near.push_back(h[j]);
        distances.push_back(static_cast<double>(j) - p);
      }
    Vector a = softmax(scores(s, near));
    for (size_t j = 0; j < a.size(); ++j)
      a[j] *= std::exp(-distances[j] * distances[j] / (2 * sigma * sigma));
    return weighed(a, near);
  }

  const Transformer& model_;
  ModelSpec spec_;
};

struct Variant {
  const char* name;
  Cell encoder, decoder;
  SourceAttention attention;
  bool bidirectional, reversed;
  int64_t layers;
};

ModelSpec spec_of(const Variant& v) {
  ModelSpec s = gpt2_spec(11, 12, 6, v.layers, 2);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = v.layers;
  s.init_std = 1;
  s.source_reversed = v.reversed;
  s.recurrence = {v.encoder, v.decoder, v.bidirectional, v.attention, 2};
  if (v.encoder != Cell::none && v.decoder != Cell::none) s.positions = Positions::none;
  return s;
}

const Tokens kSources[] = {{3, 1, 4, 1, 5}, {9, 2}, {6, 5, 3, 5, 8, 9, 7}},
             kTargets[] = {{0, 2, 7}, {0, 1, 8, 2, 8, 1}, {0, 8}};

ModelInput all_pairs() {
  return input_of({std::begin(kSources), std::end(kSources)}, {std::begin(kTargets), std::end(kTargets)});
}

class Recurrent : public ::testing::TestWithParam<Variant> {
 protected:
  Recurrent() : model_(spec_of(GetParam())) { model_.parameters().draw(3, DType::f32); }
  Tensor logits(const ModelInput& in) const {
    const NoGrad guard;
    return model_.logits(model_.hidden(in, {}));
  }
  Transformer model_;
};

// Grid positions need a decoder with positions: a recurrence has none.
TEST(RecurrentEncoderBesideBlocks, HasNoPositionsOfAGrid) {
  ModelSpec spec = gpt2_spec(35, 4, 12, 1, 2);
  spec.architecture = Architecture::encoder_decoder;
  spec.encoder_layers = 1;
  spec.recurrence.encoder = Cell::lstm;
  spec.grid = 2;
  spec.axial_width = 4;
  Transformer model(spec);
  model.parameters().draw(5, DType::f32);
  const NoGrad guard;
  const Tensor hidden = model.hidden(input_of({{2, 3, 4}, {5}}, {{1, 6}, {7}}), {});
  EXPECT_EQ(hidden.dim(0), 3);
  for (const float x : hidden.values<float>()) EXPECT_TRUE(std::isfinite(x));
}

TEST_P(Recurrent, IsWhatThePapersPrint) {
  if (GetParam().decoder == Cell::none) return;  // other tests compare blocks with formal/
  const Tensor got = logits(all_pairs());
  const Reference reference(model_);
  int64_t row = 0;
  for (size_t s = 0; s < 3; ++s)
    for (const Vector& want : reference.logits(kSources[s], kTargets[s])) {
      for (int64_t v = 0; v < got.width(); ++v)
        ASSERT_NEAR(got.data<float>()[row * got.width() + v], want[v], 2e-5) << s << " " << row << " " << v;
      ++row;
    }
  EXPECT_EQ(row, got.dim(0));
}

// The engine's gradient of the loss against central differences of the reference, in double: h^2 / 6 times a
// third derivative, and rounding of 1e-16 / h, are far below f32's rounding of the gradient.
TEST_P(Recurrent, ItsGradientIsThatOfThePapers) {
  if (model_.spec().has_blocks()) return;  // see below
  Transformer model(model_.spec());
  model.parameters().prepare_training(DType::f32, 3);
  Reference reference(model);
  const Indices targets({2, 7, 1, 1, 8, kIgnored, 8, 1, 5, 8, 3});
  backward(model.loss(all_pairs(), targets, {}, 1).loss);
  const auto loss = [&] {
    double sum = 0;
    const int32_t* target = targets.values().data();
    for (size_t s = 0; s < 3; ++s)
      for (const Vector& z : reference.logits(kSources[s], kTargets[s]))
        if (const int32_t t = *target++; t != kIgnored) sum -= std::log(softmax(z)[t]);
    return sum;
  };
  for (Parameter& p : model.parameters().all()) {
    Vector& x = reference.weights.at(p.name).values;
    const size_t stride = std::max<size_t>(1, x.size() / 7);
    double largest = 0;
    for (size_t i = 0; i < x.size(); i += stride) {
      const double centre = x[i], h = 1e-5;
      x[i] = centre + h;
      const double up = loss();
      x[i] = centre - h;
      const double down = loss();
      x[i] = centre;
      const double want = (up - down) / (2 * h);
      ASSERT_NEAR(p.leaf->grad.data<float>()[i], want, 1e-4) << p.name << ", element " << i;
      largest = std::max(largest, std::abs(want));
    }
    EXPECT_GT(largest, 1e-3) << p.name;
  }
}

// Also with blocks: along the gradient the slope of the loss is the gradient's norm.
TEST_P(Recurrent, ItsGradientIsTheSlope) {
  Transformer model(model_.spec());
  Parameters& parameters = model.parameters();
  parameters.prepare_training(DType::f32, 3);
  const Indices targets({2, 7, 1, 1, 8, kIgnored, 8, 1, 5, 8, 3});
  backward(model.loss(all_pairs(), targets, {}, 1).loss);
  parameters.complete_gradients();
  double squares = 0;
  std::vector<Tensor> start;
  for (Parameter& p : parameters.all()) {
    start.push_back(p.master.clone());
    for (const float g : p.leaf->grad.values<float>()) squares += double{g} * g;
  }
  const double norm = std::sqrt(squares), step = 0x1p-8;
  const NoGrad guard;
  const auto at = [&](double t) {
    for (size_t k = 0; k < start.size(); ++k) {
      Parameter& p = parameters.all()[k];
      for (int64_t i = 0; i < p.master.count(); ++i)
        p.master.mutable_data<float>()[i] =
            static_cast<float>(double{start[k].data<float>()[i]} + t * p.leaf->grad.data<float>()[i] / norm);
    }
    return model.loss(all_pairs(), targets, {}, 1).total;
  };
  const double slope = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
  EXPECT_NEAR(slope, norm, 2e-3 * norm);
}

TEST_P(Recurrent, APairDoesNotSeeItsNeighbours) {
  const Tensor together = logits(all_pairs());
  int64_t row = 0;
  for (size_t s = 0; s < 3; ++s) {
    const Tensor alone = logits(input_of({kSources[s]}, {kTargets[s]}));
    for (int64_t i = 0; i < alone.count(); ++i)
      ASSERT_NEAR(alone.data<float>()[i], together.data<float>()[row * alone.width() + i], 1e-5);
    row += alone.dim(0);
  }
}

// Step by step, the last token gets the same logits as with the whole target at once.
TEST_P(Recurrent, DecodesAsItIsTaught) {
  const auto taught = [&](size_t source, const Tokens& target) {
    const Tensor z = logits(input_of({kSources[source]}, {target}));
    return z.slice_rows(z.dim(0) - 1, z.dim(0)).clone();
  };
  const auto expect_rows = [&](const Tensor& got, const std::vector<std::pair<size_t, Tokens>>& want) {
    ASSERT_EQ(got.dim(0), std::ssize(want));
    for (size_t s = 0; s < want.size(); ++s) {
      const Tensor z = taught(want[s].first, want[s].second);
      for (int64_t v = 0; v < z.count(); ++v)
        ASSERT_NEAR(got.data<float>()[static_cast<int64_t>(s) * z.count() + v], z.data<float>()[v], 1e-5)
            << s;
    }
  };
  DecodeState state(model_, std::vector<std::vector<int32_t>>{kSources[0], kSources[1], kSources[2]});
  expect_rows(state.advance({{0, 2}, {0}, {0, 8, 1}}), {{0, {0, 2}}, {1, {0}}, {2, {0, 8, 1}}});
  expect_rows(state.advance({{7}, {1, 8}, {4}}), {{0, {0, 2, 7}}, {1, {0, 1, 8}}, {2, {0, 8, 1, 4}}});
  DecodeState other = state.fork();
  other.reorder(Tokens{2, 0, 2});
  expect_rows(other.advance({{5}, {6}, {7}}),
              {{2, {0, 8, 1, 4, 5}}, {0, {0, 2, 7, 6}}, {2, {0, 8, 1, 4, 7}}});
  state.truncate(0, 1);
  state.truncate(1, 0);
  expect_rows(state.advance({{3}, {0, 9}, {1}}), {{0, {0, 3}}, {1, {0, 9}}, {2, {0, 8, 1, 4, 1}}});
}

TEST_P(Recurrent, ItsMemoryIsSavedAndLoaded) {
  const NoGrad guard;
  const auto fed = [&](const Tokens& target, DecodingStates& states, bool first) {
    ModelInput in = input_of({kSources[0]}, {target});
    if (!first) in.source = {}, in.layout = Layout::of({1}, {2});
    Context context;
    context.states = &states;
    return model_.hidden(in, context);
  };
  DecodingStates states = model_.make_states(1), loaded = model_.make_states(1);
  fed({0, 4}, states, true);
  for (size_t i = 0; i < states.all().size(); ++i) {
    loaded.all()[i]->load(states.all()[i]->save());
    EXPECT_EQ(loaded.all()[i]->length(0), states.all()[i]->length(0));
  }
  const Tensor a = fed({5}, states, false), b = fed({5}, loaded, false);
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0);
}

TEST_P(Recurrent, IsSavedAndLoaded) {
  const testing::ScratchDir dir;
  save_model(dir.path(), model_);
  const auto loaded = load_model(dir.path(), DType::f32);
  EXPECT_EQ(loaded->spec(), model_.spec());
  const NoGrad guard;
  const Tensor a = logits(all_pairs()), b = loaded->logits(loaded->hidden(all_pairs(), {}));
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0);
}

TEST_P(Recurrent, InBf16IsNearF32) {
  Transformer narrow(model_.spec());
  narrow.parameters().draw(3, DType::bf16);
  const NoGrad guard;
  const Tensor a = logits(all_pairs()), b = narrow.logits(narrow.hidden(all_pairs(), {}));
  for (int64_t i = 0; i < a.count(); ++i) ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 0.1);
}

constexpr auto kNone = Cell::none, kLstm = Cell::lstm, kGru = Cell::gru;
INSTANTIATE_TEST_SUITE_P(
    Variants, Recurrent,
    ::testing::Values(Variant{"Sutskever", kLstm, kLstm, SourceAttention::none, false, true, 2},
                      Variant{"Cho", kGru, kGru, SourceAttention::none, false, false, 1},
                      Variant{"Bahdanau", kGru, kGru, SourceAttention::additive, true, false, 1},
                      Variant{"AdditiveLstm", kLstm, kLstm, SourceAttention::additive, true, false, 2},
                      Variant{"LuongGlobal", kLstm, kLstm, SourceAttention::dot, false, true, 2},
                      Variant{"LuongLocal", kLstm, kLstm, SourceAttention::local, false, true, 1},
                      Variant{"BidirectionalLocal", kGru, kLstm, SourceAttention::local, true, false, 2},
                      Variant{"MixedLstm", kNone, kLstm, SourceAttention::dot, false, false, 2},
                      Variant{"MixedAdditive", kNone, kGru, SourceAttention::additive, false, false, 1},
                      Variant{"LstmBeforeTransformer", kLstm, kNone, SourceAttention::none, true, false, 1}),
    [](const auto& info) { return info.param.name; });

TEST(RecurrentSpec, RefusesWhatMakesNoSense) {
  const ModelSpec good = spec_of({"", kLstm, kLstm, SourceAttention::dot, true, true, 1});
  EXPECT_NO_THROW(check_spec(good));
  const auto refuse = [&](const std::function<void(ModelSpec&)>& change,
                          std::initializer_list<std::string> parts) {
    ModelSpec s = good;
    change(s);
    expect_error([&] { check_spec(s); }, parts);
  };
  refuse([](ModelSpec& s) { s.positions = Positions::learned; }, {"positions", "recurrences have none"});
  refuse([](ModelSpec& s) { s.recurrence.encoder = kNone; }, {"positions", "cannot tell the order"});
  refuse([](ModelSpec& s) { s.architecture = Architecture::decoder, s.encoder_layers = 0; },
         {"recurrence", "encoder_decoder"});
  refuse([](ModelSpec& s) { s.width = 7; }, {"bidirectional", "even"});
  refuse([](ModelSpec& s) { s.recurrence.window = 0; }, {"local_window"});
  refuse([](ModelSpec& s) { s.width = 1000; }, {"dot", "576"});
  const auto mixed = [](ModelSpec& s) { s.positions = Positions::sinusoidal; };
  refuse([&](ModelSpec& s) { mixed(s), s.recurrence.decoder = kNone; }, {"source_attention", "decoder"});
  refuse([&](ModelSpec& s) { mixed(s), s.recurrence.encoder = kNone; }, {"bidirectional", "encoder"});
  refuse(
      [&](ModelSpec& s) {
        mixed(s), s.recurrence = {kNone, kLstm, false, SourceAttention::none, 1};
      },
      {"source_attention", "last state"});
  ModelSpec decoder = gpt2_spec(11, 12, 6, 1, 2);
  decoder.source_reversed = true;
  expect_error([&] { check_spec(decoder); }, {"reverse_source", "encoder_decoder"});
}

// A file of the version before recurrences has none.
TEST(RecurrentSpec, OlderFilesHaveNone) {
  const testing::ScratchDir dir;
  ModelSpec spec = gpt2_spec(11, 12, 6, 1, 2);
  spec.embedding_scaled = true;  // no other family of decoders has this
  Transformer model(spec);
  model.parameters().draw(1, DType::f32);
  save_model(dir.path(), model);
  Json config = parse_json(read_file(dir.path() + "/config.json"), "config.json");
  config["qkv"]["version"] = 3;
  for (const char* key :
       {"encoder", "decoder", "bidirectional", "source_attention", "local_window", "reverse_source"})
    EXPECT_EQ(config["qkv"].erase(key), 1u) << key;
  dir.write("config.json", config.dump());
  EXPECT_EQ(load_spec(dir.path()), spec);
}

}  // namespace
}  // namespace qkv::recurrent_test
