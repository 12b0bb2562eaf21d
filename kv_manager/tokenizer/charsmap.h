// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_CHARSMAP_H_
#define QUIRE_KV_MANAGER_TOKENIZER_CHARSMAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

// SentencePiece's compiled normalisation rules ("precompiled_charsmap"): a double-array trie that maps character
// sequences to offsets of NUL-terminated replacements. The file is not trusted: every index is checked, so a broken
// trie only fails to match. Thread-safe.
class Charsmap {
 public:
  // A rule that matches the start of a text.
  struct Match {
    size_t num_bytes;              // Bytes of the text that the rule replaces.
    std::string_view replacement;  // Valid as long as the Charsmap lives.
  };

  // `blob` is <trie bytes, uint32 little-endian> <trie> <replacements>. InvalidArgument when the sizes do not match.
  static absl::StatusOr<Charsmap> Parse(std::string_view blob);

  // Returns the rules that match at the start of `text`, from the shortest to the longest. Thread-safe.
  std::optional<Match> FindShortest(std::string_view text) const { return Find(text, /*is_longest=*/false); }
  std::optional<Match> FindLongest(std::string_view text) const { return Find(text, /*is_longest=*/true); }

 private:
  std::optional<Match> Find(std::string_view text, bool is_longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_CHARSMAP_H_
