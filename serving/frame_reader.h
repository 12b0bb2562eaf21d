// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_FRAME_READER_H_
#define QUIRE_SERVING_FRAME_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// The head of a frame of HTTP/2 (RFC 9113, section 4.1).
struct FrameHead {
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kResetStream = 3,
    kSettings = 4,
    kContinuation = 9,
  };
  enum Flag : uint8_t { kAck = 1, kEndStream = 1, kPriority = 32 };

  bool has(Flag flag) const { return (flags & flag) != 0; }

  uint32_t size = 0;  // Bytes of the payload.
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
};

// Finds the frames in one direction of a connection, whose bytes come in pieces. Not thread-safe.
class FrameReader {
 public:
  struct Piece {
    FrameHead head;
    bool is_first;              // A frame begins here. Its payload may still be missing.
    absl::string_view payload;  // A part of the bytes that were given to Next.
  };

  // Takes bytes from the front of `bytes`: the head of a frame with the available part of its payload, or a part of the
  // payload of the frame before. Returns nothing when no byte is left and no frame has begun.
  std::optional<Piece> Next(absl::string_view* bytes);

 private:
  std::string head_bytes_;  // An incomplete head.
  FrameHead head_;
  uint32_t left_ = 0;  // Bytes of the payload that are still missing.
};

}  // namespace quire

#endif  // QUIRE_SERVING_FRAME_READER_H_
