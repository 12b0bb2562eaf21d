// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_format.h"
#include "base/utf8.h"

namespace quire::jinja {
namespace {

size_t PreviousCharacter(std::string_view bytes, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(bytes[end]) & 0xC0) == 0x80);
  return end;
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsUpper(char32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}

bool IsLower(char32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}

bool HasCase(char32_t c) {
  return IsUpper(c) || IsLower(c) || Category(c) == UTF8PROC_CATEGORY_LT;
}

enum class LetterCase { kUpper, kLower, kTitle };

// The one character that is common in text and has an upper case of two characters.
constexpr char32_t kSharpS = 0xDF;

void AppendInCase(char32_t c, LetterCase to, std::string* out) {
  if (c == kSharpS && to != LetterCase::kLower) {
    out->append(to == LetterCase::kUpper ? "SS" : "Ss");
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  const utf8proc_int32_t mapped = to == LetterCase::kUpper   ? utf8proc_toupper(code)
                                  : to == LetterCase::kLower ? utf8proc_tolower(code)
                                                             : utf8proc_totitle(code);
  AppendUtf8(static_cast<char32_t>(mapped), out);
}

// Replaces each character by it in the case that `choose` returns for it.
template <typename Choose>
Text MapCase(const Text& text, Choose choose) {
  TextBuilder out;
  MarkCursor marks(text);
  std::string mapped;
  for (size_t pos = 0; pos < text.bytes.size();) {
    const bool is_user = marks.IsUser(pos);
    const char32_t c = DecodeUtf8(text.bytes, &pos);
    mapped.clear();
    AppendInCase(c, choose(c), &mapped);
    out.Append(mapped, is_user);
  }
  Text changed = out.Take();
  changed.is_markup = text.is_markup;
  return changed;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::vector<Range> SplitAtSpace(std::string_view bytes, int64_t max_splits) {
  std::vector<Range> words;
  size_t pos = 0;
  while (true) {
    pos += Strip(bytes.substr(pos), nullptr, true, false).begin;
    if (pos >= bytes.size()) return words;
    if (max_splits >= 0 && static_cast<int64_t>(words.size()) >= max_splits) {
      words.push_back({pos, bytes.size()});
      return words;
    }
    const size_t begin = pos;
    while (pos < bytes.size()) {
      size_t next = pos;
      if (IsSpace(DecodeUtf8(bytes, &next))) break;
      pos = next;
    }
    words.push_back({begin, pos});
  }
}

std::vector<Range> SplitAtSpaceFromRight(std::string_view bytes, int64_t max_splits) {
  std::vector<Range> words;
  size_t end = bytes.size();
  while (true) {
    end = Strip(bytes.substr(0, end), nullptr, false, true).end;
    if (end == 0) break;
    if (max_splits >= 0 && static_cast<int64_t>(words.size()) >= max_splits) {
      words.push_back({0, end});
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t previous = PreviousCharacter(bytes, begin);
      size_t pos = previous;
      if (IsSpace(DecodeUtf8(bytes, &pos))) break;
      begin = previous;
    }
    words.push_back({begin, end});
    end = begin;
  }
  std::reverse(words.begin(), words.end());
  return words;
}

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace

void TextBuilder::Append(std::string_view bytes, bool from_user) {
  if (bytes.empty()) return;
  const size_t begin = text_.bytes.size();
  text_.bytes.append(bytes);
  if (!from_user) return;
  if (!text_.user.empty() && text_.user.back().end == begin) {
    text_.user.back().end = text_.bytes.size();
  } else {
    text_.user.push_back({begin, text_.bytes.size()});
  }
}

void TextBuilder::AppendSlice(const Text& text, size_t begin, size_t end) {
  auto range = std::lower_bound(text.user.begin(), text.user.end(), begin,
                                [](const Range& range, size_t pos) { return range.end <= pos; });
  const std::string_view bytes = text.bytes;
  while (begin < end) {
    const bool is_user = range != text.user.end() && range->begin <= begin;
    size_t stop = end;
    if (range != text.user.end()) stop = std::min(end, is_user ? range->end : range->begin);
    Append(bytes.substr(begin, stop - begin), is_user);
    if (is_user) ++range;
    begin = stop;
  }
}

Text TextBuilder::Take() {
  Text text = std::move(text_);
  text_ = Text();
  return text;
}

size_t NumCharacters(std::string_view bytes) {
  return static_cast<size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t ByteOfCharacter(std::string_view bytes, size_t index) {
  size_t pos = 0;
  while (index > 0 && pos < bytes.size()) {
    pos += Utf8Length(bytes[pos]);
    --index;
  }
  return pos;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

Range Strip(std::string_view bytes, const std::string_view* chars, bool left, bool right) {
  const auto is_stripped = [&](size_t begin, size_t end) {
    if (chars != nullptr) return chars->find(bytes.substr(begin, end - begin)) != std::string_view::npos;
    return IsSpace(DecodeUtf8(bytes, &begin));
  };
  Range range{0, bytes.size()};
  while (left && range.begin < range.end) {
    const size_t next = range.begin + Utf8Length(bytes[range.begin]);
    if (!is_stripped(range.begin, next)) break;
    range.begin = next;
  }
  while (right && range.begin < range.end) {
    const size_t previous = PreviousCharacter(bytes, range.end);
    if (!is_stripped(previous, range.end)) break;
    range.end = previous;
  }
  return range;
}

Text Slice(const Text& text, size_t begin, size_t end) {
  TextBuilder out;
  out.AppendSlice(text, begin, end);
  Text slice = out.Take();
  slice.is_markup = text.is_markup;
  return slice;
}

size_t Find(std::string_view bytes, std::string_view part, size_t begin) {
  if (begin > bytes.size()) return std::string_view::npos;
  const void* const found = memmem(bytes.data() + begin, bytes.size() - begin, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
}

size_t FindLast(std::string_view bytes, std::string_view part) {
  if (part.size() > bytes.size()) return std::string_view::npos;
  const std::string backwards(bytes.rbegin(), bytes.rend());
  const size_t found = Find(backwards, std::string(part.rbegin(), part.rend()));
  return found == std::string_view::npos ? found : bytes.size() - found - part.size();
}

std::vector<Range> SplitLines(std::string_view bytes) {
  std::vector<Range> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t end = pos;
    const char32_t c = DecodeUtf8(bytes, &pos);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && pos < bytes.size() && bytes[pos] == '\n') ++pos;
    lines.push_back({begin, end});
    begin = pos;
  }
  if (begin < bytes.size()) lines.push_back({begin, bytes.size()});
  return lines;
}

std::vector<Range> Split(std::string_view bytes, const std::string_view* separator, int64_t max_splits,
                         bool from_right) {
  if (separator == nullptr) {
    return from_right ? SplitAtSpaceFromRight(bytes, max_splits) : SplitAtSpace(bytes, max_splits);
  }
  if (from_right) {
    const std::string backwards(bytes.rbegin(), bytes.rend());
    const std::string separator_backwards(separator->rbegin(), separator->rend());
    const std::string_view reversed = separator_backwards;
    std::vector<Range> pieces = Split(backwards, &reversed, max_splits, /*from_right=*/false);
    for (Range& piece : pieces) piece = {bytes.size() - piece.end, bytes.size() - piece.begin};
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }
  std::vector<Range> pieces;
  size_t begin = 0;
  while (max_splits < 0 || static_cast<int64_t>(pieces.size()) < max_splits) {
    const size_t found = Find(bytes, *separator, begin);
    if (found == std::string_view::npos) break;
    pieces.push_back({begin, found});
    begin = found + separator->size();
  }
  pieces.push_back({begin, bytes.size()});
  return pieces;
}

Text Replace(const Text& text, const Text& from, const Text& to, int64_t max_count) {
  TextBuilder out;
  const std::string_view bytes = text.bytes;
  size_t begin = 0;
  int64_t count = 0;
  const auto may_replace = [&] { return max_count < 0 || count < max_count; };
  if (from.bytes.empty()) {
    // An empty text is found before each character and at the end.
    while (may_replace()) {
      out.Append(to);
      ++count;
      if (begin >= bytes.size()) break;
      const size_t next = begin + Utf8Length(bytes[begin]);
      out.AppendSlice(text, begin, next);
      begin = next;
    }
  }
  while (!from.bytes.empty() && may_replace()) {
    const size_t found = Find(bytes, from.bytes, begin);
    if (found == std::string_view::npos) break;
    out.AppendSlice(text, begin, found);
    out.Append(to);
    begin = found + from.bytes.size();
    ++count;
  }
  out.AppendSlice(text, begin, bytes.size());
  Text replaced = out.Take();
  replaced.is_markup = text.is_markup;
  return replaced;
}

Text EscapeHtml(const Text& text) {
  TextBuilder out;
  MarkCursor marks(text);
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    const std::string_view escaped = c == '&'    ? "&amp;"
                                     : c == '<'  ? "&lt;"
                                     : c == '>'  ? "&gt;"
                                     : c == '\'' ? "&#39;"
                                     : c == '"'  ? "&#34;"
                                                 : std::string_view(&text.bytes[i], 1);
    out.Append(escaped, marks.IsUser(i));
  }
  Text escaped = out.Take();
  escaped.is_markup = true;
  return escaped;
}

Text ToUpper(const Text& text) {
  return MapCase(text, [](char32_t) { return LetterCase::kUpper; });
}

Text ToLower(const Text& text) {
  return MapCase(text, [](char32_t) { return LetterCase::kLower; });
}

Text Capitalize(const Text& text) {
  bool is_first = true;
  return MapCase(text, [&](char32_t) {
    const LetterCase to = is_first ? LetterCase::kTitle : LetterCase::kLower;
    is_first = false;
    return to;
  });
}

Text TitleMethod(const Text& text) {
  bool is_in_word = false;
  return MapCase(text, [&](char32_t c) {
    const LetterCase to = is_in_word ? LetterCase::kLower : LetterCase::kTitle;
    is_in_word = HasCase(c);
    return to;
  });
}

Text TitleFilter(const Text& text) {
  bool begins_word = true;
  Text title = MapCase(text, [&](char32_t c) {
    const LetterCase to = begins_word ? LetterCase::kUpper : LetterCase::kLower;
    begins_word = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
    return to;
  });
  title.is_markup = false;
  return title;
}

Text SwapCase(const Text& text) {
  return MapCase(text, [](char32_t c) { return IsUpper(c) ? LetterCase::kLower : LetterCase::kUpper; });
}

bool Is(CharacterClass which, std::string_view bytes) {
  if (bytes.empty()) return false;
  bool has_case = false;
  for (size_t pos = 0; pos < bytes.size();) {
    const char32_t c = DecodeUtf8(bytes, &pos);
    const bool is_decimal = Category(c) == UTF8PROC_CATEGORY_ND;
    bool belongs = true;
    switch (which) {
      case CharacterClass::kAlpha:
        belongs = IsLetter(c);
        break;
      case CharacterClass::kDigit:
      case CharacterClass::kDecimal:
        belongs = is_decimal;
        break;
      case CharacterClass::kAlnum:
        belongs = IsLetter(c) || (Category(c) >= UTF8PROC_CATEGORY_ND && Category(c) <= UTF8PROC_CATEGORY_NO);
        break;
      case CharacterClass::kSpace:
        belongs = IsSpace(c);
        break;
      case CharacterClass::kUpper:
        has_case = has_case || IsUpper(c);
        belongs = !HasCase(c) || IsUpper(c);
        break;
      case CharacterClass::kLower:
        has_case = has_case || IsLower(c);
        belongs = !HasCase(c) || IsLower(c);
        break;
    }
    if (!belongs) return false;
  }
  return (which != CharacterClass::kUpper && which != CharacterClass::kLower) || has_case;
}

void AppendReprCharacter(char32_t c, char quote, std::string* out) {
  if (c == static_cast<char32_t>(quote) || c == '\\') {
    out->push_back('\\');
    out->push_back(static_cast<char>(c));
  } else if (c == '\n') {
    out->append("\\n");
  } else if (c == '\r') {
    out->append("\\r");
  } else if (c == '\t') {
    out->append("\\t");
  } else if (IsPrintable(c)) {
    AppendUtf8(c, out);
  } else if (c < 0x100) {
    absl::StrAppendFormat(out, "\\x%02x", static_cast<uint32_t>(c));
  } else if (c < 0x10000) {
    absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(c));
  } else {
    absl::StrAppendFormat(out, "\\U%08x", static_cast<uint32_t>(c));
  }
}

}  // namespace quire::jinja
