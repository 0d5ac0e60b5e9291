#include "qkv/train/run/model_files.h"

#include "qkv/train/corpora/corpus.h"
#include "qkv/train/run/run_folder.h"
#include "qkv/train/run/run_setup.h"

namespace qkv {
namespace {

void set_source_ends(SpecialIds& ids, const SequenceEnds& ends) {
  ids.source_begin.emplace(ends.source_begin.begin(), ends.source_begin.end());
  ids.source_end.emplace(ends.source_end.begin(), ends.source_end.end());
}

// The padding token by which other libraries' classifiers find the last token of each text: one made for
// that, or one that ends texts and is not put behind each; -1: there is none.
int64_t padding_of(const text::Tokenizer& tokenizer, const SpecialIds& ids) {
  for (const char* token : {"<pad>", "[PAD]", "<|pad|>"})
    if (const auto id = tokenizer.token_to_id(token)) return *id;
  if (ids.eos.empty()) return -1;
  const std::vector<text::TokenId> around = tokenizer.encode("").ids;
  const bool put_behind = !around.empty() && static_cast<int64_t>(around.back()) == ids.eos[0];
  return put_behind ? -1 : ids.eos[0];
}

bool has_targets(const TrainConfig& config) {
  return writes_targets(config.objective) ||
         std::ranges::any_of(config.mix, [](const MixedSet& set) { return writes_targets(set.objective); });
}

// The model directory that has the auxiliary files; a run's first checkpoint has what its later ones need.
std::string auxiliary_files_of(const TrainConfig& config, const RunFolder& folder) {
  if (folder.has_checkpoint()) return folder.last();
  if (config.from.empty() || !config.part.empty()) return "";  // those of the whole do not fit its part
  return resolve_model_dir(config.from);
}

}  // namespace

SpecialIds special_ids_of(const text::Tokenizer& tokenizer, const ModelSpec& spec) {
  SpecialIds ids;
  const Architecture a = spec.architecture;
  const int32_t end = end_of_text(tokenizer);
  // SentencePiece's trainer adds these for every use; a decoder of pairs tells by its order.
  const bool of_pairs = tokenizer.token_to_id("<s>") && tokenizer.token_to_id("</s>");
  const bool of_texts = a == Architecture::decoder && spec.order != Order::prefix;
  if (end >= 0 && (!of_pairs || of_texts || a == Architecture::encoder)) {
    ids.bos = end;
    ids.eos = {end};
    if (a == Architecture::encoder_decoder) {
      ids.decoder_start = end;
      set_source_ends(ids, sequence_ends(tokenizer));
    }
  } else if (of_pairs && a != Architecture::encoder) {
    const SequenceEnds ends = sequence_ends(tokenizer);
    ids.bos = ends.bos;
    ids.eos = {ends.eos};
    ids.decoder_start = ends.bos;
    set_source_ends(ids, ends);
  }
  return ids;
}

ModelFiles model_files_of(const RunSetup& run, const RunFolder& folder) {
  const ModelSpec& spec = run.config.model;
  const text::Tokenizer& tokenizer = run.task->tokenizer();
  ModelFiles files{.tokenizer = tokenizer,
                   .ids = special_ids_of(tokenizer, spec),
                   .chat_template = run.task->chat_template(),
                   .auxiliary_files_of = auxiliary_files_of(run.config, folder)};
  const std::string begun = !files.auxiliary_files_of.empty() ? files.auxiliary_files_of
                            : run.config.part.empty()         ? ""
                                                              : resolve_model_dir(run.config.from);
  if (!begun.empty()) {
    SpecialIds before = load_special_ids(begun);
    if (files.auxiliary_files_of.empty())
      before = ids_of_part(before, from_name<Architecture>(run.config.part));
    files.ids.pad = before.pad;
    if (!before.eos.empty() && (before.decoder_start >= 0 || !has_targets(run.config)))
      files.ids = std::move(before);
  }
  for (const int64_t id : run.task->ends())
    if (std::ranges::find(files.ids.eos, id) == files.ids.eos.end()) files.ids.eos.push_back(id);
  if (files.ids.pad < 0 && spec.output == Output::sequence_classes &&
      spec.architecture == Architecture::decoder)
    files.ids.pad = padding_of(tokenizer, files.ids);
  return files;
}

}  // namespace qkv
