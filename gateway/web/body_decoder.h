// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_BODY_DECODER_H_
#define QUIRE_GATEWAY_WEB_BODY_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "serving/http_head.h"

namespace quire {

// Reads a body that comes in chunks (RFC 9112, 7.1). Sizes are hexadecimal digits and nothing else, lines end with CR
// and LF, and extensions and trailers are read and forgotten.
class ChunkDecoder {
 public:
  explicit ChunkDecoder(size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Takes what belongs to the body from the beginning of `input`, and appends the bytes in it to `body`. Returns why
  // the body is refused: 413 as soon as a chunk would make it too large, or 400.
  std::optional<HttpRefusal> Decode(absl::string_view* input, std::string* body);

  // The whole body has come. What is left of the input belongs to the next request.
  bool is_done() const { return state_ == State::kDone; }

 private:
  enum class State { kSize, kData, kDataEnd, kTrailers, kDone };

  // Moves the beginning of `input` to line_, up to the end of the line. Returns whether the line is complete.
  bool TakeLine(absl::string_view* input);
  std::optional<HttpRefusal> OnLine(size_t body_bytes);
  std::optional<HttpRefusal> ReadSize(size_t body_bytes);

  const size_t max_body_bytes_;
  State state_ = State::kSize;
  std::string line_;
  uint64_t num_left_ = 0;    // Bytes of the chunk.
  size_t num_overhead_ = 0;  // Bytes of extensions and trailers so far.
};

// Takes the body of a request out of the bytes of a connection: the number in Content-Length, or chunks. Not
// thread-safe.
class BodyDecoder {
 public:
  // For the body behind this head. The sum of its chunks may have `max_bytes`.
  BodyDecoder(const HttpHead& head, size_t max_bytes);

  // Moves what belongs to the body from the front of `buffer` to the end of `body`. Returns why the request is refused.
  std::optional<HttpRefusal> Take(std::string* buffer, std::string* body);

  // Returns whether the whole body was taken.
  bool is_done() const { return chunks_.has_value() ? chunks_->is_done() : num_left_ == 0; }

 private:
  std::optional<ChunkDecoder> chunks_;  // For a body in chunks.
  uint64_t num_left_ = 0;               // Bytes of any other body.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_BODY_DECODER_H_
