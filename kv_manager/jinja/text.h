// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_TEXT_H_
#define QUIRE_KV_MANAGER_JINJA_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_range.h"

namespace quire::jinja {

using Range = ByteRange;

// A string that remembers which of its bytes come from a user. Every operation on strings keeps the marks, so that the
// text of a user is still marked in the rendered prompt. The bytes are valid UTF-8.
struct Text {
  std::string bytes;
  std::vector<Range> user;  // Sorted, not empty, with gaps between them.
  bool is_markup = false;   // The result of the filter `safe`, which adds other strings in their HTML-escaped form.
};

// Joins pieces to a text.
class TextBuilder {
 public:
  void Append(std::string_view bytes, bool from_user);
  void Append(const Text& text) { AppendSlice(text, 0, text.bytes.size()); }
  // REQUIRES: begin <= end <= the size of `text`.
  void AppendSlice(const Text& text, size_t begin, size_t end);
  size_t size() const { return text_.bytes.size(); }
  const Text& text() const { return text_; }
  // Returns the text. The builder is empty afterwards.
  Text Take();

 private:
  Text text_;
};

// Says for rising positions whether the byte comes from a user.
class MarkCursor {
 public:
  explicit MarkCursor(const Text& text) : text_(&text) {}
  // REQUIRES: `pos` is not smaller than in the call before.
  bool IsUser(size_t pos) {
    while (next_ < text_->user.size() && text_->user[next_].end <= pos) ++next_;
    return next_ < text_->user.size() && text_->user[next_].begin <= pos;
  }

 private:
  const Text* text_;
  size_t next_ = 0;
};

// The functions below work as the string methods of Python with the same names.

size_t NumCharacters(std::string_view bytes);
// Returns the byte at which character `index` starts, or the size. `index` counts characters.
size_t ByteOfCharacter(std::string_view bytes, size_t index);
bool IsSpace(char32_t c);
// Returns the range that is left of `bytes` without characters of `chars` at its ends, or without whitespace when
// `chars` is null.
Range Strip(std::string_view bytes, const std::string_view* chars, bool left, bool right);
Text Slice(const Text& text, size_t begin, size_t end);
// Return where `part` begins in `bytes` for the first time at or after `begin`, or for the last time, or npos. They
// take linear time, because templates and clients choose both: the time of std::string::find can be the product of the
// lengths.
size_t Find(std::string_view bytes, std::string_view part, size_t begin = 0);
size_t FindLast(std::string_view bytes, std::string_view part);
std::vector<Range> SplitLines(std::string_view bytes);
// Returns the pieces between the separators, or between whitespace when `separator` is null. A negative `max_splits` is
// no limit. REQUIRES: `separator` is not empty.
std::vector<Range> Split(std::string_view bytes, const std::string_view* separator, int64_t max_splits,
                         bool from_right);
// A negative `max_count` is no limit.
Text Replace(const Text& text, const Text& from, const Text& to, int64_t max_count);
Text EscapeHtml(const Text& text);

Text ToUpper(const Text& text);
Text ToLower(const Text& text);
Text Capitalize(const Text& text);
// The method `title`. The filter of the same name begins words elsewhere.
Text TitleMethod(const Text& text);
Text TitleFilter(const Text& text);
Text SwapCase(const Text& text);

enum class CharacterClass { kAlpha, kDigit, kAlnum, kSpace, kUpper, kLower, kDecimal };
// Returns whether the text is not empty and all of its characters belong to the class. kUpper and kLower ignore
// characters without case, as long as there is one with case.
bool Is(CharacterClass which, std::string_view bytes);

// Appends `c` as Python's repr shows it in a string that is quoted with `quote`.
void AppendReprCharacter(char32_t c, char quote, std::string* out);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_TEXT_H_
