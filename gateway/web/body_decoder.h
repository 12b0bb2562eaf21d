// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_BODY_DECODER_H_
#define QUIRE_GATEWAY_WEB_BODY_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "gateway/web/chunk_decoder.h"
#include "serving/http_head.h"

namespace quire {

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
