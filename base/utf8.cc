// SPDX-License-Identifier: Apache-2.0

#include "base/utf8.h"

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// The result of reading the character at the start of a text.
struct Utf8Character {
  // The number of bytes of the character. If it is not complete: the bytes of its longest valid prefix, at least 1.
  size_t num_bytes;
  bool is_complete;
  bool is_open;  // Whether the text ends inside a character that could still become valid.
};

// Table 3-7 of the Unicode standard: the second byte is restricted after E0, ED, F0 and F4.
Utf8Character ReadCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false, true};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {i, false, false};
  }
  return {length, true, false};
}

// Returns the offset of the first character that is not valid, or text.size() when there is none.
size_t FindInvalid(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Character character = ReadCharacter(text.substr(pos));
    if (!character.is_complete) return pos;
    pos += character.num_bytes;
  }
  return pos;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  return FindInvalid(text) == text.size();
}

std::optional<std::string> Utf8Error(std::string_view text) {
  const size_t invalid = FindInvalid(text);
  if (invalid == text.size()) return std::nullopt;
  return absl::StrCat("is not valid UTF-8: byte ", invalid, " of ", text.size(), " is 0x",
                      absl::Hex(static_cast<unsigned char>(text[invalid]), absl::kZeroPad2));
}

absl::Status CheckUtf8(std::string_view text, std::string_view what) {
  const std::optional<std::string> error = Utf8Error(text);
  if (!error.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), " ", *error));
}

char32_t DecodeUtf8(std::string_view text, size_t* pos) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[*pos + i])); };
  const char32_t lead = byte(0);
  char32_t code_point = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    code_point = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    length = 4;
  } else if (lead >= 0xE0) {
    code_point = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    length = 3;
  } else if (lead >= 0x80) {
    code_point = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    length = 2;
  }
  *pos += length;
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto push = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
    return;
  }
  if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      push(0xE0 | code_point >> 12);
    } else {
      push(0xF0 | code_point >> 18);
      push(0x80 | (code_point >> 12 & 0x3F));
    }
    push(0x80 | (code_point >> 6 & 0x3F));
  }
  push(0x80 | (code_point & 0x3F));
}

void Utf8Assembler::Append(std::string_view bytes, std::string* out) {
  held_.append(bytes);
  const std::string_view text = held_;
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Character character = ReadCharacter(text.substr(pos));
    if (character.is_open) break;
    if (character.is_complete) {
      out->append(text.substr(pos, character.num_bytes));
      pos += character.num_bytes;
    } else {
      out->append(kReplacementCharacter);
      pos += on_invalid_ == OnInvalid::kReplaceByte ? 1 : character.num_bytes;
    }
  }
  held_.erase(0, pos);
}

void Utf8Assembler::Finish(std::string* out) {
  const size_t count = on_invalid_ == OnInvalid::kReplaceByte ? held_.size() : held_.empty() ? 0 : 1;
  for (size_t i = 0; i < count; ++i) out->append(kReplacementCharacter);
  held_.clear();
}

}  // namespace quire
