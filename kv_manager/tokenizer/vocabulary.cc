// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {

absl::Status Vocabulary::Assign(std::vector<std::pair<std::string, TokenId>> pieces) {
  ids_.clear();
  pieces_.clear();
  ids_in_use_.clear();
  TokenId largest = kNoToken;
  for (const auto& [piece, id] : pieces) {
    if (id < 0 || id > kMaxTokenId) {
      return absl::InvalidArgumentError(
          absl::StrCat("token \"", piece, "\" has id ", id, ", ids are 0 to ", kMaxTokenId));
    }
    largest = std::max(largest, id);
  }
  pieces_.resize(static_cast<size_t>(largest + 1));
  ids_in_use_.resize(pieces_.size());
  ids_.reserve(pieces.size());
  for (auto& [piece, id] : pieces) {
    if (ids_in_use_[id]) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokens \"", pieces_[id], "\" and \"", piece, "\" have the same id ", id));
    }
    ids_in_use_[id] = true;
    pieces_[id] = std::move(piece);
    if (!ids_.emplace(pieces_[id], id).second) {
      return absl::InvalidArgumentError(absl::StrCat("token \"", pieces_[id], "\" is in the vocabulary twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
