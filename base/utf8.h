#ifndef QUIRE_BASE_UTF8_H_
#define QUIRE_BASE_UTF8_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

// Small UTF-8 helpers. Text is checked once, where it enters; everything behind that works on valid UTF-8.

namespace quire {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

bool IsValidUtf8(std::string_view text);
// What is wrong with a text that is not valid, with the byte offset of the first ill-formed sequence (surrogates and
// overlong forms are ill-formed): "is not valid UTF-8: byte 2 of 4 is 0xff". Nothing when it is valid.
std::optional<std::string> Utf8Error(std::string_view text);
// OK, or InvalidArgument: `what`, a space, and the error.
absl::Status CheckUtf8(std::string_view text, std::string_view what);

// The length in bytes of the character that starts with `lead`. REQUIRES: the lead byte of valid UTF-8.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Decodes the character at `*pos` and moves `*pos` behind it. REQUIRES: valid UTF-8, *pos at the start of a character.
char32_t DecodeUtf8(std::string_view text, size_t* pos);

void AppendUtf8(char32_t code_point, std::string* out);

// Turns a stream of bytes into valid UTF-8 text: keeps an incomplete character until its last byte arrives and replaces
// what can no longer become valid by U+FFFD. A value: copying it forks the stream.
class Utf8Assembler {
 public:
  enum class OnInvalid {
    kReplaceSubpart,  // one U+FFFD for the longest prefix of a character (Unicode 3.9, "maximal subparts")
    kReplaceByte,     // one U+FFFD for each byte (SentencePiece)
  };
  explicit Utf8Assembler(OnInvalid on_invalid) : on_invalid_(on_invalid) {}

  void Append(std::string_view bytes, std::string* out);
  // Ends the stream: a held incomplete character becomes U+FFFD. The assembler is as new afterwards.
  void Finish(std::string* out);

 private:
  OnInvalid on_invalid_;
  std::string held_;  // a proper prefix of a valid character, at most 3 bytes between calls
};

}  // namespace quire

#endif  // QUIRE_BASE_UTF8_H_
