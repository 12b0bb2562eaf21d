// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/body_decoder.h"

#include <algorithm>

#include "absl/strings/string_view.h"

namespace quire {
namespace {

// Size at which a body gets memory for all that its head declares, so that it is not copied while it grows.
constexpr size_t kBelievedBytes = 1 << 20;

}  // namespace

BodyDecoder::BodyDecoder(const HttpHead& head, size_t max_bytes) : num_left_(head.content_length.value_or(0)) {
  if (head.is_chunked) chunks_.emplace(max_bytes);
}

std::optional<HttpRefusal> BodyDecoder::Take(std::string* buffer, std::string* body) {
  if (!chunks_.has_value()) {
    const size_t size = std::min<uint64_t>(num_left_, buffer->size());
    // The rest is believed when much has come. Memory that is not used yet costs nothing.
    if (body->size() > kBelievedBytes) body->reserve(body->size() + num_left_);
    body->append(*buffer, 0, size);
    buffer->erase(0, size);
    num_left_ -= size;
    return std::nullopt;
  }
  absl::string_view input = *buffer;
  auto refusal = chunks_->Decode(&input, body);
  buffer->erase(0, buffer->size() - input.size());
  return refusal;
}

}  // namespace quire
