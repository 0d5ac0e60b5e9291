// Names of the enumerators that a ModelSpec is made of.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "qkv/base/error.h"
#include "qkv/models/spec.h"

namespace qkv {
namespace {

template <typename E>
using Name = std::pair<E, const char*>;

// An enumeration's name in errors, and the names of its values in the order of the help text.
template <typename E>
struct Enumeration;

template <>
struct Enumeration<Activation> {
  static constexpr const char* kKind = "activation";
  static constexpr Name<Activation> kNames[] = {
      {Activation::relu, "relu"},           {Activation::gelu, "gelu"},
      {Activation::gelu_tanh, "gelu_tanh"}, {Activation::gelu_quick, "gelu_quick"},
      {Activation::silu, "silu"},           {Activation::relu_squared, "relu_squared"},
      {Activation::tanh, "tanh"},           {Activation::sigmoid, "sigmoid"},
      {Activation::identity, "identity"},   {Activation::xielu, "xielu"}};
};
template <size_t... i>
constexpr auto names_of_mixers(std::index_sequence<i...> /*all*/) {
  return std::to_array<Name<MixerKind>>(
      {{static_cast<MixerKind>(i), std::variant_alternative_t<i, AnyMixer>::kName}...});
}
template <>
struct Enumeration<MixerKind> {
  static constexpr const char* kKind = "mixer";
  static constexpr auto kNames = names_of_mixers(std::make_index_sequence<std::variant_size_v<AnyMixer>>());
};
template <>
struct Enumeration<FeatureMap> {
  static constexpr const char* kKind = "features";
  static constexpr Name<FeatureMap> kNames[] = {
      {FeatureMap::identity, "identity"}, {FeatureMap::elu, "elu"},   {FeatureMap::relu, "relu"},
      {FeatureMap::shares, "shares"},     {FeatureMap::unit, "unit"}, {FeatureMap::near_unit, "near_unit"}};
};
template <>
struct Enumeration<MtpForm> {
  static constexpr const char* kKind = "mtp_form";
  static constexpr Name<MtpForm> kNames[] = {
      {MtpForm::chained, "chained"}, {MtpForm::joined, "joined"}, {MtpForm::parallel, "parallel"}};
};
template <>
struct Enumeration<Output> {
  static constexpr const char* kKind = "output";
  static constexpr Name<Output> kNames[] = {{Output::tokens, "tokens"},
                                            {Output::sequence_classes, "sequence_classes"},
                                            {Output::token_classes, "token_classes"},
                                            {Output::span, "span"},
                                            {Output::embedding, "embedding"}};
};
template <>
struct Enumeration<Problem> {
  static constexpr const char* kKind = "problem";
  static constexpr Name<Problem> kNames[] = {{Problem::single_label, "single_label"},
                                             {Problem::multi_label, "multi_label"},
                                             {Problem::regression, "regression"},
                                             {Problem::multiple_choice, "multiple_choice"}};
};
template <>
struct Enumeration<Order> {
  static constexpr const char* kKind = "order";
  static constexpr Name<Order> kNames[] = {
      {Order::stack, "stack"}, {Order::prefix, "prefix"}, {Order::permuted, "permuted"}};
};
template <>
struct Enumeration<Pooling> {
  static constexpr const char* kKind = "pooling";
  static constexpr Name<Pooling> kNames[] = {
      {Pooling::first, "first"}, {Pooling::last, "last"}, {Pooling::mean, "mean"}};
};
template <>
struct Enumeration<Architecture> {
  static constexpr const char* kKind = "architecture";
  static constexpr Name<Architecture> kNames[] = {{Architecture::decoder, "decoder"},
                                                  {Architecture::encoder, "encoder"},
                                                  {Architecture::encoder_decoder, "encoder_decoder"}};
};
template <>
struct Enumeration<Positions> {
  static constexpr const char* kKind = "positions";
  static constexpr Name<Positions> kNames[] = {{Positions::learned, "learned"},
                                               {Positions::sinusoidal, "sinusoidal"},
                                               {Positions::sinusoidal_paper, "sinusoidal_paper"},
                                               {Positions::sinusoidal_halves, "sinusoidal_halves"},
                                               {Positions::sinusoidal_closed, "sinusoidal_closed"},
                                               {Positions::fourier, "fourier"},
                                               {Positions::relative, "relative"},
                                               {Positions::toeplitz, "toeplitz"},
                                               {Positions::rotary, "rotary"},
                                               {Positions::alibi, "alibi"},
                                               {Positions::alibi_evens_first, "alibi_evens_first"},
                                               {Positions::alibi_scaled, "alibi_scaled"},
                                               {Positions::alibi_signed, "alibi_signed"},
                                               {Positions::none, "none"}};
};
template <>
struct Enumeration<Cell> {
  static constexpr const char* kKind = "cell";
  static constexpr Name<Cell> kNames[] = {
      {Cell::none, "transformer"}, {Cell::lstm, "lstm"}, {Cell::gru, "gru"}};
};
template <>
struct Enumeration<SourceAttention> {
  static constexpr const char* kKind = "source_attention";
  static constexpr Name<SourceAttention> kNames[] = {{SourceAttention::none, "none"},
                                                     {SourceAttention::additive, "additive"},
                                                     {SourceAttention::dot, "dot"},
                                                     {SourceAttention::local, "local"}};
};
template <>
struct Enumeration<Normalization> {
  static constexpr const char* kKind = "normalization";
  static constexpr Name<Normalization> kNames[] = {{Normalization::layer, "layer"},
                                                   {Normalization::layer_scale, "layer_scale"},
                                                   {Normalization::layer_plain, "layer_plain"},
                                                   {Normalization::rms, "rms"},
                                                   {Normalization::rms_plus_one, "rms_plus_one"},
                                                   {Normalization::scale, "scale"},
                                                   {Normalization::capsule, "capsule"},
                                                   {Normalization::layer_plus_one, "layer_plus_one"},
                                                   {Normalization::batch, "batch"}};
};
template <>
struct Enumeration<NormPlacement> {
  static constexpr const char* kKind = "norm_placement";
  static constexpr Name<NormPlacement> kNames[] = {
      {NormPlacement::pre, "pre"},       {NormPlacement::post, "post"}, {NormPlacement::sandwich, "sandwich"},
      {NormPlacement::branch, "branch"}, {NormPlacement::none, "none"}, {NormPlacement::stream, "stream"}};
};
template <>
struct Enumeration<Branches> {
  static constexpr const char* kKind = "branches";
  static constexpr Name<Branches> kNames[] = {{Branches::serial, "serial"},
                                              {Branches::parallel, "parallel"},
                                              {Branches::one_norm, "one_norm"},
                                              {Branches::reversible, "reversible"}};
};
template <>
struct Enumeration<RelativeAttention> {
  static constexpr const char* kKind = "relative_attention";
  static constexpr Name<RelativeAttention> kNames[] = {{RelativeAttention::none, "none"},
                                                       {RelativeAttention::shaw, "shaw"},
                                                       {RelativeAttention::shaw_both, "shaw_both"},
                                                       {RelativeAttention::transformer_xl, "transformer_xl"},
                                                       {RelativeAttention::disentangled, "disentangled"}};
};
template <>
struct Enumeration<FeatureSpec::Kind> {
  static constexpr const char* kKind = "features";
  static constexpr Name<FeatureSpec::Kind> kNames[] = {{FeatureSpec::Kind::none, "none"},
                                                       {FeatureSpec::Kind::patches, "patches"},
                                                       {FeatureSpec::Kind::frames, "frames"}};
};
template <>
struct Enumeration<AftForm> {
  static constexpr const char* kKind = "aft_form";
  static constexpr Name<AftForm> kNames[] = {{AftForm::full, "full"},
                                             {AftForm::local, "local"},
                                             {AftForm::simple, "simple"},
                                             {AftForm::conv, "conv"}};
};
template <>
struct Enumeration<RandomMap> {
  static constexpr const char* kKind = "random_map";
  static constexpr Name<RandomMap> kNames[] = {{RandomMap::fourier, "fourier"},
                                               {RandomMap::positive, "positive"}};
};
template <>
struct Enumeration<ChannelMix> {
  static constexpr const char* kKind = "channel_mix";
  static constexpr Name<ChannelMix> kNames[] = {
      {ChannelMix::none, "none"}, {ChannelMix::rwkv4, "rwkv4"}, {ChannelMix::rwkv7, "rwkv7"}};
};
template <>
struct Enumeration<QueryKeyNorm> {
  static constexpr const char* kKind = "query_key_norm";
  static constexpr Name<QueryKeyNorm> kNames[] = {{QueryKeyNorm::none, "none"},
                                                  {QueryKeyNorm::heads, "heads"},
                                                  {QueryKeyNorm::whole, "whole"},
                                                  {QueryKeyNorm::layer, "layer"},
                                                  {QueryKeyNorm::layer_heads, "layer_heads"},
                                                  {QueryKeyNorm::heads_plus_one, "heads_plus_one"},
                                                  {QueryKeyNorm::heads_rotated, "heads_rotated"},
                                                  {QueryKeyNorm::unit_rotated, "unit_rotated"}};
};
template <>
struct Enumeration<RouterScore> {
  static constexpr const char* kKind = "router_score";
  static constexpr Name<RouterScore> kNames[] = {{RouterScore::softmax, "softmax"},
                                                 {RouterScore::sigmoid, "sigmoid"}};
};
template <>
struct Enumeration<RotaryLayout> {
  static constexpr const char* kKind = "rotary_layout";
  static constexpr Name<RotaryLayout> kNames[] = {{RotaryLayout::halves, "halves"},
                                                  {RotaryLayout::interleaved, "interleaved"}};
};
template <>
struct Enumeration<RotaryScaling> {
  static constexpr const char* kKind = "rotary_scaling";
  static constexpr Name<RotaryScaling> kNames[] = {
      {RotaryScaling::none, "none"},       {RotaryScaling::linear, "linear"},
      {RotaryScaling::dynamic, "dynamic"}, {RotaryScaling::yarn, "yarn"},
      {RotaryScaling::llama3, "llama3"},   {RotaryScaling::longrope, "longrope"}};
};

}  // namespace

template <typename E>
requires std::is_enum_v<E> std::string name_of(E value) {
  for (const auto& [known, name] : Enumeration<E>::kNames)
    if (known == value) return name;
  return "?";
}

template <typename E>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const auto& [value, name] : Enumeration<E>::kNames) names.emplace_back(name);
  return names;
}

template <typename E>
E from_name(const std::string& name) {
  for (const auto& [value, known] : Enumeration<E>::kNames)
    if (name == known) return value;
  fail("{}: expected one of {}, got '{}'", Enumeration<E>::kKind, fmt::join(names_of<E>(), ", "), name);
}

template std::string name_of(Activation);
template std::vector<std::string> names_of<Activation>();
template Activation from_name(const std::string&);
template std::string name_of(MixerKind);
template std::vector<std::string> names_of<MixerKind>();
template MixerKind from_name(const std::string&);
template std::string name_of(FeatureMap);
template std::vector<std::string> names_of<FeatureMap>();
template FeatureMap from_name(const std::string&);
template std::string name_of(Output);
template std::vector<std::string> names_of<Output>();
template Output from_name(const std::string&);
template std::string name_of(Problem);
template std::vector<std::string> names_of<Problem>();
template Problem from_name(const std::string&);
template std::string name_of(Order);
template std::vector<std::string> names_of<Order>();
template Order from_name(const std::string&);
template std::string name_of(Pooling);
template std::vector<std::string> names_of<Pooling>();
template Pooling from_name(const std::string&);
template std::string name_of(Architecture);
template std::vector<std::string> names_of<Architecture>();
template Architecture from_name(const std::string&);
template std::string name_of(MtpForm);
template std::vector<std::string> names_of<MtpForm>();
template MtpForm from_name(const std::string&);
template std::string name_of(Positions);
template std::vector<std::string> names_of<Positions>();
template Positions from_name(const std::string&);
template std::string name_of(Cell);
template std::vector<std::string> names_of<Cell>();
template Cell from_name(const std::string&);
template std::string name_of(SourceAttention);
template std::vector<std::string> names_of<SourceAttention>();
template SourceAttention from_name(const std::string&);
template std::string name_of(Normalization);
template std::vector<std::string> names_of<Normalization>();
template Normalization from_name(const std::string&);
template std::string name_of(NormPlacement);
template std::vector<std::string> names_of<NormPlacement>();
template NormPlacement from_name(const std::string&);
template std::string name_of(Branches);
template std::vector<std::string> names_of<Branches>();
template Branches from_name(const std::string&);
template std::string name_of(RelativeAttention);
template std::vector<std::string> names_of<RelativeAttention>();
template RelativeAttention from_name(const std::string&);
template std::string name_of(FeatureSpec::Kind);
template std::vector<std::string> names_of<FeatureSpec::Kind>();
template FeatureSpec::Kind from_name(const std::string&);
template std::string name_of(AftForm);
template std::vector<std::string> names_of<AftForm>();
template AftForm from_name(const std::string&);
template std::string name_of(RandomMap);
template std::vector<std::string> names_of<RandomMap>();
template RandomMap from_name(const std::string&);
template std::string name_of(ChannelMix);
template std::vector<std::string> names_of<ChannelMix>();
template ChannelMix from_name(const std::string&);
template std::string name_of(QueryKeyNorm);
template std::vector<std::string> names_of<QueryKeyNorm>();
template QueryKeyNorm from_name(const std::string&);
template std::string name_of(RouterScore);
template std::vector<std::string> names_of<RouterScore>();
template RouterScore from_name(const std::string&);
template std::string name_of(RotaryLayout);
template std::vector<std::string> names_of<RotaryLayout>();
template RotaryLayout from_name(const std::string&);
template std::string name_of(RotaryScaling);
template std::vector<std::string> names_of<RotaryScaling>();
template RotaryScaling from_name(const std::string&);

}  // namespace qkv
