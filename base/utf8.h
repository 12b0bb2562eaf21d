// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_UTF8_H_
#define QUIRE_BASE_UTF8_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

// Small UTF-8 helpers. Text is checked once, where it enters the program. All later code may assume valid UTF-8.

namespace quire {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

bool IsValidUtf8(std::string_view text);
// Describes the first ill-formed sequence of a text with its byte offset, as in "is not valid UTF-8: byte 2 of 4 is
// 0xff". Surrogates and overlong forms are ill-formed. Returns nothing when the text is valid.
std::optional<std::string> Utf8Error(std::string_view text);
// Returns INVALID_ARGUMENT when the text is not valid UTF-8. The message is `what`, a space, and the error.
absl::Status CheckUtf8(std::string_view text, std::string_view what);

// The length in bytes of the character that starts with `lead`. REQUIRES: the lead byte of valid UTF-8.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The number of characters. REQUIRES: the text is valid UTF-8.
inline size_t NumCodePoints(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

// Decodes the character at `*pos` and moves `*pos` to the next one. REQUIRES: the text is valid UTF-8 and a character
// starts at `*pos`.
char32_t DecodeUtf8(std::string_view text, size_t* pos);

void AppendUtf8(char32_t code_point, std::string* out);

// Turns a stream of bytes into valid UTF-8 text. It holds an incomplete character until its last byte arrives, and
// replaces bytes that cannot become a valid character by U+FFFD. It can be
// copied: the copy continues from the same state, independently of the original.
class Utf8Assembler {
 public:
  enum class OnInvalid {
    kReplaceSubpart,  // Writes one U+FFFD for the longest prefix of a character (Unicode 3.9, "maximal subparts").
    kReplaceByte,     // Writes one U+FFFD for each byte, as SentencePiece does.
  };
  explicit Utf8Assembler(OnInvalid on_invalid) : on_invalid_(on_invalid) {}

  void Append(std::string_view bytes, std::string* out);
  // Ends the stream. An incomplete character that is held becomes U+FFFD. Afterwards the assembler can be used for a
  // new stream.
  void Finish(std::string* out);

 private:
  OnInvalid on_invalid_;
  std::string held_;  // A proper prefix of a valid character: at most 3 bytes between calls.
};

}  // namespace quire

#endif  // QUIRE_BASE_UTF8_H_
