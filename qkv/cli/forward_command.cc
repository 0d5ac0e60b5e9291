// qkv forward: exact, machine-readable scoring. Tensors in, tensors out, under the Hugging Face names.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "qkv/bridge/collector.h"
#include "qkv/bridge/forward_clip.h"
#include "qkv/bridge/forward_inputs.h"
#include "qkv/bridge/forward_router.h"
#include "qkv/bridge/padded_batch.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/model_notes.h"
#include "qkv/infer/beam.h"
#include "qkv/infer/generation_settings.h"
#include "qkv/io/model_dir.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

struct ForwardOptions {
  std::string dir, inputs, outputs, generate, dtype = "f32";
  bool hidden_states = false, attentions = false, gradients = false;
};

// [N, C] of one column as [B, T].
Tensor column(const PaddedBatch& b, const Tensor& x, int64_t c) {
  Tensor out = Tensor::zeros({b.rows, b.columns}, DType::f32);
  const auto to = out.mutable_values<float>();
  for (int64_t i = 0; i < std::ssize(b.places); ++i) to[b.places[i]] = x.row<float>(i)[c];
  return out;
}

using Named = std::vector<std::pair<std::string, Tensor>>;

// Adds the outputs of the model's head and returns the hidden states.
Tensor add_outputs(const Transformer& model, const Inputs& in, const Context& context, Named& out) {
  const ModelSpec& spec = model.spec();
  const Tensor hidden = model.hidden(in.input, context);
  const auto classes = [&] { return model.classes(hidden, in.input, context); };
  switch (spec.output) {
    case Output::tokens:
      out.emplace_back(spec.labels.empty() ? "logits" : "prediction_logits",
                       in.outputs().spread(model.logits(hidden)));
      if (!spec.labels.empty()) out.emplace_back("seq_relationship_logits", classes());
      break;
    case Output::sequence_classes:
      out.emplace_back("logits", classes());
      if (const int64_t questions = std::ssize(in.input.choices) - 1; questions > 0)
        out.back().second = out.back().second.reshape({questions, in.tokens.rows / questions});
      if (!spec.features.distilled) break;
      {
        auto [first, second] = model.distilled_classes(hidden, in.input);
        out.emplace_back("cls_logits", std::move(first));
        out.emplace_back("distillation_logits", std::move(second));
      }
      break;
    case Output::token_classes:
      out.emplace_back("logits",
                       spec.classes() == 1 ? column(in.tokens, classes(), 0) : in.tokens.spread(classes()));
      break;
    case Output::span:
      out.emplace_back("start_logits", column(in.tokens, classes(), 0));
      out.emplace_back("end_logits", column(in.tokens, classes(), 1));
      break;
    case Output::embedding:
      out.emplace_back("last_hidden_state", in.tokens.spread(convert(hidden, DType::f32)));
      out.emplace_back("pooler_output", convert(model.pooled(hidden, in.input), DType::f32));
      break;
  }
  return hidden;
}

// Numbers that are targets of sequences, from "labels": F32 [B, C], or [B] of one number.
Tensor read_numbers(const TensorFile& in, const Inputs& inputs, const ModelSpec& spec,
                    const std::string& path) {
  const Tensor& labels = in.tensors.at("labels");
  const int64_t rows = inputs.tokens.rows, columns = spec.classes();
  check(labels.dtype() == DType::f32 &&
            (labels.shape() == Shape{rows, columns} || (columns == 1 && labels.shape() == Shape{rows})),
        "{}: labels: expected F32 [{}, {}], got {} {}", path, rows, columns, name_of(labels.dtype()),
        labels.shape());
  const auto values = labels.values<float>();
  return Tensor::of({rows, columns}, std::vector<float>(values.begin(), values.end()));
}

// True if the targets of sequences are numbers.
bool has_numbers(const ModelSpec& spec) {
  return spec.problem == Problem::multi_label || spec.problem == Problem::regression;
}

// Targets of the model's output from "labels", or "start_positions" and "end_positions".
Indices read_targets(const TensorFile& in, const Inputs& inputs, const ModelSpec& spec,
                     const std::string& path) {
  const PaddedBatch& b = inputs.outputs();
  std::vector<int32_t> targets;
  const int64_t classes = spec.output == Output::tokens   ? spec.vocab_size
                          : spec.output == Output::span   ? b.columns
                          : !inputs.input.choices.empty() ? inputs.input.choices[1]
                                                          : spec.classes();
  const auto add = [&](int64_t label) {
    check(label == kIgnored || (label >= 0 && label < classes),
          "{}: labels: {} is neither -100 nor one of {}", path, label, classes);
    targets.push_back(static_cast<int32_t>(label));
  };
  if (spec.output == Output::span) {
    const auto starts = integers(in, "start_positions", path), ends = integers(in, "end_positions", path);
    check(std::ssize(starts) == b.rows && std::ssize(ends) == b.rows, "{}: start_positions: expected [{}]",
          path, b.rows);
    for (int64_t r = 0; r < b.rows; ++r) add(starts[r]), add(ends[r]);
    return {std::move(targets), 2};
  }
  if (has_numbers(spec)) return std::vector<int32_t>(static_cast<size_t>(b.rows));
  const auto labels = integers(in, "labels", path);
  const bool of_sequences = spec.output == Output::sequence_classes;
  const int64_t classified =
      spec.problem == Problem::multiple_choice ? std::ssize(inputs.input.choices) - 1 : b.rows;
  const Shape wanted = of_sequences ? Shape{classified} : Shape{b.rows, b.columns};
  check(in.tensors.at("labels").shape() == wanted, "{}: labels: expected {}, got {}", path, wanted,
        in.tensors.at("labels").shape());
  if (of_sequences) {
    for (const int64_t label : labels) add(label);
  } else {
    // Causal models shift labels inside: position t predicts labels[t + 1].
    const bool shifted = spec.architecture == Architecture::decoder && spec.output == Output::tokens;
    for (const int64_t place : b.places) {
      const bool last = (place + 1) % b.columns == 0;
      add(!shifted ? labels[place] : last ? kIgnored : labels[place + 1]);
    }
  }
  return targets;
}

// The settings that --generate gives.
struct Asked {
  GenerationSettings settings;
  bool searches = false;
  int64_t pad = 0, start = -1;
  bool start_given = false;
};

// The id of a token; empty for null.
std::optional<int32_t> id_of(const std::string& key, const std::string& value) {
  GenerationSettings one;
  GenerationField field = *find_generation_field("forced_eos_token_id");
  field.key = key.c_str();
  set_from_text(field, value, one);
  return one.drawing.rules.end;
}

Asked parse_generation(const std::string& text, const SpecialIds& defaults, int64_t vocab_size) {
  Asked a;
  GenerationSettings& s = a.settings;
  a.pad = defaults.pad >= 0 ? defaults.pad : defaults.eos.empty() ? 0 : defaults.eos[0];
  a.start = defaults.decoder_start >= 0 ? defaults.decoder_start : defaults.bos;
  s.drawing.eos.assign(defaults.eos.begin(), defaults.eos.end());
  s.search.beams = 1;
  bool draws = false;
  std::set<std::string> given;
  naming_option("--generate: ", [&] {
    given = set_from_list(
        text, s,
        [&](const std::string& key, const std::string& value) {
          if (key == "do_sample") {
            check(value == "true" || value == "false", "do_sample: expected true or false, got '{}'", value);
            draws = value == "true";
          } else if (key == "use_cache") {  // the same ids either way
            check(value == "true" || value == "false", "use_cache: expected true or false, got '{}'", value);
            s.drawing.cached = value == "true";
          } else if (key == "pad_token_id") {
            a.pad = id_of(key, value).value_or(0);
          } else if (key == "decoder_start_token_id") {
            a.start = id_of(key, value).value_or(-1);
          } else {
            return false;
          }
          return true;
        },
        "do_sample, use_cache, pad_token_id, decoder_start_token_id");
    check(!draws || s.search.beams == 1, "do_sample and num_beams exclude each other");
    a.searches = !draws && (asks_for_search(s, given) || s.returned > 1);
    check_acting(s, given, draws, a.searches, [&](const GenerationField& field, bool /*subject*/) {
      return fmt::format("{}={}", field.key, text_of(field, s));
    });
    if (!draws) s.drawing.sampler.temperature = 0;
    check_ids(s, given, vocab_size);
  });
  if (given.contains("max_new_tokens")) s.drawing.rules.max_length = 0;  // as in Hugging Face's library
  a.start_given = given.contains("decoder_start_token_id");
  return a;
}

// f32 [outputs, tokens after the first, columns of the source]; 0 where a row has no token.
Tensor attention_of(const std::vector<Hypothesis>& found, int64_t tokens, const PaddedBatch& source) {
  Tensor out = Tensor::zeros({std::ssize(found), tokens, source.columns}, DType::f32);
  const auto values = out.mutable_values<float>();
  const int64_t returned = std::ssize(found) / source.rows;
  const std::vector<int32_t> offsets = source.layout().offsets;
  for (int64_t i = 0; i < std::ssize(found); ++i) {
    const int64_t first = offsets[static_cast<size_t>(i / returned)];
    const auto& attention = found[i].attention;
    for (int64_t t = 0; t < std::min(std::ssize(attention), tokens); ++t)
      for (int64_t j = 0; j < std::ssize(attention[t]); ++j)
        // Padding may precede or follow a source.
        values[(i * tokens + t) * source.columns + source.places[first + j] % source.columns] =
            attention[t][j];
  }
  return out;
}

void run_generation(const ForwardOptions& o, const Transformer& model, const TensorFile& in,
                    const SpecialIds& ids) {
  const ModelSpec& spec = model.spec();
  check(spec.architecture != Architecture::encoder, "{}: an encoder does not generate", o.dir);
  expect_known_inputs(in, spec, o.inputs);
  const bool both = spec.architecture == Architecture::encoder_decoder;
  const Asked g = parse_generation(o.generate, ids, spec.vocab_size);
  if (g.start_given && !both)
    throw UsageError("--generate: decoder_start_token_id has no effect: a decoder goes on with input_ids");
  check(!g.start_given || g.start < spec.vocab_size,
        "--generate: decoder_start_token_id={}: the model has {} tokens", g.start, spec.vocab_size);
  // A language model keeps the last tokens of a sequence that outgrows the context, so its length has no
  // limit.
  Tensor features;
  const PaddedBatch batch =
      spec.features.any() ? read_frames(in, o.inputs, spec, features)
                          : read_padded(in, o.inputs, "input_ids", "attention_mask", spec.input_vocab_size(),
                                        both ? spec.encoder_spec().longest() : 0);
  check(batch.rows > 0, "{}: input_ids: there is no row", o.inputs);
  for (int64_t r = 0; r < batch.rows; ++r)
    check(batch.lengths[r] > 0, "{}: input_ids: row {} has no token to continue", o.inputs, r);
  const bool begun = both && in.tensors.contains("decoder_input_ids");
  check(!both || begun || (g.start >= 0 && g.start < spec.vocab_size),
        "{}: config.json names no token that decoding starts with (--generate decoder_start_token_id=N)",
        o.dir);
  const std::vector<std::vector<int32_t>> given = batch.sequences();
  std::vector<std::vector<int32_t>> start(given.size(), {static_cast<int32_t>(g.start)});
  if (begun) {
    const PaddedBatch first = read_padded(in, o.inputs, "decoder_input_ids", "decoder_attention_mask",
                                          spec.vocab_size, spec.longest());
    check(
        first.rows == batch.rows && std::ssize(first.ids) == first.rows * first.columns && first.columns > 0,
        "{}: decoder_input_ids: expected {} rows without padding", o.inputs, batch.rows);
    start = first.sequences();
  }
  auto prompts = both ? start : given;
  Sources sources(both ? given : std::vector<std::vector<int32_t>>{});
  sources.features = features;
  if (in.tensors.contains("global_attention_mask")) sources.globals = global_flags(in, o.inputs, batch);
  // Outputs, row by row.
  const int64_t returned = g.settings.returned;
  std::vector<Hypothesis> found;
  if (g.searches) {
    BeamOptions search = g.settings.search_options();
    check(!search.attention || !features.defined(),
          "--generate: output_attentions: sources of features have no tokens");
    if (search.prefix_bias > 0) {  // the given beginning is a preference then
      check(begun, "--generate: prefix_bias_beta has no effect without decoder_input_ids");
      for (std::vector<int32_t>& prompt : prompts) {
        search.wished.emplace_back(prompt.begin() + 1, prompt.end());
        prompt.resize(1);
      }
    }
    for (auto& best : beam_search(model, prompts, search, sources)) {
      // If fewer were found, the rest is empty and scores worst.
      best.resize(static_cast<size_t>(returned), {{}, 0, -std::numeric_limits<double>::infinity(), {}});
      std::ranges::move(best, std::back_inserter(found));
    }
  } else {
    std::vector<std::vector<int32_t>> each;
    Sources its_sources;
    its_sources.features = sources.features;
    check(returned == 1 || !sources.features.defined(),
          "--generate: num_return_sequences: features are read once for each output that is drawn");
    for (size_t r = 0; r < prompts.size(); ++r)
      for (int64_t k = 0; k < returned; ++k) {
        each.push_back(prompts[r]);
        if (both) its_sources.ids.push_back(sources.ids[r]);
        if (!sources.globals.empty()) its_sources.globals.push_back(sources.globals[r]);
      }
    for (auto& tokens : generate(model, each, g.settings.drawing, nullptr, its_sources))
      found.push_back({std::move(tokens)});
  }
  size_t longest = 0;
  for (const Hypothesis& h : found) longest = std::max(longest, h.tokens.size());
  const auto ids_in = both ? std::vector<int64_t>{} : integers(in, "input_ids", o.inputs);
  const int64_t before = both ? std::ssize(prompts[0]) : batch.columns;
  const std::vector<int32_t>& ends = g.settings.drawing.eos;
  const bool with_ends =
      g.searches && family_for(model.spec()).fills_with_ends && g.pad == 0 && !ends.empty();
  const int64_t fill = with_ends ? ends[0] : g.pad;
  std::vector<int64_t> sequences;
  std::vector<float> scores;
  for (size_t i = 0; i < found.size(); ++i) {
    const auto r = static_cast<int64_t>(i) / returned;
    if (both)
      sequences.insert(sequences.end(), prompts[r].begin(), prompts[r].end());
    else
      sequences.insert(sequences.end(), ids_in.begin() + r * batch.columns,
                       ids_in.begin() + (r + 1) * batch.columns);
    sequences.insert(sequences.end(), found[i].tokens.begin(), found[i].tokens.end());
    sequences.insert(sequences.end(), longest - found[i].tokens.size(), fill);
    scores.push_back(static_cast<float>(found[i].score));
  }
  const int64_t rows = std::ssize(found);
  Named out = {{"sequences", Tensor::of({rows, before + static_cast<int64_t>(longest)}, sequences)}};
  if (g.searches) out.emplace_back("sequences_scores", Tensor::of({rows}, scores));
  if (g.settings.search.attention)
    out.emplace_back("cross_attentions",
                     attention_of(found, before + static_cast<int64_t>(longest) - 1, batch));
  write_safetensors(o.outputs, out);
}

void add_training(const ForwardOptions& o, Transformer& model, const TensorFile& in, const Inputs& inputs,
                  DType compute, Named& out) {
  const Indices targets = read_targets(in, inputs, model.spec(), o.inputs);
  int64_t count = 0;
  for (const int32_t t : targets.values()) count += t != kIgnored;
  if (model.spec().output == Output::span) count /= 2;
  check(count > 0, "{}: labels: every label is -100: there is no loss", o.inputs);
  if (o.gradients) {
    model.parameters().prepare_training(compute, 0);
    model.parameters().reset_gradients();
  }
  ModelInput input = inputs.input;
  if (has_numbers(model.spec())) input.sequence_numbers = read_numbers(in, inputs, model.spec(), o.inputs);
  const CrossEntropyResult r = model.loss(input, targets, {}, 1 / static_cast<float>(count));
  out.emplace_back("loss", r.loss);
  if (!o.gradients) return;
  backward(r.loss);
  model.parameters().complete_gradients();
  for (auto& [name, grad] : named_tensors(model, [](const Parameter& p) { return p.leaf->grad; }))
    if (!name.starts_with("rotations.")) out.emplace_back("grad." + name, grad);  // no gradient moves them
}

void run_forward(const ForwardOptions& o) {
  const DType compute = compute_type(o.dtype);
  const std::string dir = resolve_model_dir(o.dir);
  if (is_clip_dir(dir)) {
    if (o.gradients || !o.generate.empty())
      throw UsageError(
          "--gradients, --generate: CLIP compares texts and images, it neither writes nor is trained");
    return write_safetensors(o.outputs, forward_clip(dir, read_safetensors(o.inputs), o.inputs, compute,
                                                     o.hidden_states, o.attentions));
  }
  const auto model = load_model(dir, compute);
  print_model_notes(dir, *model);
  const SpecialIds ids = load_special_ids(dir);
  int64_t choices = 0;
  TensorFile in = read_safetensors(o.inputs);
  take_rotations(in, *model, o.inputs);
  if (model->spec().problem == Problem::multiple_choice) in = with_rows_of_choices(in, o.inputs, choices);
  if (!o.generate.empty()) {
    for (const auto& [option, given] : {std::pair("--hidden-states", o.hidden_states),
                                        {"--attentions", o.attentions},
                                        {"--gradients", o.gradients}})
      if (given) throw UsageError(fmt::format("{}: has no effect with --generate, which writes ids", option));
    return run_generation(o, *model, in, ids);
  }

  Inputs inputs = read_inputs(in, o.inputs, model->spec(), ids);
  for (int64_t row = 0; choices > 0 && row <= inputs.tokens.rows; row += choices)
    inputs.input.choices.push_back(static_cast<int32_t>(row));
  Context context;
  Collector collector(model->spec(), inputs, o.hidden_states, o.attentions);
  context.probe = &collector;
  Named out;
  {
    const NoGrad guard;
    const Tensor hidden = add_outputs(*model, inputs, context, out);
    const ModelSpec& spec = model->spec();
    if (o.hidden_states && spec.output == Output::tokens && spec.embedding_width > 0 &&
        spec.head_width == 0) {  // the unembedding reads the last state
      const bool both = spec.architecture == Architecture::encoder_decoder;
      collector.found[fmt::format("{}hidden_states.{}", both ? "decoder_" : "", spec.layers)] =
          inputs.tokens.spread(convert(model->projected(hidden), DType::f32));
    }
    if (o.hidden_states && spec.experts_in_use().count > 0) {
      Named routers = router_outputs(*model, in, o.inputs, inputs);
      out.insert(out.end(), routers.begin(), routers.end());
    }
  }
  for (const auto& [name, tensor] : collector.found) out.emplace_back(name, tensor);
  if (in.tensors.contains("labels") || in.tensors.contains("start_positions"))
    add_training(o, *model, in, inputs, compute, out);
  else
    check(!o.gradients, "{}: labels: missing (--gradients needs them)", o.inputs);
  write_safetensors(o.outputs, out);
}

}  // namespace

void add_forward_command(Command& app) {
  auto o = std::make_shared<ForwardOptions>();
  Command* c = app.add_subcommand("forward", "Run a model on tensors: safetensors in, safetensors out");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  c->add_option("--inputs", o->inputs,
                "Safetensors file with input_ids [B, T] and other inputs by Hugging Face's names (see below)")
      ->required();
  c->add_option("--outputs", o->outputs,
                "Safetensors file to write: logits, loss, hidden_states.N, attentions.N, grad.NAME or "
                "sequences; encoder_hidden_states.N etc. for encoder-decoders")
      ->required();
  c->add_flag("--hidden-states", o->hidden_states,
              "Also write hidden_states.N (with experts also router_logits.N and aux_loss)");
  c->add_flag("--attentions", o->attentions,
              "Also write attentions.N, the probabilities of the layers that attend, in turn");
  c->add_flag("--gradients", o->gradients,
              "Also write grad.NAME, the gradient of the loss by each parameter");
  c->add_option(
      "--generate", o->generate,
      "Generate: max_new_tokens=N,num_beams=N,... (separate ids of a list by spaces, lists of ids by |)");
  c->add_option("--dtype", o->dtype, "Precision of matrix products: f32 or bf16")->one_of({"f32", "bf16"});
  c->footer(
      "Inputs: attention_mask (1 = real; or [B, T, T], 1 where the row's token sees the column's), labels "
      "(-100 = ignored), token_type_ids,\n"
      "global_attention_mask (1 = sees all tokens), decoder_input_ids for encoder-decoders (in place of "
      "input_ids:\n"
      "encoder_hidden_states [B, S, D], and encoder_value_states where cross-attention's values have "
      "others),\n"
      "rotations.N [heads, d, rounds, columns] by which layer N hashes (Reformer), in place of the model's "
      "own,\n"
      "pixel_values [B, C, H, W] for images, input_features [B, C, T] for spectrograms. A model of multiple\n"
      "choice reads [B, C, T]: C choices for each question, with labels [B].\n"
      "qkv forward reads rows as Hugging Face's models read a padded batch: with rotary_scaling dynamic or\n"
      "longrope, the longest row decides for all rows. All other commands look at each sequence alone.\n"
      "Example: qkv forward models/gpt2 --inputs in.safetensors --outputs out.safetensors --hidden-states");
  c->callback([o] { run_forward(*o); });
}

}  // namespace qkv
