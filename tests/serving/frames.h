// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SERVING_FRAMES_H_
#define QUIRE_TESTS_SERVING_FRAMES_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace quire::frames {

// What a client of HTTP/2 sends (RFC 9113 and RFC 7541), byte by byte.
enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9,
};
constexpr uint8_t kAck = 1;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;

inline std::string BigEndian(uint64_t number, int num_bytes) {
  std::string bytes;
  for (int shift = 8 * (num_bytes - 1); shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xFF);
  return bytes;
}

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  return BigEndian(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) + BigEndian(stream, 4) +
         std::string(payload);
}

// A string without Huffman code. REQUIRES: it has fewer than 127 + 128 * 128 bytes.
inline std::string String(absl::string_view text) {
  const size_t size = text.size();
  std::string length(1, static_cast<char>(size < 127 ? size : 127));
  if (size >= 127) {
    const size_t rest = size - 127;
    length += static_cast<char>(rest >= 128 ? (rest & 127) | 128 : rest);
    if (rest >= 128) length += static_cast<char>(rest >> 7);
  }
  return length + std::string(text);
}

// A field that no later one refers to.
inline std::string Field(absl::string_view name, absl::string_view value) {
  return std::string(1, '\0') + String(name) + String(value);
}

// A field that becomes number 62, the first of the client's own.
inline std::string NewField(absl::string_view name, absl::string_view value) {
  return "\x40" + String(name) + String(value);
}

// So often the field number 62.
inline std::string References(size_t count) {
  return std::string(count, '\xBE');
}

inline std::string CallFields(absl::string_view path) {
  return Field(":method", "POST") + Field(":scheme", "http") + Field(":path", path) + Field(":authority", "localhost") +
         Field("content-type", "application/grpc") + Field("te", "trailers");
}

// What a connection begins with.
inline std::string Preface() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
}

}  // namespace quire::frames

#endif  // QUIRE_TESTS_SERVING_FRAMES_H_
