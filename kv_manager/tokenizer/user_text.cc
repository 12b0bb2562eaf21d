// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/user_text.h"

#include <algorithm>

#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/sentencepiece_normalizer.h"
#include "kv_manager/tokenizer/unicode.h"

namespace quire {
namespace {

// A part of a text that lies inside or outside of the ranges as a whole.
struct Part {
  std::string form;  // Normalised on its own.
  bool is_user;
};

// The range that follows all ranges that end at or before `pos`.
const ByteRange* FirstAfter(absl::Span<const ByteRange> ranges, size_t pos) {
  return std::partition_point(ranges.begin(), ranges.end(), [&](const ByteRange& range) { return range.end <= pos; });
}

// A character that normalisers may put in front of every text, or behind it. Every part has it then, but the whole text
// has it only once.
enum class Affix { kNone, kPrefix, kSuffix };

std::string_view WithoutFirstCharacter(std::string_view form) {
  return form.empty() ? form : form.substr(Utf8Length(form.front()));
}

std::string_view WithoutLastCharacter(std::string_view form) {
  while (!form.empty() && (static_cast<unsigned char>(form.back()) & 0xC0) == 0x80) form.remove_suffix(1);
  if (!form.empty()) form.remove_suffix(1);
  return form;
}

// Finds the parts in `normalized`, one after the other. Returns false when they are not exactly there.
bool Locate(const std::vector<Part>& parts, Affix affix, std::string_view normalized, std::vector<ByteRange>* user) {
  size_t pos = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string_view form = parts[i].form;
    if (affix == Affix::kPrefix && i > 0) form = WithoutFirstCharacter(form);
    if (affix == Affix::kSuffix && i + 1 < parts.size()) form = WithoutLastCharacter(form);
    if (normalized.substr(pos, form.size()) != form) return false;
    if (parts[i].is_user && !form.empty()) user->push_back({pos, pos + form.size()});
    pos += form.size();
  }
  return pos == normalized.size();
}

}  // namespace

bool Overlaps(absl::Span<const ByteRange> ranges, size_t begin, size_t end) {
  const ByteRange* const next = FirstAfter(ranges, begin);
  return next != ranges.end() && next->begin < end;
}

std::vector<ByteRange> Clip(absl::Span<const ByteRange> ranges, size_t begin, size_t end) {
  std::vector<ByteRange> clipped;
  for (const ByteRange* range = FirstAfter(ranges, begin); range != ranges.end() && range->begin < end; ++range) {
    clipped.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  }
  return clipped;
}

bool IsOnlySpace(std::string_view content) {
  for (size_t pos = 0; pos < content.size();) {
    if (content.substr(pos, kSpaceSymbol.size()) == kSpaceSymbol) {
      pos += kSpaceSymbol.size();
    } else if (!IsWhitespace(DecodeUtf8(content, &pos))) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<std::vector<ByteRange>> AlignUserRanges(
    std::string_view text, absl::Span<const ByteRange> user, std::string_view normalized,
    const std::function<absl::StatusOr<std::string>(std::string_view)>& normalize) {
  if (user.empty() || normalized.empty()) return std::vector<ByteRange>();
  std::vector<Part> parts;
  const auto add = [&](size_t begin, size_t end, bool is_user) -> absl::Status {
    if (begin == end) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(std::string form, normalize(text.substr(begin, end - begin)));
    parts.push_back({std::move(form), is_user});
    return absl::OkStatus();
  };
  size_t covered = 0;
  for (const ByteRange& range : user) {
    QUIRE_RETURN_IF_ERROR(add(covered, range.begin, false));
    QUIRE_RETURN_IF_ERROR(add(range.begin, range.end, true));
    covered = range.end;
  }
  QUIRE_RETURN_IF_ERROR(add(covered, text.size(), false));
  for (const Affix affix : {Affix::kNone, Affix::kPrefix, Affix::kSuffix}) {
    std::vector<ByteRange> aligned;
    if (Locate(parts, affix, normalized, &aligned)) return aligned;
  }
  return std::vector<ByteRange>{{0, normalized.size()}};
}

}  // namespace quire
