// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_ADDED_VOCABULARY_H_
#define QUIRE_KV_MANAGER_TOKENIZER_ADDED_VOCABULARY_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/byte_range.h"
#include "base/ids.h"
#include "kv_manager/tokenizer/normalizer.h"
#include "kv_manager/tokenizer/prefix_trie.h"
#include "kv_manager/tokenizer/text_piece.h"

namespace quire {

// A token of "added_tokens". The tokenizer looks for it in the text itself, before the model sees the text.
struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool single_word = false;  // Matches only where no word character is next to it.
  bool lstrip = false;       // The match includes whitespace on its left.
  bool rstrip = false;       // The match includes whitespace on its right.
  bool normalized = false;   // Its normalised form is looked for in the normalised text.
  bool special = false;      // Omitted when decoding skips special tokens.
};

// The added tokens of a tokenizer.json. Thread-safe once it is built.
class AddedVocabulary {
 public:
  // `normalizer` may be null and is used only during the call. InvalidArgument when a content is empty, or when two
  // tokens share an id or the form that is looked for.
  static absl::StatusOr<AddedVocabulary> Create(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  // Cuts `text` (valid UTF-8) into added tokens and the normalised pieces between them, and leaves out empty pieces.
  // Tokens that are not normalised are found first, in the text as it is. The other tokens are found in the normalised
  // pieces. The leftmost match counts, and of several at one place the longest. Without `parses_special`, special
  // tokens are ordinary text. A match that touches the text of a user, which is at `user` (EncodeOptions), counts only
  // when IsControl is false for it, and does not hide the matches behind its beginning.
  absl::StatusOr<std::vector<TextPiece>> Extract(std::string_view text, const Normalizer* normalizer,
                                                 bool parses_special, absl::Span<const ByteRange> user = {}) const;

  // Returns whether the text of a user must not become this token: it is an added token of more than space.
  bool IsControl(TokenId id) const;

  // Returns null when `id` is no added token.
  const AddedToken* Find(TokenId id) const;
  // The text that decoding uses for an added token, which is the form that is looked for. REQUIRES: Find(id) !=
  // nullptr.
  const std::string& DecodedContent(TokenId id) const { return patterns_[index_.at(id)]; }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  // A piece that Split has cut, and where it is in the text that was split.
  struct Cut {
    TextPiece piece;
    ByteRange range;
  };
  struct Match {
    size_t num_bytes = 0;  // 0: there is none.
    size_t index = 0;      // Into tokens_.
  };

  // Returns the matches in `piece` and the text between them.
  std::vector<Cut> Split(const TextPiece& piece, const PrefixTrie& trie, bool parses_special,
                         absl::Span<const ByteRange> user) const;
  // Returns the longest match at `pos`.
  Match FindMatch(std::string_view text, size_t pos, const PrefixTrie& trie, absl::Span<const ByteRange> user) const;
  // Returns where the normalised form `normalized` of `text` comes from the user. The result is empty when nothing is
  // looked for there.
  absl::StatusOr<std::vector<ByteRange>> NormalizedUserRanges(std::string_view text, absl::Span<const ByteRange> user,
                                                              const std::string& normalized,
                                                              const Normalizer* normalizer) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::string> patterns_;           // [tokens_.size()], the forms that are looked for
  std::vector<bool> is_control_;                // [tokens_.size()]
  absl::flat_hash_map<TokenId, size_t> index_;  // Values are indices into tokens_.
  PrefixTrie plain_trie_;                       // Values are indices into tokens_.
  PrefixTrie normalized_trie_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_ADDED_VOCABULARY_H_
