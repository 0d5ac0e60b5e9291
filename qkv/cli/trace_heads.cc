#include "qkv/cli/trace_heads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/cli/console.h"
#include "qkv/cli/trace_texts.h"
#include "qkv/data/conll.h"
#include "qkv/trace/circuits.h"
#include "qkv/trace/roles.h"

namespace qkv {
namespace {

std::string name_of_head(int64_t layer, int64_t head) {
  return fmt::format("{}.{}", layer, head);
}

// NaN as null.
OrderedJson json_number(double x) {
  return std::isfinite(x) ? OrderedJson(x) : OrderedJson(nullptr);
}

OrderedJson numbers(const std::vector<std::complex<double>>& values) {
  OrderedJson out = OrderedJson::array();
  for (const auto& z : values) out.push_back({z.real(), z.imag()});
  return out;
}

std::string share_text(double x) {
  return std::isfinite(x) ? fmt::format("{:.2f}", x) : "-";
}

}  // namespace

void answer_circuits(const TraceOptions& o, const TracedModel& m) {
  const ModelSpec& spec = m.model().spec();
  const Circuits circuits = circuits_of(m.model());
  if (o.json) {
    OrderedJson json = {
        {"model", o.dir}, {"heads", OrderedJson::array()}, {"compositions", OrderedJson::array()}};
    for (const HeadCircuits& h : circuits.heads)
      json["heads"].push_back({{"layer", h.layer},
                               {"head", h.head},
                               {"qk_rank", rank_of(h.qk_singular)},
                               {"ov_rank", rank_of(h.ov_singular)},
                               {"matching", json_number(h.matching)},
                               {"copying", json_number(h.copying)},
                               {"qk_singular_values", h.qk_singular},
                               {"ov_singular_values", h.ov_singular},
                               {"qk_eigenvalues", numbers(h.qk_eigenvalues)},
                               {"ov_eigenvalues", numbers(h.ov_eigenvalues)}});
    for (const Composition& c : circuits.composed) {
      const HeadCircuits &w = circuits.heads[c.writer], &r = circuits.heads[c.reader];
      json["compositions"].push_back({{"writer", {w.layer, w.head}},
                                      {"reader", {r.layer, r.head}},
                                      {"query", c.query},
                                      {"key", c.key},
                                      {"value", c.value}});
    }
    return print_json(json);
  }
  if (!o.picture.empty()) {
    // Rows write, columns read.
    std::vector<Panel> panels(3);
    std::vector<std::string> names;
    for (const HeadCircuits& h : circuits.heads) names.push_back(name_of_head(h.layer, h.head));
    const size_t n = names.size();
    double most = 0;
    for (const Composition& c : circuits.composed) most = std::max({most, c.query, c.key, c.value});
    for (size_t k = 0; k < 3; ++k) {
      panels[k] = {std::string("composition into ") + (k == 0   ? "queries"
                                                       : k == 1 ? "keys"
                                                                : "values"),
                   names, names, std::vector<std::vector<double>>(n, std::vector<double>(n, 0)), most};
      for (const Composition& c : circuits.composed)
        panels[k].values[c.writer][c.reader] = k == 0 ? c.query : k == 1 ? c.key : c.value;
    }
    return write_picture(o, panels);
  }
  const int64_t d_k = spec.attention.d_qk, d_v = spec.attention.d_vo;
  std::string out = fmt::format(
      "Circuits of heads (layer.head). Ranks of W_Q W_K^T are at most min(D, d_k) = min({0}, {1}) = {2},\n"
      "of W_V W_O^T at most min(D, d_v) = min({0}, {3}) = {4}. Matching: tokens look for their like (1) or "
      "not (-1).\nCopying: a token that is attended to becomes likelier (1) or not (-1).\n\n",
      spec.width, d_k, std::min(spec.width, d_k), d_v, std::min(spec.width, d_v));
  std::vector<std::vector<std::string>> table = {
      {"head", "QK rank", "largest", "OV rank", "largest", "matching", "copying"}};
  for (const HeadCircuits& h : circuits.heads)
    table.push_back({name_of_head(h.layer, h.head), std::to_string(rank_of(h.qk_singular)),
                     fmt::format("{:.3g}", h.qk_singular[0]), std::to_string(rank_of(h.ov_singular)),
                     fmt::format("{:.3g}", h.ov_singular[0]), share_text(h.matching), share_text(h.copying)});
  out += table_text(table);
  struct Link {
    double score;
    const char* kind;
    const Composition* c;
  };
  std::vector<Link> links;
  for (const Composition& c : circuits.composed)
    for (const auto& [score, kind] :
         {std::pair(c.query, "queries"), std::pair(c.key, "keys"), std::pair(c.value, "values")})
      links.push_back({score, kind, &c});
  if (!links.empty()) {
    std::ranges::stable_sort(links, std::greater{}, &Link::score);
    links.resize(std::min<size_t>(links.size(), static_cast<size_t>(3 * o.walk.best)));
    out += fmt::format(
        "\nWhat a head writes and a later one reads most (unrelated matrices: about 1/sqrt(D) = {:.2f}):\n",
        1 / std::sqrt(static_cast<double>(spec.width)));
    std::vector<std::vector<std::string>> strongest = {{"writer", "reader", "into its", "composition"}};
    for (const Link& l : links) {
      const HeadCircuits &w = circuits.heads[l.c->writer], &r = circuits.heads[l.c->reader];
      strongest.push_back({name_of_head(w.layer, w.head), name_of_head(r.layer, r.head), l.kind,
                           fmt::format("{:.3f}", l.score)});
    }
    out += table_text(strongest);
  }
  print(out);
}

namespace {

// Random tokens that come twice, in as many passes as make sums steady.
void add_repeated_tokens(const TraceOptions& o, const TracedModel& m, RoleMeter& meter) {
  constexpr int64_t kPasses = 16, kTokens = 50;
  const ModelSpec& spec = m.model().spec();
  const std::vector<text::TokenId> first = begin_of_texts(m);
  const int64_t most = std::min({kTokens, spec.context, spec.longest()});
  for (int64_t pass = 0; pass < kPasses; ++pass)
    meter.add(input_of_tokens(m, repeated_tokens({first.begin(), first.end()}, 0, spec.input_vocab_size(),
                                                 most, o.seed + static_cast<uint64_t>(pass))));
}

}  // namespace

void answer_roles(const TraceOptions& o, const TracedModel& m) {
  expect_one_stack(m, "--roles");
  RoleMeter in_text(m.model()), repeated(m.model());
  const int64_t tokens = for_each_pass(m, o.roles, o.limit, false,
                                       [&](const ModelInput& input, int64_t) { in_text.add(input); });
  add_repeated_tokens(o, m, repeated);
  std::vector<HeadRole> roles = in_text.roles();
  const std::vector<HeadRole> again = repeated.roles();
  for (size_t h = 0; h < roles.size(); ++h) {
    roles[h].duplicate = again[h].duplicate;
    roles[h].induction = again[h].induction;
  }
  if (o.json) {
    OrderedJson json = {{"model", o.dir}, {"tokens", tokens}, {"heads", OrderedJson::array()}};
    for (const HeadRole& r : roles)
      json["heads"].push_back({{"layer", r.layer},
                               {"head", r.head},
                               {"previous", r.previous},
                               {"next", r.next},
                               {"first", r.first},
                               {"same", r.same},
                               {"duplicate", r.duplicate},
                               {"induction", r.induction},
                               {"positional", r.positional},
                               {"distance", r.distance},
                               {"role", r.name()}});
    return print_json(json);
  }
  if (!o.picture.empty()) {
    Panel panel{"shares of attention",
                {},
                {"previous", "next", "first", "same", "duplicate", "induction", "positional"},
                {},
                1};
    for (const HeadRole& r : roles) {
      panel.rows.push_back(name_of_head(r.layer, r.head));
      panel.values.push_back({r.previous, r.next, r.first, r.same, r.duplicate, r.induction, r.positional});
      panel.texts.emplace_back();
      for (const double share : panel.values.back()) panel.texts.back().push_back(share_text(share));
    }
    return write_picture(o, {panel});
  }
  std::vector<std::vector<std::string>> table = {
      {"head", "previous", "next", "first", "same", "duplicate", "induction", "positional", "at", "role"}};
  for (const HeadRole& r : roles)
    table.push_back({name_of_head(r.layer, r.head), share_text(r.previous), share_text(r.next),
                     share_text(r.first), share_text(r.same), share_text(r.duplicate),
                     share_text(r.induction), share_text(r.positional), fmt::format("{:+}", r.distance),
                     r.name()});
  print(
      fmt::format("Shares of each head's attention (layer.head) in {} tokens; of duplicate and induction, in "
                  "random\ntokens that come twice. Positional: the share of queries that attend most to the "
                  "key \"at\" this distance.\n\n{}",
                  tokens, table_text(table)));
}

namespace {

// The pairs of a relation in a sentence, head word first. Heads are numbers of words, from 1; 0 is the root.
std::vector<std::pair<int32_t, int32_t>> related(const TaggedSentence& heads, const TaggedSentence& kinds,
                                                 const std::string& relation, const std::string& file) {
  std::vector<std::pair<int32_t, int32_t>> out;
  for (size_t w = 0; w < kinds.words.size(); ++w) {
    if (kinds.tags[w] != relation && !kinds.tags[w].starts_with(relation + ":")) continue;
    int32_t head = 0;
    const std::string& text = heads.tags[w];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head);
    check(error == std::errc() && end == text.data() + text.size() && head >= 0 &&
              head <= std::ssize(heads.words),
          "{}:{}: the head: expected a word from 0 to {}, got '{}'", file, heads.lines[w], heads.words.size(),
          text);
    if (head > 0 && static_cast<size_t>(head - 1) != w) out.emplace_back(head - 1, static_cast<int32_t>(w));
  }
  return out;
}

// The tokens of each word of a text whose words have one space between them; none if one was cut off.
std::vector<std::pair<int32_t, int32_t>> tokens_of_words(const text::Encoding& tokens,
                                                         const std::vector<std::string>& words) {
  std::vector<std::pair<int32_t, int32_t>> out;
  size_t byte = 0;
  for (const std::string& word : words) {
    const size_t end = byte + word.size();
    int32_t first = -1, last = -1;
    for (size_t t = 0; t < tokens.ids.size(); ++t) {
      const auto& at = tokens.offsets[t];
      if (at.size() == 0 || at.end <= byte || at.begin >= end) continue;
      if (first < 0) first = static_cast<int32_t>(t);
      last = static_cast<int32_t>(t);
    }
    if (first < 0) return {};
    out.emplace_back(first, last + 1);
    byte = end + 1;
  }
  return out;
}

}  // namespace

void answer_relation(const TraceOptions& o, const TracedModel& m) {
  if (!o.picture.empty()) throw UsageError("--picture: of values, and of answers that are matrices");
  expect_one_stack(m, "--relation");
  constexpr int64_t kWord = 2, kHead = 7, kKind = 8;  // columns of CoNLL-U
  if (!o.roles.ends_with(".conllu"))
    throw UsageError(
        fmt::format("--relation: expected a treebank whose name ends with .conllu, got {}", o.roles));
  const auto heads = read_conll(o.roles, kWord, kHead), kinds = read_conll(o.roles, kWord, kKind);
  RelationMeter ahead(m.model()), back(m.model());
  int64_t tokens = 0, left_out = 0;
  const int64_t longest = longest_pass(m);
  for (size_t s = 0; s < kinds.size() && tokens < o.limit; ++s) {
    RelatedWords text;
    text.pairs = related(heads[s], kinds[s], o.relation, o.roles);
    if (text.pairs.empty()) continue;
    const text::Encoding encoded = tokens_of(m, fmt::format("{}", fmt::join(kinds[s].words, " ")));
    text.words = tokens_of_words(encoded, kinds[s].words);
    if (text.words.empty() || std::ssize(encoded.ids) > longest) {
      ++left_out;
      continue;
    }
    tokens += std::ssize(encoded.ids);
    text.input = input_of_tokens(m, encoded.ids);
    ahead.add(text);
    for (auto& [from, to] : text.pairs) std::swap(from, to);
    back.add(text);
  }
  check(ahead.pairs() > 0 || left_out == 0,
        "{}: all {} sentences with the relation '{}' are longer than {} tokens", o.roles, left_out,
        o.relation, longest);
  check(ahead.pairs() > 0, "{}: no word is another's '{}' (column {} of CoNLL-U)", o.roles, o.relation,
        kKind);
  OrderedJson json = {
      {"model", o.dir}, {"relation", o.relation}, {"pairs", ahead.pairs()}, {"left_out", left_out}};
  std::string out =
      fmt::format("{} of words related by {}.{} The share in which the most attended word is the other:\n",
                  counted(ahead.pairs(), "pair"), o.relation,
                  left_out == 0 ? "" : fmt::format(" {} left out: too long.", counted(left_out, "sentence")));
  for (const auto& [of, key, title] : {std::tuple(&ahead, "dependent", "from the head word, its dependent"),
                                       std::tuple(&back, "head", "from the dependent, its head word")}) {
    const RelationMeter* meter = of;
    const auto share = [&](int64_t found) {
      return static_cast<double>(found) / static_cast<double>(meter->pairs());
    };
    std::vector<RelationScore> scores = meter->scores();
    std::ranges::stable_sort(scores, std::greater{}, &RelationScore::found);
    const auto [distance, found] = meter->best_distance();
    std::vector<std::vector<std::string>> table = {{"head", "found"}};
    json[key]["heads"] = OrderedJson::array();
    for (const RelationScore& r : scores) {
      json[key]["heads"].push_back({{"layer", r.layer}, {"head", r.head}, {"found", share(r.found)}});
      if (std::ssize(table) <= o.walk.best)
        table.push_back({name_of_head(r.layer, r.head), share_text(share(r.found))});
    }
    table.push_back({fmt::format("always the word at {:+}", distance), share_text(share(found))});
    json[key]["best_distance"] = {{"distance", distance}, {"found", share(found)}};
    out += fmt::format("\n{}:\n{}", title, table_text(table));
  }
  o.json ? print_json(json) : print(out);
}

}  // namespace qkv
