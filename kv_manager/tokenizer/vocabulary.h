// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_VOCABULARY_H_
#define QUIRE_KV_MANAGER_TOKENIZER_VOCABULARY_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace quire {

// The largest vocabularies in use have about 2^18 tokens. A file that has a larger id than this is broken.
inline constexpr TokenId kMaxTokenId = (1 << 21) - 1;
inline constexpr TokenId kNoToken = -1;

// Maps ids to pieces and pieces to ids. Ids may have gaps. Thread-safe once it is filled.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Replaces the contents. The pairs (piece, id) are in any order. InvalidArgument when an id is outside of 0 ..
  // kMaxTokenId, or when an id or a piece is given twice.
  absl::Status Assign(std::vector<std::pair<std::string, TokenId>> pieces);

  // Returns kNoToken when there is no such piece.
  TokenId Find(std::string_view piece) const {
    const auto it = ids_.find(absl::string_view(piece.data(), piece.size()));
    return it == ids_.end() ? kNoToken : it->second;
  }
  bool Contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < ids_in_use_.size() && ids_in_use_[id]; }
  // REQUIRES: Contains(id). Valid as long as the vocabulary lives.
  const std::string& piece(TokenId id) const { return pieces_[id]; }

  // One more than the largest id.
  size_t size() const { return pieces_.size(); }

 private:
  std::vector<std::string> pieces_;                      // [size], empty for a gap
  std::vector<bool> ids_in_use_;                         // [size]
  absl::flat_hash_map<absl::string_view, TokenId> ids_;  // Keys are views of pieces_.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_VOCABULARY_H_
