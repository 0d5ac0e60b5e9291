#include "qkv/api/qkv.h"

#include <algorithm>
#include <cstring>

#include "qkv/api/text_model.h"
#include "qkv/base/error.h"
#include "qkv/base/version.h"
#include "qkv/infer/predict.h"
#include "qkv/trace/trace.h"

struct qkv_model {
  qkv::TextModel text;
};

namespace {

thread_local std::string last_error;

// Runs f and turns exceptions into a status.
template <typename F>
qkv_status guarded(const F& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    last_error = e.what();
  } catch (...) {
    last_error = "an unknown error";
  }
  return QKV_ERROR;
}

std::string_view text_of(const char* text, size_t length) {
  qkv::check(text != nullptr || length == 0, "a text of {} bytes is NULL", length);
  return {text, length};
}

// Copies all elements if they fit, and sets *count to their number.
template <typename T, typename From>
qkv_status hand_out(const From& from, T* to, size_t capacity, size_t* count) {
  *count = from.size();
  if (from.size() > capacity) {
    last_error = fmt::format("room for {} of {}", capacity, from.size());
    return QKV_TOO_SMALL;
  }
  std::copy(from.begin(), from.end(), to);
  return QKV_OK;
}

}  // namespace

extern "C" {

const char* qkv_version(void) {
  static const std::string text(qkv::version());
  return text.c_str();
}

const char* qkv_last_error(void) {
  return last_error.c_str();
}

qkv_status qkv_load(const char* path, const char* dtype, qkv_model** model) {
  return guarded([&] {
    const std::string type = dtype == nullptr ? "f32" : dtype;
    if (model != nullptr) *model = nullptr;
    qkv::check(path != nullptr && model != nullptr, "load: a path and a place for the model are needed");
    qkv::check(type == "f32" || type == "bf16", "load: expected f32 or bf16, got {}", type);
    *model = new qkv_model{qkv::load(path, type == "bf16" ? qkv::DType::bf16 : qkv::DType::f32)};
    return QKV_OK;
  });
}

void qkv_free(qkv_model* model) {
  delete model;
}

int64_t qkv_vocab_size(const qkv_model* model) {
  return model->text.model->spec().vocab_size;
}
int64_t qkv_context(const qkv_model* model) {
  return model->text.model->spec().longest();
}
int64_t qkv_width(const qkv_model* model) {
  return qkv::embedding_width(model->text);
}

qkv_status qkv_tokenize(const qkv_model* model, const char* text, size_t length, int special, int32_t* ids,
                        size_t capacity, size_t* count) {
  return guarded([&] {
    const auto encoding = model->text.tokenizer.encode(text_of(text, length), special != 0);
    return hand_out(encoding.ids, ids, capacity, count);
  });
}

qkv_status qkv_detokenize(const qkv_model* model, const int32_t* ids, size_t count, char* text,
                          size_t capacity, size_t* length) {
  return guarded(
      [&] { return hand_out(model->text.tokenizer.decode(std::span(ids, count)), text, capacity, length); });
}

qkv_status qkv_forward(const qkv_model* model, const int32_t* ids, size_t count, float* logits) {
  return guarded([&] {
    const qkv::Transformer& m = *model->text.model;
    const qkv::ModelSpec& spec = m.spec();
    qkv::check(spec.architecture != qkv::Architecture::encoder_decoder,
               "forward: an encoder-decoder needs two sequences");
    qkv::check(count > 0 && static_cast<int64_t>(count) <= spec.longest(),
               "forward: expected between 1 and {} tokens, got {}", spec.longest(), count);
    const auto n = static_cast<int64_t>(count);
    const qkv::ModelInput input{std::vector<int32_t>(ids, ids + n),
                                qkv::Layout::of({static_cast<int32_t>(n)})};
    const qkv::NoGrad guard;
    const qkv::Tensor z = m.logits(m.hidden(input, {}));
    std::ranges::copy(z.values<float>(), logits);
    return QKV_OK;
  });
}

qkv_status qkv_trace(const qkv_model* model, const int32_t* source, size_t source_count, const int32_t* ids,
                     size_t count, const char* names, qkv_on_value on_value, void* user, float* logits) {
  return guarded([&] {
    const qkv::Transformer& m = *model->text.model;
    const qkv::ModelSpec& spec = m.spec();
    const bool two = spec.architecture == qkv::Architecture::encoder_decoder;
    qkv::check(!two || source_count > 0, "trace: an encoder-decoder needs a source");
    qkv::check(two || source_count == 0, "trace: only an encoder-decoder reads a source");
    qkv::check(names != nullptr && on_value != nullptr, "trace: names and a callback are needed");
    const auto sequence = [](const int32_t* from, size_t n, int64_t longest, const char* what) {
      qkv::check(from != nullptr && n > 0 && static_cast<int64_t>(n) <= longest,
                 "trace: expected {} of between 1 and {} tokens, got {}", what, longest, n);
      return std::vector<int32_t>(from, from + n);
    };
    qkv::ModelInput input;
    if (two) {
      input.source = sequence(source, source_count, spec.encoder_spec().longest(), "a source");
      input.source_layout = qkv::Layout::of({static_cast<int32_t>(source_count)});
    }
    input.ids = sequence(ids, count, spec.longest(), "a sequence");
    input.layout = qkv::Layout::of({static_cast<int32_t>(count)});
    qkv::ValueStream stream(
        names, [&](const std::string& name, int64_t /*sequence*/, int64_t head, qkv::Tensor& x) {
          const qkv_value value = {sizeof(qkv_value), name.c_str(), head,
                                   x.dim(0),          x.dim(1),     x.mutable_values<float>().data()};
          qkv::check(on_value(user, &value) != 0, "trace: stopped at {}", name);
        });
    const qkv::NoGrad guard;
    qkv::Context context;
    context.probe = &stream;
    const qkv::Tensor hidden = m.hidden(input, context);
    if (logits != nullptr) std::ranges::copy(m.logits(hidden).values<float>(), logits);
    return QKV_OK;
  });
}

void qkv_generation_defaults(const qkv_model* model, qkv_generation* options, size_t size) {
  const qkv::GenerateOptions& g = model->text.generation.drawing;
  const size_t known = std::min(size, sizeof(qkv_generation));
  const qkv_generation all = {
      known,           g.max_new_tokens, g.sampler.temperature,        g.sampler.top_k,
      g.sampler.top_p, g.sampler.min_p,  g.sampler.repetition_penalty, 0,
      nullptr};
  std::memcpy(options, &all, known);
}

qkv_status qkv_generate(const qkv_model* model, const char* prompt, size_t length,
                        const qkv_generation* options, qkv_on_token on_token, void* user) {
  return guarded([&] {
    qkv_generation given;
    qkv_generation_defaults(model, &given, sizeof(given));
    if (options != nullptr) {
      qkv::check(options->size > 0 && options->size <= sizeof(given),
                 "generate: options of {} bytes: set them by qkv_generation_defaults()", options->size);
      std::memcpy(&given, options, options->size);
    }
    qkv::GenerationSettings settings = model->text.generation;
    settings.search.beams = 1;
    qkv::GenerateOptions& g = settings.drawing;
    if (given.max_new_tokens != g.max_new_tokens) g.rules.max_length = 0;  // the caller's value wins
    g.max_new_tokens = given.max_new_tokens;
    g.sampler.temperature = given.temperature;
    g.sampler.top_k = given.top_k;
    g.sampler.top_p = given.top_p;
    g.sampler.min_p = given.min_p;
    g.sampler.repetition_penalty = given.repetition_penalty;
    g.seed = given.seed;
    const std::set<std::string> more =
        given.settings == nullptr ? std::set<std::string>() : qkv::set_from_list(given.settings, settings);
    if (more.contains("max_new_tokens")) g.rules.max_length = 0;
    const bool searches = qkv::asks_for_search(settings, more);
    qkv::check_acting(
        settings, more, !searches, searches,
        [](const qkv::GenerationField& field, bool /*subject*/) { return std::string(field.key); });
    // Texts have no preferred prefix and no output for attention; the ends of translations are the model's.
    const bool translates = model->text.model->spec().architecture == qkv::Architecture::encoder_decoder;
    for (const auto& [key, acts] : {std::pair("prefix_bias_beta", false),
                                    {"output_attentions", false},
                                    {"forced_bos_token_id", !translates},
                                    {"eos_token_id", !translates || !searches}})
      qkv::check(acts || !more.contains(key), "generate: {} has no effect here", key);
    qkv::check_ids(settings, more, model->text.model->spec().vocab_size);
    const std::string_view text = text_of(prompt, length);
    if (searches) {
      for (const std::string& found : qkv::search(model->text, text, settings))
        if (on_token != nullptr && on_token(user, -1, found.data(), found.size()) == 0) break;
      return QKV_OK;
    }
    qkv::check(settings.returned == 1, "generate: num_return_sequences: {} needs a search (num_beams)",
               settings.returned);
    qkv::complete(model->text, text, g, [&](int32_t token, std::string_view piece) {
      return on_token == nullptr || on_token(user, token, piece.data(), piece.size()) != 0;
    });
    return QKV_OK;
  });
}

qkv_status qkv_embed(const qkv_model* model, const char* text, size_t length, float* vector) {
  return guarded([&] {
    const qkv::TextModel& m = model->text;
    qkv::check(m.model->spec().architecture == qkv::Architecture::encoder || m.sentence.has_value(),
               "embed: an encoder is needed, not {}", qkv::name_of(m.model->spec().architecture));
    const auto encoded =
        qkv::encode_text({std::string(text_of(text, length)), ""}, m.tokenizer, m.model->spec());
    std::ranges::copy(qkv::unit_embeddings(m, {encoded}).values<float>(), vector);
    return QKV_OK;
  });
}

}  // extern "C"
