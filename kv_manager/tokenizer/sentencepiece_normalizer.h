// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/charsmap.h"
#include "kv_manager/tokenizer/prefix_trie.h"
#include "kv_manager/tokenizer/sentencepiece_model.h"

namespace quire {

// Does what SentencePiece does to a text before it looks for pieces. It applies its rules (the longest that matches),
// and, as the model demands, writes spaces as U+2581, adds a dummy space in front, and collapses runs of spaces.
// Thread-safe.
class SentencePieceNormalizer {
 public:
  // InvalidArgument when the rules are broken. Without `adds_prefix` there is no dummy space.
  static absl::StatusOr<SentencePieceNormalizer> Create(const SentencePieceModel& model, bool adds_prefix);

  // `user_defined` are the pieces that rules leave alone. InvalidArgument when `text` (valid UTF-8) grows beyond a
  // limit.
  absl::StatusOr<std::string> Normalize(std::string_view text, const PrefixTrie& user_defined) const;

 private:
  // Returns the normalised form of the start of `text`, and how many bytes of `text` that replaces.
  std::pair<std::string_view, size_t> NormalizePrefix(std::string_view text, const PrefixTrie& user_defined) const;
  std::string_view space() const;

  std::optional<Charsmap> charsmap_;
  bool add_dummy_prefix_ = true;
  bool remove_extra_whitespaces_ = true;
  bool escape_whitespaces_ = true;
  bool treat_whitespace_as_suffix_ = false;
};

// The character U+2581, which SentencePiece writes for a space.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
