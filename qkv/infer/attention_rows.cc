#include "qkv/infer/attention_rows.h"

namespace qkv {

AttentionRows::AttentionRows(const ModelSpec& spec)
    : name_(fmt::format("decoder.block.{}.cross_attention.probabilities", spec.layers - 1)) {
  check(spec.architecture == Architecture::encoder_decoder && spec.recurrence.decoder == Cell::none &&
            !spec.block(spec.layers - 1).attention.cross_linear,
        "attention to a source: only an encoder-decoder whose decoder has blocks of attention has it, and "
        "not by "
        "cross_linear");
}

void AttentionRows::visit_head(std::string_view /*name*/, int64_t sequence, int64_t head,
                               Tensor& probabilities) {
  if (head != 0) return;
  Rows& rows = rows_[sequence];
  rows.clear();
  for (int64_t t = 0; t < probabilities.dim(0); ++t) {
    const auto row = probabilities.row<float>(t);
    rows.emplace_back(row.begin(), row.end());
  }
}

}  // namespace qkv
