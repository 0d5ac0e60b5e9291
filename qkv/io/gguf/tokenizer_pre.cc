#include "qkv/io/gguf/tokenizer_pre.h"

#include <algorithm>
#include <array>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/gpt2_pattern.h"
#include "qkv/text/piece_patterns.h"
#include "qkv/text/unicode.h"

namespace qkv::gguf {
namespace {

using text::kCl100kPattern;
using text::kGpt2Pattern;
using text::kO200kPattern;
using text::kQwenPattern;

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kNumber = R"(\p{N}+)";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kLine = R"([\r\n])";
constexpr std::string_view kIdeographs = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kHanAndKana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kBloomWord =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";

constexpr std::array kGpt2{kGpt2Pattern};
constexpr std::array kDigitsGpt2{kDigit, kGpt2Pattern};
constexpr std::array kLlama3{kCl100kPattern};
constexpr std::array kQwen2{kQwenPattern};
constexpr std::array kGpt4o{kO200kPattern};
constexpr std::array kBloom{kBloomWord};
constexpr std::array kViking{kBloomWord, kDigit};
constexpr std::array<std::string_view, 4> kDefault{R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, kNumber,
                                                   "[0-9][0-9][0-9]"};
constexpr std::array<std::string_view, 3> kFalcon{R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern,
                                                  "[0-9][0-9][0-9]"};
constexpr std::array<std::string_view, 1> kJais2{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"};
// Letters that have a case, as the model's authors listed them; then punctuation, and letters that have none.
constexpr std::array<std::string_view, 6> kDeepseekLlm{
    kLine,
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    kIdeographs,
    kNumber};
constexpr std::array<std::string_view, 5> kDeepseekCoder{kLine, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kIdeographs,
                                                         kDigit};
constexpr std::string_view kDeepseekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::array kDeepseek3{kThreeDigits, kHanAndKana, kDeepseekWords};
constexpr std::array<std::string_view, 4> kSpark{
    kThreeDigits, kHanAndKana,
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
    kDigit};
constexpr std::array<std::string_view, 2> kYoutu{
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kQwen35{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kTekken{
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 6> kChameleon{
    "<sentinel:[0-9]+>",       "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    R"(([\t\n]|    |  ))",     kDigit,
    R"([\p{P}!-/:-@\[-`{-~])", kGpt2Pattern};
constexpr std::array<std::string_view, 2> kTinyAya{R"(\d{1,3}(?=(?:\d{3})*\b))", kO200kPattern};
// Words in which no Han character stands, then Han characters.
constexpr std::array<std::string_view, 1> kKimi{
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Groups of three digits, counted from the end of a number.
constexpr std::array<std::string_view, 2> kSuperBpe{kNumber, "[0-9]{1,3}(?=(?:[0-9]{3})*(?![0-9]))"};
constexpr std::array<std::string_view, 1> kBailing{
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kSeed{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 1> kUfakzeka{
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 3> kAfmoe{
    R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))",
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)",
    kDeepseekWords};
constexpr std::array<std::string_view, 2> kLaguna{R"([^\n]+|[\n]+)", kQwenPattern};
constexpr std::array<std::string_view, 1> kExaoneMoe{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr std::array<std::string_view, 2> kMinicpm5{
    kThreeDigits,
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// llama.cpp's names. The first of several with the same patterns is the one that is written. tekken, gpt-4o
// and those like it have the patterns of their models; llama.cpp approximates the case of letters beyond
// ASCII.
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "default", .patterns = kDefault},
    {.name = "gpt-2", .patterns = kGpt2},
    {.name = "phi-2", .patterns = kGpt2},
    {.name = "jina-es", .patterns = kGpt2},
    {.name = "jina-de", .patterns = kGpt2},
    {.name = "jina-v2-es", .patterns = kGpt2},
    {.name = "jina-v2-de", .patterns = kGpt2},
    {.name = "jina-v1-en", .patterns = kGpt2, .add_sep = true},
    {.name = "jina-v2-code", .patterns = kGpt2, .add_sep = true},
    {.name = "roberta-bpe", .patterns = kGpt2, .add_sep = true},
    {.name = "gigachat", .patterns = kGpt2},
    {.name = "a.x-4.0", .patterns = kGpt2},
    {.name = "mellum", .patterns = kGpt2},
    {.name = "modern-bert", .patterns = kGpt2},
    {.name = "exaone4", .patterns = kGpt2},
    {.name = "mpt", .patterns = kGpt2},
    {.name = "olmo", .patterns = kGpt2},
    {.name = "jais", .patterns = kGpt2},
    {.name = "trillion", .patterns = kGpt2},
    {.name = "granite-docling", .patterns = kGpt2},
    {.name = "starcoder", .patterns = kDigitsGpt2},
    {.name = "refact", .patterns = kDigitsGpt2},
    {.name = "command-r", .patterns = kDigitsGpt2},
    {.name = "smollm", .patterns = kDigitsGpt2},
    {.name = "codeshell", .patterns = kDigitsGpt2},
    {.name = "exaone", .patterns = kDigitsGpt2},
    {.name = "minerva-7b", .patterns = kDigitsGpt2},
    {.name = "mellum2", .patterns = kDigitsGpt2},
    {.name = "llama-bpe", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "falcon-h1", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "pixtral", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "midm-2.0", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "lfm2", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "jina-v5-nano", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .patterns = kLlama3},
    {.name = "smaug-bpe", .patterns = kLlama3},
    {.name = "glm4", .patterns = kLlama3},
    {.name = "chatglm-bpe", .patterns = kLlama3},
    {.name = "jais-2", .patterns = kJais2},
    {.name = "qwen2", .patterns = kQwen2},
    {.name = "deepseek-r1-qwen", .patterns = kQwen2},
    {.name = "kormo", .patterns = kQwen2},
    {.name = "f2llmv2", .patterns = kQwen2},
    {.name = "megrez", .patterns = kQwen2},
    {.name = "stablelm2", .patterns = kQwen2},
    {.name = "hunyuan", .patterns = kQwen2},
    {.name = "solar-open", .patterns = kQwen2},
    {.name = "grok-2", .patterns = kQwen2},
    {.name = "qwen35", .patterns = kQwen35},
    {.name = "gpt-4o", .patterns = kGpt4o},
    {.name = "llama4", .patterns = kGpt4o},
    {.name = "kanana2", .patterns = kGpt4o},
    {.name = "talkie", .patterns = kGpt4o},
    {.name = "minimax-m2", .patterns = kGpt4o},
    {.name = "granite-embed-multi-97m", .patterns = kGpt4o, .ignore_merges = true},
    {.name = "tekken", .patterns = kTekken, .ignore_merges = true, .add_bos = true},
    {.name = "tiny_aya", .patterns = kTinyAya},
    {.name = "cohere2moe", .patterns = kTinyAya},
    {.name = "falcon", .patterns = kFalcon},
    {.name = "deepseek-llm", .patterns = kDeepseekLlm},
    {.name = "deepseek-coder", .patterns = kDeepseekCoder},
    {.name = "deepseek-v3", .patterns = kDeepseek3},
    {.name = "hunyuan-dense", .patterns = kDeepseek3},
    {.name = "joyai-llm", .patterns = kDeepseek3},
    {.name = "hy_v4", .patterns = kDeepseek3},
    {.name = "spark2_5", .patterns = kSpark},
    {.name = "youtu", .patterns = kYoutu, .ignore_merges = true},
    {.name = "bloom", .patterns = kBloom},
    {.name = "poro-chat", .patterns = kBloom},
    {.name = "gpt3-finnish", .patterns = kBloom},
    {.name = "viking", .patterns = kViking},
    {.name = "chameleon", .patterns = kChameleon, .add_bos = true},
    {.name = "kimi-k2", .patterns = kKimi},
    {.name = "superbpe", .patterns = kSuperBpe},
    {.name = "bailingmoe", .patterns = kBailing},
    {.name = "bailingmoe2", .patterns = kBailing},
    {.name = "llada-moe", .patterns = kBailing},
    {.name = "seed-coder", .patterns = kSeed},
    {.name = "ufakzeka", .patterns = kUfakzeka},
    {.name = "afmoe", .patterns = kAfmoe},
    {.name = "laguna", .patterns = kLaguna},
    {.name = "exaone-moe", .patterns = kExaoneMoe},
    {.name = "minicpm5", .patterns = kMinicpm5, .ignore_merges = true},
};

Json byte_level(bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Other spellings of a pattern as the table has it: escapes of line ends, \x{...} for what lies beyond ASCII.
std::string normal_spelling(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size();) {
    const text::Character c = text::character_at(pattern, i);
    if (c.codepoint >= 0x80) {
      out += fmt::format("\\x{{{:X}}}", c.codepoint);
    } else if (c.codepoint == '\r' || c.codepoint == '\n' || c.codepoint == '\t') {
      out += c.codepoint == '\r' ? "\\r" : c.codepoint == '\n' ? "\\n" : "\\t";
    } else {
      out += pattern.substr(i, c.length);
    }
    i += c.length;
  }
  static constexpr std::string_view kSame[][2] = {
      {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", "(?i:'s|'t|'re|'ve|'m|'ll|'d)"},
      {R"(\p{N}{1}|)", R"(\p{N}|)"},
      {"?+", "?"},  // possessive quantifiers, where nothing could be given back
      {"++", "+"},
      {"[^(\\s|[.,", "[^(\\s|.,"},  // Bloom's set within a set
      {"\\x{60C}])]", "\\x{60C})]"}};
  for (const auto& [from, to] : kSame) replace_all(out, from, to);
  return out;
}

// Patterns that cut as others of the table do, in the files of the models.
std::string known_equal(std::string pattern) {
  static const std::string without_end = normal_spelling(kGpt2Pattern.substr(0, kGpt2Pattern.rfind('|')));
  if (pattern == without_end) return std::string(kGpt2Pattern);  // the rest is a piece, too
  if (pattern == R"((?=(\d{3})+(?!\d)))") return normal_spelling(kSuperBpe[1]);
  if (pattern == R"(\d)") return std::string(kDigit);
  return pattern;
}

bool add_patterns(const JsonField& field, std::vector<std::string>& out) {
  const std::string& type = field["type"].string();
  if (type == "Sequence") {
    const JsonField list = field["pretokenizers"];
    for (size_t i = 0; i < list.size(); ++i)
      if (!add_patterns(list.at(i), out)) return false;
    return true;
  }
  if (type == "ByteLevel") {
    if (field.boolean_or("add_prefix_space", true)) return false;
    if (field.boolean_or("use_regex", true)) out.emplace_back(kGpt2Pattern);
    return true;
  }
  if (type == "Digits") {
    out.emplace_back(field.boolean_or("individual_digits", false) ? kDigit : kNumber);
    return true;
  }
  if (type == "Punctuation") {
    if (field.string_or("behavior", "Isolated") != "Contiguous") return false;
    out.emplace_back(kFalcon[0]);
    return true;
  }
  if (type != "Split") return false;
  const auto regex = field["pattern"].find("Regex");
  // A pattern that matches everything may as well remove what lies between.
  const bool inverted = field.boolean_or("invert", false);
  const std::string& behavior = field["behavior"].string();
  if (!regex || (inverted ? behavior != "Removed" : behavior != "Isolated")) return false;
  out.push_back(regex->string());
  return true;
}

std::vector<std::string> normal_patterns(std::span<const std::string_view> patterns) {
  std::vector<std::string> out;
  for (const std::string_view pattern : patterns) out.push_back(known_equal(normal_spelling(pattern)));
  return out;
}

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  const auto it = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                               [&](const auto& p) { return p.name == name; });
  return it == std::end(kPreTokenizers) ? nullptr : it;
}

std::string pre_tokenizer_names() {
  std::string names;
  for (const PreTokenizer& pre : kPreTokenizers) names += (names.empty() ? "" : ", ") + std::string(pre.name);
  return names;
}

Json pre_tokenizer_stages(const PreTokenizer& pre) {
  const bool ends_as_gpt2 = pre.patterns.back() == kGpt2Pattern;
  Json stages = Json::array();
  for (size_t i = 0; i + (ends_as_gpt2 ? 1 : 0) < pre.patterns.size(); ++i) {
    if (pre.patterns[i] == kDigit)
      stages.push_back({{"type", "Digits"}, {"individual_digits", true}});
    else
      stages.push_back({{"type", "Split"},
                        {"pattern", {{"Regex", pre.patterns[i]}}},
                        {"behavior", "Isolated"},
                        {"invert", false}});
  }
  if (stages.empty()) return byte_level(true);
  stages.push_back(byte_level(ends_as_gpt2));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(stages)}};
}

std::optional<std::vector<std::string>> patterns_of_stages(const JsonField& field) {
  std::vector<std::string> out;
  if (!add_patterns(field, out)) return std::nullopt;
  for (std::string& pattern : out) pattern = known_equal(normal_spelling(pattern));
  // Falcon's file separates digits once more before it cuts them by threes, which changes nothing.
  if (out.size() == 4 && out[0] == normal_spelling(kFalcon[0]) && out[2] == kNumber)
    out.erase(out.begin() + 2);
  return out;
}

bool has_patterns(const PreTokenizer& pre, const std::vector<std::string>& patterns) {
  return normal_patterns(pre.patterns) == patterns;
}

const PreTokenizer* find_by_patterns(const std::vector<std::string>& patterns, bool ignore_merges) {
  const PreTokenizer* found = nullptr;
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (!has_patterns(pre, patterns)) continue;
    if (pre.ignore_merges == ignore_merges) return &pre;
    if (found == nullptr) found = &pre;
  }
  return found;
}

}  // namespace qkv::gguf
