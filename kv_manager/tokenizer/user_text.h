// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_USER_TEXT_H_
#define QUIRE_KV_MANAGER_TOKENIZER_USER_TEXT_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/byte_range.h"

// Ranges of a text that come from a user. They are sorted, are not empty and do not overlap.

namespace quire {

// Returns whether the bytes [begin, end) have a byte in `ranges`. O(log n).
bool Overlaps(absl::Span<const ByteRange> ranges, size_t begin, size_t end);

// Returns the parts of `ranges` in [begin, end), counted from `begin`.
std::vector<ByteRange> Clip(absl::Span<const ByteRange> ranges, size_t begin, size_t end);

// Returns whether a token of this content can only make space, so that nobody is harmed when the text of a user becomes
// that token. Code is full of such tokens.
bool IsOnlySpace(std::string_view content);

// Returns the ranges of `normalized`, the normalised form of `text`, that come from the ranges `user` of `text`. When
// the normaliser has changed the text across the border of a range, so that its parts cannot be told apart, everything
// is one range. Fails only when `normalize` does.
absl::StatusOr<std::vector<ByteRange>> AlignUserRanges(
    std::string_view text, absl::Span<const ByteRange> user, std::string_view normalized,
    const std::function<absl::StatusOr<std::string>(std::string_view)>& normalize);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_USER_TEXT_H_
