// Measures a mixer by itself at one length, with its projections: a forward pass, one with its gradients, and
// decoding one more token behind a text of that length. Prints
//   forward_ms step_ms decode_ms state_bytes peak_mb
// bench/mixer_cost.py draws the curves.
//
//   mixer_cost --mixer attention|linear_attention|... [--length 4096] [--width 384] [--heads 6] [--dtype
//   f32|bf16]
//              [--no-decode]
//
// Besides the names of model.mixer there are `hashed` (LSH attention in chunks of 64, two rounds), `window`
// (of 256 keys) and aft_full, aft_local, aft_simple and aft_conv.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "bench/measure.h"
#include "qkv/autograd/graph.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/parameter.h"

namespace qkv {
namespace {

struct Options {
  std::string mixer = "attention", dtype = "f32";
  int64_t length = 4096, width = 384, heads = 6;
  bool no_decode = false;
};

ModelSpec spec_of(const Options& o) {
  ModelSpec s = gpt2_spec(256, o.length + 64, o.width, 1, o.heads);
  s.positions = Positions::none;
  if (o.mixer == "attention") return s;
  if (o.mixer == "window") {
    s.attention.patterns = {{.window = 256}};
    return s;
  }
  if (o.mixer == "hashed") {
    s.attention.shared_query_key = {1};
    s.attention.hashing = {.chunk = 64, .rounds = 2, .buckets = usual_buckets(o.length, 64)};
    return s;
  }
  if (o.mixer.starts_with("aft_")) {
    AttentionFreeMixer m;
    m.form = from_name<AftForm>(o.mixer.substr(4));
    m.heads = o.heads;
    s.mixer = m;
  } else {
    s.mixer = MixerSpec::of(from_name<MixerKind>(o.mixer));
    if (o.mixer == "mamba2") {
      Mamba2Mixer m;
      m.head_width = 64, m.state = 64;
      s.mixer = m;
    }
    if (o.mixer == "linear_attention") {
      LinearAttentionMixer m;
      m.heads = o.heads, m.features = FeatureMap::elu, m.normalised = true;
      s.mixer = m;
    }
    if (o.mixer == "delta_rule") {
      DeltaRuleMixer m;
      m.heads = o.heads;
      s.mixer = m;
    }
    if (o.mixer == "random_features") {
      RandomFeaturesMixer m;
      m.heads = o.heads;
      s.mixer = m;
    }
    s.mixer.derive(o.width);
  }
  s.mixer.check(s);
  return s;
}

void run(const Options& o) {
  const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  const ModelSpec spec = spec_of(o);
  Parameters parameters;
  const std::string name = "mixer";
  const std::unique_ptr<Sublayer> mixer =
      spec.mixer.make({parameters, name, spec, Mask::causal(), 0, 1, {0.02F, 0.02F}});
  parameters.prepare_training(dtype, 1);
  const Tensor x = draw(o.length, o.width, 1, dtype), dy = draw(o.length, o.width, 2, dtype);
  Context context;
  context.layout = Layout::of({static_cast<int32_t>(o.length)});
  const double forward_ms = milliseconds([&] {
    const NoGrad guard;
    mixer->forward(x, context);
  });
  Tensor leaf = x.clone();
  const auto of_x = make_leaf(leaf, Tensor::zeros(x.shape(), DType::f32));
  const double step_ms = milliseconds([&] {
    parameters.reset_gradients();
    of_x->fresh = true;
    const Seed seed{mixer->forward(leaf, context), dy};
    backward(std::span(&seed, 1));
  });
  const double peak = peak_mb();
  double decode_ms = 0;
  int64_t bytes = 0;
  if (!o.no_decode) {
    const NoGrad guard;
    DecodingStates states;
    mixer->add_states(states, 1);
    context.states = &states;
    mixer->forward(x, context);
    for (const auto& state : states.all()) bytes += state->bytes();
    const Tensor one = x.slice_rows(0, 1);
    Context next = context;
    int64_t length = o.length;
    decode_ms = milliseconds([&] {  // the text grows by what was decoded before
      next.layout = Layout::of({1}, {static_cast<int32_t>(length++)});
      mixer->forward(one, next);
    });
  }
  fmt::print("{:.3f} {:.3f} {:.4f} {} {:.0f}\n", forward_ms, step_ms, decode_ms, bytes, peak);
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::Options o;
  CLI::App app("Measures a mixer at one length.");
  app.add_option("--mixer", o.mixer);
  app.add_option("--length", o.length);
  app.add_option("--width", o.width);
  app.add_option("--heads", o.heads);
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_flag("--no-decode", o.no_decode);
  CLI11_PARSE(app, argc, argv);
  try {
    qkv::run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "mixer_cost: {}\n", e.what());
    return 1;
  }
  return 0;
}
