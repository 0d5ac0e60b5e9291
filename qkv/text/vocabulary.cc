#include "qkv/text/vocabulary.h"

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"

namespace qkv::text {

Vocabulary::Vocabulary(const JsonField& field) {
  const Json& members = field.object();
  ids_.reserve(members.size());
  for (auto it = members.begin(); it != members.end(); ++it) {
    const bool plain =
        it->is_number_unsigned() && it->get<uint64_t>() <= static_cast<uint64_t>(kLargestTokenId);
    if (!plain) field[it.key()].integer(0, kLargestTokenId);  // throws Error naming the member
    const auto id = it->get<TokenId>();
    if (!add(it.key(), id)) {
      fail("{}: the id {} belongs to both \"{}\" and \"{}\"", field.place(), id, *token(id), it.key());
    }
  }
}

OrderedJson Vocabulary::to_json() const {
  OrderedJson::object_t members;
  for (size_t id = 0; id < by_id_.size(); ++id) {
    // Appends through the base class: ordered_map's own insertion searches the keys from the front.
    using Members = std::vector<std::pair<const std::string, OrderedJson>>;
    if (by_id_[id] != nullptr) static_cast<Members&>(members).emplace_back(*by_id_[id], id);
  }
  return members;
}

bool Vocabulary::add(std::string token, TokenId id) {
  if (this->token(id) != nullptr) return false;
  const auto [it, added] = ids_.emplace(std::move(token), id);
  if (!added) return false;
  if (static_cast<size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<size_t>(id) + 1, nullptr);
  by_id_[static_cast<size_t>(id)] = &it->first;
  return true;
}

TokenId Vocabulary::find(std::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? kNoToken : it->second;
}

const std::string* Vocabulary::token(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < by_id_.size() ? by_id_[static_cast<size_t>(id)] : nullptr;
}

}  // namespace qkv::text
