// Switch Transformers: Hugging Face's SwitchTransformersForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/t5_parts.h"

namespace qkv {
namespace {

// Each step-th layer of a stack has experts, the second of each step.
int64_t read_sparse_step(const JsonField& c, const std::string& stack, int64_t layers) {
  const int64_t sparse = c.integer_or("num_sparse_" + stack + "_layers", 3, 0, kMost);
  const int64_t step = c.integer_or(stack + "_sparse_step", sparse > 0 ? layers / sparse : layers, 1, kMost);
  check(step > 0, "{}: num_sparse_{}_layers: {} of {} layers leave none between (say {}_sparse_step)",
        c.place(), stack, sparse, layers, stack);
  return step;
}
int64_t first_sparse(int64_t step) {
  return step > 1 ? 1 : 0;
}

}  // namespace

const Family& switch_family() {
  static const Family family = {
      "switch_transformers",
      [](const JsonField& c) {
        ModelSpec s = read_t5(c);
        const auto network = c.string_or("dense_act_fn", "relu");
        check(c.string_or("feed_forward_proj", network) == network,
              "{}: feed_forward_proj: only dense_act_fn's {} is supported", c.place(), network);
        s.activation = read_activation(c, "dense_act_fn", "relu");
        for (const char* key : {"router_bias", "add_router_probs"})
          check(!c.boolean_or(key, false), "{}: {}: only false is supported", c.place(), key);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_experts", 8, 1, kMost);
        x.chosen = 1;
        x.renormalized = false;
        x.hidden = s.hidden;
        x.every = read_sparse_step(c, "decoder", s.layers);
        x.first = first_sparse(x.every);
        if (const int64_t step = read_sparse_step(c, "encoder", s.encoder_layers); step != x.every)
          s.encoder.expert_every = step, s.encoder.expert_first = first_sparse(step);
        x.capacity = c.integer_or("expert_capacity", 64, 0, kMost);
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        return s;
      },
      [](const ModelSpec& s) {
        const ExpertsSpec& x = s.experts;
        OrderedJson c = write_t5(s);
        c["model_type"] = "switch_transformers";
        c["architectures"] = {"SwitchTransformersForConditionalGeneration"};
        c.erase("feed_forward_proj");
        c["dense_act_fn"] = config_name_of(s.activation);
        c["num_experts"] = x.count;
        const int64_t encoder_step = s.encoder_spec().experts.every;
        c["encoder_sparse_step"] = encoder_step;
        c["decoder_sparse_step"] = x.every;
        c["num_sparse_encoder_layers"] = s.encoder_layers / encoder_step;
        c["num_sparse_decoder_layers"] = s.layers / x.every;
        c["expert_capacity"] = x.capacity;
        c["router_aux_loss_coef"] = decimal(x.balance);
        c["router_bias"] = false;
        c["router_jitter_noise"] = 0.0;
        return c;
      },
      [](const ModelSpec& s) {
        ModelSpec dense = s;
        dense.experts = {};
        dense.encoder = {};
        return expresses_t5(dense) && !s.gated && s.experts.count > 0;
      },
      [](const ModelSpec& s) { return weights_named_as_t5(s, "mlp"); },
      "",
      is_extra_in_t5};
  return family;
}

}  // namespace qkv
