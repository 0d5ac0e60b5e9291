// qkv trace: what a model computes from a text, value by value.
#include "qkv/cli/trace_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

#include "qkv/api/text_model.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/bridge/forward_inputs.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/model_notes.h"
#include "qkv/cli/trace_heads.h"
#include "qkv/cli/trace_questions.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/models/feature_embedding.h"
#include "qkv/text/unicode.h"
#include "qkv/trace/example.h"
#include "qkv/trace/lens.h"
#include "qkv/trace/page.h"
#include "qkv/trace/step.h"
#include "qkv/trace/trace.h"
#include "qkv/trace/walk.h"

namespace qkv {
namespace {

constexpr int64_t kOwnTarget = 24;  // most tokens that a model writes itself to be traced

// "0,2-4" -> 0 2 3 4, each below `count`.
std::vector<int64_t> numbers_of(const std::string& text, const char* option, const char* of, int64_t count) {
  std::vector<int64_t> out;
  const auto refuse = [&] {
    throw UsageError(
        fmt::format("{}: expected {} from 0 to {}, like 0,2-4, got '{}'", option, of, count - 1, text));
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int64_t first = -1, last = -1;
    const char *at = text.data() + begin, *stop = text.data() + end;
    auto parsed = std::from_chars(at, stop, first);
    last = first;
    if (parsed.ec == std::errc() && parsed.ptr < stop && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, stop, last);
    if (parsed.ec != std::errc() || parsed.ptr != stop || first < 0 || last < first || last >= count)
      refuse();
    for (int64_t i = first; i <= last; ++i) out.push_back(i);
    begin = end + 1;
  }
  return out;
}

std::vector<int32_t> parse_ids(const std::string& text, const char* option, int64_t vocab) {
  std::vector<int32_t> out;
  const char *at = text.data(), *end = text.data() + text.size();
  while (at < end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto parsed = std::from_chars(at, end, id);
    if (parsed.ec != std::errc() || id < 0 || id >= vocab)
      throw UsageError(fmt::format("{}: expected ids from 0 to {} with spaces between them, got '{}'", option,
                                   vocab - 1, text));
    out.push_back(id);
    at = parsed.ptr;
  }
  if (out.empty()) throw UsageError(fmt::format("{}: expected at least one id", option));
  return out;
}

void expect_length(size_t tokens, int64_t longest, const char* option) {
  check(static_cast<int64_t>(tokens) <= longest, "{}: {} tokens, but the model reads at most {}", option,
        tokens, longest);
}

// The source of an encoder-decoder, and its decoder's tokens.
struct SourceAndTarget {
  std::vector<int32_t> source, target;
};

SourceAndTarget read_both(const TraceOptions& o, const TracedModel& m, const std::string& given_text) {
  const ModelSpec& spec = m.model().spec();
  if (!o.ids.empty()) {
    if (o.target_ids.empty())
      throw UsageError(
          "--target-ids: expected the ids that the decoder reads: an encoder-decoder needs both");
    return {parse_ids(given_text, "--ids", spec.input_vocab_size()),
            parse_ids(o.target_ids, "--target-ids", spec.vocab_size)};
  }
  const SequenceModel s = sequence_model(*m.text, o.dir);
  std::vector<int32_t> begin = s.ends.target_begin;
  if (o.given("--target"))
    for (const text::TokenId id : s.tokenizer.encode(o.target, false).ids)
      begin.push_back(static_cast<int32_t>(id));
  const auto source = s.tokenizer.of_sources().encode(given_text, false).ids;
  Prompts given = prompts_for(spec, {{source.begin(), source.end()}}, s.ends, {begin});
  SourceAndTarget out{given.sources[0], given.prompts[0]};
  if (o.given("--target")) return out;
  GenerateOptions options = m.text->generation.drawing;
  options.sampler.temperature = 0;
  options.eos = {s.ends.eos};
  options.max_new_tokens = std::min(kOwnTarget, spec.longest() - std::ssize(out.target));
  const auto written = generate(m.model(), {out.target}, options, nullptr, Sources({out.source}));
  out.target.insert(out.target.end(), written[0].begin(), written[0].end());
  return out;
}

}  // namespace

std::string TracedModel::piece(int64_t id) const {
  if (!text) return std::to_string(id);
  const auto token = text->tokenizer.id_to_token(static_cast<text::TokenId>(id));
  if (!token) return std::to_string(id);
  const std::vector<text::TokenId> one = {static_cast<text::TokenId>(id)};
  const std::string plain = text->tokenizer.decode(one);
  const bool whole = !plain.empty() && plain.find(text::kReplacementCharacter) == std::string::npos &&
                     text::find_invalid_utf8(plain) >= plain.size();
  return shown_piece(whole ? plain : *token);
}

std::vector<std::string> TracedModel::pieces(std::span<const int32_t> ids) const {
  std::vector<std::string> out;
  for (const int32_t id : ids) out.push_back(piece(id));
  return out;
}

int32_t TracedModel::token(const std::string& given, const std::string& before, const char* option) const {
  constexpr std::string_view kId = "id:";
  const int64_t vocab = model().spec().vocab_size;
  const auto only = [&](const std::vector<int32_t>& ids) {
    if (ids.size() != 1)
      throw UsageError(fmt::format("{}: '{}' is {} tokens ({}): name one, or its id as id:N", option, given,
                                   ids.size(), fmt::join(pieces(ids), " ")));
    return ids[0];
  };
  if (given.starts_with(kId)) return only(parse_ids(given.substr(kId.size()), option, vocab));
  if (!text) return only(parse_ids(given, option, vocab));
  const auto encoded = [&](const std::string& x) {
    const auto ids = text->tokenizer.encode(x, false).ids;
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  // As it goes on behind the text: some tokenizers put a space before a text, or none inside words.
  const std::vector<int32_t> first = encoded(before), both = encoded(before + given);
  const bool goes_on =
      both.size() == first.size() + 1 && std::equal(first.begin(), first.end(), both.begin());
  const int32_t id = goes_on ? both.back() : only(encoded(given));
  if (id == text->tokenizer.unknown())
    throw UsageError(
        fmt::format("{}: '{}' is no token of the vocabulary (id:N names one by its id)", option, given));
  return id;
}

std::optional<int32_t> TracedModel::mask_token() const {
  for (const char* mask : {"[MASK]", "<mask>"})
    if (const auto id = text ? text->tokenizer.token_to_id(mask) : std::nullopt)
      return static_cast<int32_t>(*id);
  return std::nullopt;
}

std::string TracedModel::answer_name(int64_t column) const {
  const ModelSpec& spec = model().spec();
  if (spec.output == Output::tokens) return piece(column);
  return column < std::ssize(spec.labels) ? spec.labels[static_cast<size_t>(column)] : std::to_string(column);
}

int64_t TracedModel::answer(const std::string& name, const std::string& before, const char* option) const {
  const ModelSpec& spec = model().spec();
  if (spec.output == Output::tokens) return token(name, before, option);
  std::vector<std::string> names;
  for (int64_t c = 0; c < spec.classes(); ++c) {
    names.push_back(answer_name(c));
    if (names.back() == name) return c;
  }
  for (int64_t c = 0; c < spec.classes(); ++c)
    if (std::to_string(c) == name) return c;
  throw UsageError(fmt::format("{}: expected one of {}, got '{}'", option, fmt::join(names, ", "), name));
}

namespace {

// The names of tokens, and of features by their places.
std::vector<std::string> names_of_rows(const std::vector<int32_t>& ids, const char* feature) {
  std::vector<std::string> out;
  int64_t features = 0;
  for (const int32_t id : ids)
    out.push_back(id == kFeature ? fmt::format("{} {}", feature, features++) : std::to_string(id));
  return out;
}

}  // namespace

ModelInput input_of_file(const TraceOptions& o, const TracedModel& m, WalkLabels& labels) {
  const ModelSpec& spec = m.model().spec();
  check(spec.problem != Problem::multiple_choice,
        "--inputs: not of multiple choice, which reads several texts");
  const Inputs read =
      read_inputs(read_safetensors(o.inputs), o.inputs, spec, load_special_ids(resolve_model_dir(o.dir)));
  check(read.tokens.rows == 1 && read.tokens.lengths[0] > 0,
        "{}: trace reads one sequence at a time, got {} rows (a batch of 1)", o.inputs, read.tokens.rows);
  const bool patches = spec.features.kind == FeatureSpec::Kind::patches;
  labels.ids = read.tokens.ids;
  labels.tokens = names_of_rows(labels.ids, patches ? "patch" : "frame");
  if (read.source.rows > 0) {
    labels.source_ids = read.source.ids;
    labels.source = names_of_rows(labels.source_ids, "frame");
  }
  labels.piece = [&m](int64_t id) { return m.piece(id); };
  labels.classes = spec.labels;
  return read.input;
}

ModelInput traced_input(const TraceOptions& o, const TracedModel& m, const std::string& given_text,
                        WalkLabels& labels) {
  const ModelSpec& spec = m.model().spec();
  ModelInput input;
  std::vector<int32_t> ids, segments;
  if (spec.architecture == Architecture::encoder_decoder) {
    SourceAndTarget both = read_both(o, m, given_text);
    expect_length(both.source.size(), spec.encoder_spec().longest(), "--text");
    labels.source_ids = both.source;
    if (spec.source_reversed) std::ranges::reverse(labels.source_ids);  // the order in which it is read
    labels.source = m.pieces(labels.source_ids);
    input.source_layout = Layout::of({static_cast<int32_t>(both.source.size())});
    input.source = std::move(both.source);
    ids = std::move(both.target);
  } else if (!o.ids.empty()) {
    ids = parse_ids(given_text, "--ids", spec.input_vocab_size());
  } else if (spec.architecture == Architecture::decoder && spec.output == Output::tokens) {
    ids = prompt_ids(*m.text, given_text);
  } else {
    const EncodedText text = encode_text({given_text, o.second}, m.text->tokenizer, spec);
    check(!text.cut, "--text: it is longer than the model's {} tokens", spec.context);
    ids.assign(text.encoding.ids.begin(), text.encoding.ids.end());
    segments.assign(text.encoding.type_ids.begin(), text.encoding.type_ids.end());
  }
  expect_length(ids.size(), spec.longest(), input.source.defined() ? "--target" : "--text");
  labels.ids = ids;
  labels.tokens = m.pieces(ids);
  labels.piece = [&m](int64_t id) { return m.piece(id); };
  labels.classes = spec.labels;
  input.layout = Layout::of({static_cast<int32_t>(ids.size())});
  if (!segments.empty()) input.segments = std::move(segments);
  if (spec.order == Order::prefix) {  // the text is a prompt, whose tokens see each other
    const std::vector<int32_t> prefixes = {static_cast<int32_t>(ids.size())};
    input.visibility = prefix_ranks(input.layout, prefixes);
  }
  input.ids = std::move(ids);
  return input;
}

namespace {

// The values of a tensor's rows as nested lists; infinities, which JSON lacks, are null.
OrderedJson json_of(const Tensor& x) {
  const auto json_of_rows = [&](int64_t begin, int64_t end) {
    OrderedJson rows = OrderedJson::array();
    for (int64_t r = begin; r < end; ++r) {
      OrderedJson row = OrderedJson::array();
      for (const float v : x.row<float>(r))
        row.push_back(std::isfinite(v) ? OrderedJson(v) : OrderedJson(nullptr));
      rows.push_back(std::move(row));
    }
    return rows;
  };
  if (x.shape().rank() < 3) return json_of_rows(0, x.rows());
  OrderedJson heads = OrderedJson::array();
  for (int64_t h = 0; h < x.dim(0); ++h) heads.push_back(json_of_rows(h * x.dim(1), (h + 1) * x.dim(1)));
  return heads;
}

Tensor tensor_of(const TracedValue& value) {
  return value.heads.empty() ? value.rows : value.of_heads();
}

}  // namespace

void print_json(const OrderedJson& json) {
  print(json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

void write_picture(const TraceOptions& o, const std::vector<Panel>& panels) {
  check(!panels.empty(), "--picture: there is nothing to draw");
  write_file_atomically(o.picture, draw_panels(panels));
  fmt::print(stderr, "{}: {}\n", o.picture, counted(std::ssize(panels), "panel"));
}

namespace {

OrderedJson trace_json(const TraceOptions& o, const ModelSpec& spec, const ModelInput& input,
                       const WalkLabels& labels, const Trace& trace) {
  const auto tokens = [](const std::vector<int32_t>& ids, const std::vector<std::string>& pieces) {
    OrderedJson out = OrderedJson::array();
    for (size_t t = 0; t < pieces.size(); ++t) out.push_back({{"id", ids[t]}, {"piece", pieces[t]}});
    return out;
  };
  OrderedJson out = {{"model", o.dir}, {"algorithm", algorithm_of(spec)}};
  if (input.source.defined()) out["source"] = tokens(labels.source_ids, labels.source);
  out["tokens"] = tokens(labels.ids, labels.tokens);
  out["values"] = OrderedJson::array();
  for (const TracedValue& value : trace.values()) {
    if (!is_chosen(spec, value, o.walk)) continue;
    const Step step = step_of(spec, value.name);
    const Tensor x = tensor_of(value);
    OrderedJson one = {{"name", value.name}, {"words", step.words}};
    if (!step.formula.empty()) one["formula"] = step.formula;
    if (!step.where.empty()) one["where"] = step.where;
    for (int64_t i = 0; i < x.shape().rank(); ++i) one["shape"].push_back(x.dim(i));
    one["values"] = json_of(x);
    out["values"].push_back(std::move(one));
  }
  return out;
}

std::string head_text(const ModelSpec& spec, const ModelInput& input, const WalkLabels& labels) {
  std::string out = fmt::format("{}: ", algorithm_of(spec));
  if (input.source.defined()) out += fmt::format("{} source tokens, ", labels.source.size());
  out += fmt::format("{} tokens, L = {}, ", labels.tokens.size(), spec.layers);
  if (spec.any_attends()) out += fmt::format("H = {}, ", spec.attention.heads);
  out += fmt::format("d_e = {}\n", spec.width);
  const auto line = [&](const char* name, const std::vector<int32_t>& ids,
                        const std::vector<std::string>& pieces) {
    out += fmt::format("\n{}:", name);
    for (size_t t = 0; t < pieces.size(); ++t) {
      const std::string id = std::to_string(ids[t]);
      out += pieces[t] == id ? "  " + id : fmt::format("  {} {}", id, pieces[t]);
    }
    out += "\n";
  };
  if (input.source.defined()) line("z, the source", labels.source_ids, labels.source);
  line(input.source.defined() ? "x, the target" : "x", labels.ids, labels.tokens);
  return out;
}

// The worked example, table by table.
void print_example(const TraceOptions& o) {
  OrderedJson json = OrderedJson::array();
  std::string out =
      "The slides \"Step-by-step calculation of the transformer architecture\", with their numbers.\n"
      "A token is a row here, and weights stand right of what they act on.\n";
  for (const ExampleTable& t : worked_example()) {
    out += fmt::format("\nStep {}, {}:  {}\n", t.step, t.title, t.formula);
    std::vector<std::vector<std::string>> cells;
    if (!t.columns.empty()) {
      cells.push_back({""});
      cells.back().insert(cells.back().end(), t.columns.begin(), t.columns.end());
    }
    OrderedJson values = OrderedJson::array();
    for (size_t r = 0; r < t.values.size(); ++r) {
      cells.push_back({t.rows[r]});
      values.push_back(OrderedJson::array());
      for (const double v : t.values[r]) {
        cells.back().push_back(std::isinf(v) ? "-inf" : fmt::format("{:.{}f}", v, t.digits));
        values.back().push_back(std::isinf(v) ? OrderedJson(nullptr) : OrderedJson(v));
      }
    }
    out += table_text(cells);
    if (!t.note.empty()) out += "Note: " + t.note + "\n";
    json.push_back({{"step", t.step},
                    {"title", t.title},
                    {"formula", t.formula},
                    {"key", t.key},
                    {"rows", t.rows},
                    {"values", values}});
    if (!t.note.empty()) json.back()["note"] = t.note;
  }
  o.json ? print_json(json) : print(out);
}

// Throws UsageError for an option that says nothing here.
void expect_acting_options(const TraceOptions& o, const ModelSpec& spec) {
  struct Need {
    const char *option, *of;
    bool there;
  };
  const bool both = spec.architecture == Architecture::encoder_decoder, asks = o.asks(),
             page = !o.page.empty();
  const bool pairs = !both && (spec.architecture == Architecture::encoder || spec.output != Output::tokens);
  const bool changes = !o.ablate.empty() || !o.add.empty();
  const bool walk = !asks && !page, asks_of = o.attributes || o.saliency || !o.patch_from.empty();
  const Need needs[] = {
      {"--by", "--ablate", !o.ablate.empty()},
      {"--sweep", "--patch-from", !o.patch_from.empty()},
      {"--estimate", "--patch-from", !o.patch_from.empty()},
      {"--instead", "--why, --saliency or --patch-from", asks_of},
      {"--of", "--why, --saliency or --patch-from", asks_of},
      {"--steps", "--saliency", o.saliency},
      {"--baseline", "--saliency and --steps above 0", o.saliency && o.steps > 0},
      {"--best", "the walk as text or picture, --ablate or --add",
       (walk && !o.json && o.out.empty()) || changes},
      {"--minus", "--add", !o.add.empty()},
      {"--at", "--add", !o.add.empty()},
      {"--times", "--add", !o.add.empty()},
      {"--write", "--ablate or --add", changes},
      {"--seed", "--by resample or --roles", o.by == "resample"},
      {"--limit", "--roles or --fit-lens", false},
      {"--tuned", "--lens or --page", o.lens || page},
      {"--second", "a model that reads pairs of texts", pairs && o.given("--text")},
      {"--target-ids", "--ids", !o.ids.empty()},
      {"--target", "--text", o.given("--text")},
      {"--write", "--text or --ids", o.inputs.empty()},
      {"--patch-from", "--text or --ids", o.inputs.empty()},
      {"--add", "--text or --ids", o.inputs.empty()},
      {"--values", "the walk", walk},
      {"--layers", "the walk", walk},
      {"--heads", "the walk as text or picture", walk && !o.json && o.out.empty()},
      {"--heat", "the walk as text", walk && !o.json && o.out.empty() && o.picture.empty()},
      {"--columns", "the walk as text or picture", walk && !o.json && o.out.empty()},
      {"--precision", "the walk as text", walk && !o.json && o.out.empty() && o.picture.empty()},
      {"--tokens", "the walk as text, or a question", asks || (walk && !o.json && o.out.empty())}};
  for (const Need& need : needs)
    if (o.given(need.option) && !need.there)
      throw UsageError(fmt::format("{}: has no effect here, only with {}", need.option, need.of));
}

// Throws UsageError for an option that was given an empty value: a script's unset variable, most likely.
void expect_values(const TraceOptions& o) {
  const std::pair<const char*, const std::string*> options[] = {
      {"--target", &o.target},     {"--second", &o.second},         {"--ids", &o.ids},
      {"--inputs", &o.inputs},     {"--target-ids", &o.target_ids}, {"--out", &o.out},
      {"--page", &o.page},         {"--picture", &o.picture},       {"--layers", &o.layers},
      {"--heads", &o.heads},       {"--tokens", &o.tokens},         {"--of", &o.of},
      {"--instead", &o.instead},   {"--baseline", &o.baseline},     {"--patch-from", &o.patch_from},
      {"--add", &o.add},           {"--minus", &o.minus},           {"--roles", &o.roles},
      {"--relation", &o.relation}, {"--fit-lens", &o.fit_lens},     {"--tuned", &o.tuned}};
  for (const auto& [option, value] : options)
    if (o.given(option) && value->empty() && option != std::string_view("--target"))
      throw UsageError(fmt::format("{}: expected a value, it is empty", option));
}

// Questions about the model itself, or about the texts of a file.
void run_without_text(const TraceOptions& o) {
  const bool roles = o.given("--roles"), fits = o.given("--fit-lens");
  if (o.circuits + roles + fits > 1)
    throw UsageError("--circuits, --roles, --fit-lens: one question at a time");
  if (o.given("--relation") && !roles)
    throw UsageError("--relation: expected a treebank whose words it relates: --roles FILE.conllu");
  const char* asked = roles ? "--roles" : fits ? "--fit-lens" : "--circuits";
  std::set<std::string> known = {"DIR", asked, "--json", "--dtype"};
  if (fits) known.insert({"--limit", "--out"});
  if (roles) known.insert({"--relation", "--limit"});
  if (o.circuits || (roles && o.relation.empty())) known.insert("--picture");
  if (roles && o.relation.empty()) known.insert("--seed");
  if (!fits && !o.json && o.picture.empty() && (o.circuits || !o.relation.empty())) known.insert("--best");
  for (const std::string& option : o.all_given())
    if (!known.contains(option))
      throw UsageError(
          fmt::format("{}: has no effect with {}", option, o.relation.empty() ? asked : "--relation"));
  TracedModel m;
  if (o.circuits) {
    m.alone = load_model(resolve_model_dir(o.dir), compute_type(o.dtype));
    return answer_circuits(o, m);
  }
  m.text = load(o.dir, compute_type(o.dtype));
  if (fits) return answer_fit_lens(o, m);
  return o.relation.empty() ? answer_roles(o, m) : answer_relation(o, m);
}

void run_trace(TraceOptions o) {
  if (o.example) {
    for (const std::string& option : o.all_given())
      if (option != "--example" && option != "--json")
        throw UsageError(
            option == "DIR"
                ? "--example: has its own numbers, and needs no model"
                : fmt::format("{}: has no effect with --example, which has its own numbers", option));
    return print_example(o);
  }
  if (o.dir.empty())
    throw UsageError("DIR: expected a model directory or a run before the options (or --example)");
  if (o.given("--picture") && (o.json || o.given("--out") || o.given("--page")))
    throw UsageError("--picture: takes the place of --json, --out and --page");
  expect_values(o);
  if (o.reads_no_text()) return run_without_text(o);
  const bool by_file = !o.inputs.empty(), by_ids = !o.ids.empty() || by_file;
  const int sources = by_file + !o.ids.empty() + o.given("--text");
  if (sources != 1)
    throw UsageError(sources > 1 ? "--text, --ids, --inputs: each takes the others' place, give one of them"
                                 : "--text: expected a text (or --ids, or --inputs)");
  TracedModel m;
  const DType compute = compute_type(o.dtype);
  if (by_ids)
    m.alone = load_model(resolve_model_dir(o.dir), compute);
  else
    m.text = load(o.dir, compute);
  print_model_notes(o.dir, m.model());
  const ModelSpec& spec = m.model().spec();
  check(by_file || !spec.features.any(), "{}: it reads images or spectrograms: give them as --inputs", o.dir);
  check(spec.order != Order::permuted, "{}: its order of tokens is permuted, which trace does not show yet",
        o.dir);
  const bool both = spec.architecture == Architecture::encoder_decoder;
  if (!both)
    for (const char* option : {"--target", "--target-ids"})
      if (o.given(option))
        throw UsageError(fmt::format("{}: of encoder-decoders, which {} is not", option, o.dir));
  WalkLabels labels;
  const std::string given = by_ids ? o.ids : o.text;
  const ModelInput input = by_file ? input_of_file(o, m, labels) : traced_input(o, m, given, labels);
  o.walk.layers =
      numbers_of(o.layers, "--layers", "blocks", std::max(spec.layers, both ? spec.encoder_layers : 0));
  o.walk.heads = numbers_of(o.heads, "--heads", "heads", spec.attention.heads);
  o.walk.tokens = numbers_of(o.tokens, "--tokens", "tokens", std::ssize(labels.tokens));
  expect_acting_options(o, spec);
  if (!o.tuned.empty() && !has_lens(spec))
    throw UsageError("--tuned: of models of tokens whose blocks add to one stream");
  if (!o.page.empty()) {
    if (o.asks() || o.json || !o.out.empty())
      throw UsageError(
          "--page: shows all of it, without --lens, --why, --saliency, --ablate, --add, --patch-from, --json "
          "and --out");
    write_file_atomically(o.page,
                          trace_page(m.model(), input, labels, o.dir, by_file ? o.inputs : given, o.tuned));
    fmt::print(stderr, "{}: open it in a browser\n", o.page);
    return;
  }
  if (o.asks()) return answer_trace_questions(o, m, input, labels);
  Trace trace(o.values.empty() ? std::vector<std::string>{"*"} : o.values);
  run_traced(m.model(), input, trace);
  check(!trace.values().empty(), "--values: no value has a name like '{}'", fmt::join(o.values, ", "));
  if (!o.picture.empty()) {
    if (!o.given("--columns")) o.walk.columns = 0;  // a picture has room for all
    return write_picture(o, panels_of(spec, trace, labels, o.walk));
  }
  if (!o.out.empty()) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const TracedValue& value : trace.values())
      if (is_chosen(spec, value, o.walk)) tensors.emplace_back(value.name, tensor_of(value));
    check(!tensors.empty(), "--layers: none of these blocks has a value like '{}'",
          fmt::join(o.values, ", "));
    write_safetensors(o.out, tensors);
    fmt::print(stderr, "{}: {} values\n", o.out, tensors.size());
  }
  if (o.json)
    print_json(trace_json(o, spec, input, labels, trace));
  else if (o.out.empty())
    print(head_text(spec, input, labels) + walk_text(spec, trace, labels, o.walk));
}

}  // namespace

void add_trace_command(Command& app) {
  auto o = std::make_shared<TraceOptions>();
  Command* c = app.add_subcommand("trace", "Show what a model computes from a text, in the paper's symbols");
  c->add_option("DIR", o->dir, "Model directory or run");
  c->add_option("--text", o->text, "Text that the model reads (the source of an encoder-decoder)");
  c->add_option("--second", o->second, "Second text of a pair");
  c->add_option(
      "--target", o->target,
      "Text that an encoder-decoder's decoder reads (default: up to 24 tokens that it writes itself)");
  c->add_option("--ids", o->ids, "Token ids in place of --text");
  c->add_option(
      "--inputs", o->inputs,
      "Safetensors file with one sequence of inputs, as qkv forward reads them: images, spectrograms, masks");
  c->add_option("--target-ids", o->target_ids, "Token ids in place of --target");
  c->add_option("--values", o->values,
                "Names of the values to show, * for any characters: '*.attention.*,logits'")
      ->delimiter(',');
  c->add_option("--layers", o->layers, "Blocks to show, from 0: 0,2-4 (default: all)");
  c->add_option("--heads", o->heads, "Heads to show, from 0 (default: all)");
  c->add_option("--tokens", o->tokens, "Tokens whose rows to show, from 0 (default: all)");
  c->add_option("--precision", o->walk.precision, "Digits behind the point")->show_default()->range(0, 9);
  c->add_option("--columns", o->walk.columns, "Most numbers in a row (0: all)")
      ->show_default()
      ->range(0, 1 << 20);
  c->add_option("--best", o->walk.best, "Likeliest tokens to show")->show_default()->range(1, 1 << 20);
  c->add_flag("--heat", o->walk.heat, "Show shades in place of numbers: darker is larger, - is negative");
  c->add_flag("--json", o->json, "Print JSON with all numbers");
  c->add_option("--out", o->out, "Write the values to this safetensors file");
  c->add_option("--picture", o->picture,
                "Draw the values, or the answer to a question, as an SVG file instead of printing them");
  c->add_option("--page", o->page,
                "Write an HTML page with attention, the logit lens, contributions and neurons");
  c->add_option("--dtype", o->dtype, "Precision of matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c->add_flag("--example", o->example, "Print a worked example with small numbers instead, step by step");
  c->add_flag("--lens", o->lens, "Show the likeliest token if the model ended with each layer (logit lens)");
  c->add_option(
      "--fit-lens", o->fit_lens,
      "Text file: fit maps to --out, by which layers' answers come nearer to the model's (tuned lens)");
  c->add_option("--tuned", o->tuned, "File of --fit-lens by whose maps --lens and --page read the layers");
  c->add_flag("--why", o->attributes,
              "Show what each part adds to the logit of the likeliest token, or of --of");
  c->add_flag("--saliency", o->saliency,
              "Show what each token of the text adds to the logit (integrated gradients)");
  c->add_option(
      "--of", o->of,
      "Token or class to ask about (default: the likeliest) with --why, --saliency and --patch-from");
  c->add_option("--instead", o->instead,
                "Token or class whose logit is subtracted (default: none; of --patch-from the other text's "
                "likeliest)");
  c->add_option("--steps", o->steps,
                "Points of --saliency's path; 0: the gradient times the input, at one pass")
      ->show_default()
      ->range(0, 1 << 20);
  c->add_option("--baseline", o->baseline,
                "Token that --saliency puts in the place of the others (default: a mask or padding)");
  c->add_option(
      "--ablate", o->ablate,
      "Leave out head:L.H, neuron:L.N, attention:L, cross_attention:L, feed_forward:L, block:L or position:T "
      "(in an encoder-decoder also encoder: before these)");
  c->add_option("--by", o->by,
                "Values in the place of an ablated part: zero, its mean over the text, or resample: those at "
                "other tokens")
      ->one_of({"zero", "mean", "resample"});
  c->add_option("--seed", o->seed, "Random seed of --by resample, and of the random tokens of --roles")
      ->show_default();
  c->add_option("--add", o->add,
                "Add the vector that a block leaves at the end of this text to every token (activation "
                "addition)");
  c->add_option("--minus", o->minus, "Text whose vector is subtracted from that of --add");
  c->add_option("--at", o->at, "Block behind which --add acts, from 0 (default: the middle one)")
      ->range(0, 1 << 20);
  c->add_option("--times", o->times, "Factor of the vector of --add")->show_default();
  c->add_option("--write", o->write, "Also write so many tokens with and without the change")
      ->range(0, 1 << 20);
  c->add_option(
      "--patch-from", o->patch_from,
      "Another text with as many tokens: put its values into this text's pass, one at a time, and show "
      "how far each takes the answer to the other's");
  c->add_option("--sweep", o->sweep, "Values to patch: layers (each token of each block's output) or heads")
      ->one_of({"layers", "heads"});
  c->add_flag("--estimate", o->estimate,
              "Estimate all patches at once by the gradient (attribution patching): two passes in all");
  c->add_flag("--circuits", o->circuits,
              "Show what each head looks for, what it moves, and which heads read it, by the weights alone");
  c->add_option("--roles", o->roles,
                "Text file: measure how much each head attends to previous, first, same and repeated tokens");
  c->add_option("--relation", o->relation,
                "With a .conllu file as --roles: measure how well each head finds related words, like obj");
  c->add_option(
       "--limit", o->limit,
       "Tokens of the file of --roles, in whole passes, or those to fit a lens on (default there: 100000)")
      ->show_default()
      ->range(1, 1 << 30);
  o->all_given = [c] {
    std::vector<std::string> out;
    for (const Option* x : c->given()) out.push_back(x->name());
    return out;
  };
  o->given = [c](const char* option) {
    return std::ranges::any_of(c->given(), [&](const Option* x) { return x->name() == option; });
  };
  c->footer(
      "Each value has its name (docs/notation.md), its formula and the line of Phuong & Hutter's algorithm.\n"
      "Examples:\n"
      "  qkv trace --example\n"
      "  qkv trace models/gpt2 --text 'The cat sat' --layers 0\n"
      "  qkv trace models/gpt2 --text 'The cat sat' --values '*.probabilities' --heat\n"
      "  qkv trace models/gpt2 --text 'The cat sat' --out trace.safetensors\n"
      "  qkv trace models/gpt2 --text 'The cat sat on the' --page trace.html\n"
      "  qkv trace models/gpt2 --text 'The cat sat on the' --lens\n"
      "  qkv trace models/gpt2 --text 'The cat sat on the' --why --of ' mat'\n"
      "  qkv trace models/gpt2 --text 'The cat sat on the' --saliency --of ' mat'\n"
      "  qkv trace models/gpt2 --text 'The cat sat on the' --ablate head:3.5 block:7\n"
      "  qkv trace models/gpt2 --text 'I think you are' --add ' Love' --minus ' Hate' --times 4 --write 20\n"
      "  qkv trace models/gpt2 --text 'Paris is in' --patch-from 'Rome is in' --sweep heads\n"
      "  qkv trace models/gpt2 --roles book.txt");
  c->callback([o] { run_trace(*o); });
}

}  // namespace qkv
