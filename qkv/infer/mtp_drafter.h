// Drafts by the model itself, with its modules of multi-token prediction.
#pragma once

#include <map>

#include "qkv/infer/drafter.h"
#include "qkv/models/transformer.h"
#include "qkv/nn/states.h"

namespace qkv {

// Module k drafts the k-th token after the one that the model has just chosen (models/mtp.h). The modules
// read what the model's last block has left of the tokens so far, so that no token is read twice.
class MtpDrafter : public Drafter {
 public:
  // The model must outlive the drafter. Throws Error if it has no modules.
  explicit MtpDrafter(const Transformer& model);

  bool reads_rows() const override { return true; }
  void read(int64_t request, int64_t first, const Tensor& rows) override;
  std::vector<std::vector<int32_t>> draft(std::span<const DraftQuery> queries) override;
  void end(int64_t request) override { readings_.erase(request); }

 private:
  // A module's memory of a request, and the rows of its input that it will read next.
  struct ModuleState {
    DecodingStates states;
    int64_t length = 0;
    Tensor next = {};  // undefined: none
  };
  // A request's text from token `first` on, of which `length` tokens have rows.
  struct Reading {
    int64_t first = 0, length = 0;
    std::vector<ModuleState> modules = {};
  };

  std::vector<int32_t> draft(const DraftQuery& query);

  const Transformer& model_;
  std::map<int64_t, Reading> readings_;
};

}  // namespace qkv
