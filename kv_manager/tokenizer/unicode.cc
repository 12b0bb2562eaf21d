// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/unicode_tables.h"

namespace quire {
namespace {

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsLetterOrMark(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME;
}

utf8proc_option_t Options(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case NormalForm::kNfd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NormalForm::kNfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNfkd:
      break;
  }
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

void AppendNormalForm(NormalForm form, std::string_view text, std::string* out) {
  if (text.empty() || IsAscii(text)) {
    out->append(text);
    return;
  }
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped, Options(form));
  // The only possible failures are invalid UTF-8, which the caller excludes, and lack of memory.
  if (size >= 0) out->append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  std::free(mapped);
}

}  // namespace

bool IsWhitespace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) || InRanges(kNewNumeric, c);
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return absl::ascii_ispunct(static_cast<unsigned char>(c));
  const utf8proc_category_t category = Category(c);
  const bool is_punctuation = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
  return (is_punctuation && !InRanges(kNewPunctuation, c)) || InRanges(kFormerPunctuation, c);
}

bool IsWordCharacter(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return IsLetterOrMark(c) || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || InRanges(kOtherWordCharacters, c);
}

void AppendLowercase(char32_t c, std::string* out) {
  if (c == 0x130) {
    out->append("i\xCC\x87");
    return;
  }
  if (const Mapping* mapping = FindMapping(kNewLowercase, c)) {
    AppendUtf8(mapping->target + (c - mapping->first), out);
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

std::string ToNormalForm(NormalForm form, std::string_view text) {
  if (IsAscii(text)) return std::string(text);
  // A character without decomposition, without composition and with combining class 0 separates the text before it from
  // the text after it. The text between two such characters can be normalised on its own.
  std::string out;
  size_t begin = 0;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t start = pos;
    const char32_t c = DecodeUtf8(text, &pos);
    if (!InRanges(kInertInNormalForms, c)) continue;
    AppendNormalForm(form, text.substr(begin, start - begin), &out);
    out.append(text.substr(start, pos - start));
    begin = pos;
  }
  AppendNormalForm(form, text.substr(begin), &out);
  return out;
}

std::string_view WithKnownCharacters(std::string_view text, std::string* storage) {
  // All new characters have three or four bytes; the first of them is U+0897.
  bool is_changed = false;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t start = pos;
    if (static_cast<unsigned char>(text[pos]) < 0xE0) {
      pos += Utf8Length(text[pos]);
      continue;
    }
    const char32_t c = DecodeUtf8(text, &pos);
    const Mapping* mapping = FindMapping(kKnownReplacement, c);
    if (mapping == nullptr) continue;
    if (!is_changed) storage->assign(text);
    is_changed = true;
    std::string replacement;
    AppendUtf8(mapping->target, &replacement);
    storage->replace(start, pos - start, replacement);
  }
  return is_changed ? std::string_view(*storage) : text;
}

size_t NextGraphemeBoundary(std::string_view text, size_t pos) {
  const auto read = [text](size_t* at) {
    const char32_t c = DecodeUtf8(text, at);
    return static_cast<utf8proc_int32_t>(InRanges(kNewGraphemeExtend, c) ? 0x300 : c);
  };
  utf8proc_int32_t state = 0;
  utf8proc_int32_t left = read(&pos);
  while (pos < text.size()) {
    size_t next = pos;
    const utf8proc_int32_t right = read(&next);
    if (utf8proc_grapheme_break_stateful(left, right, &state)) break;
    left = right;
    pos = next;
  }
  return pos;
}

}  // namespace quire
