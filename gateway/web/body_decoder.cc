// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/body_decoder.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/number_text.h"

namespace quire {
namespace {

// Size at which a body gets memory for all that its head declares, so that it is not copied while it grows.
constexpr size_t kBelievedBytes = 1 << 20;

constexpr size_t kMaxLineBytes = 4096;
constexpr size_t kMaxOverheadBytes = 16 << 10;
// 15 digits are less than 2^60.
constexpr size_t kMaxSizeDigits = 15;

HttpRefusal BadChunk(absl::string_view reason) {
  return {400, absl::StrCat("this is not a request of HTTP/1: ", reason)};
}

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

bool ChunkDecoder::TakeLine(absl::string_view* input) {
  const size_t end = input->find('\n');
  const size_t size = std::min(end == input->npos ? input->size() : end + 1, kMaxLineBytes + 1 - line_.size());
  line_.append(input->data(), size);
  input->remove_prefix(size);
  return absl::EndsWith(line_, "\n") || line_.size() > kMaxLineBytes;
}

std::optional<HttpRefusal> ChunkDecoder::Decode(absl::string_view* input, std::string* body) {
  while (!input->empty() && !is_done()) {
    if (state_ == State::kData) {
      const size_t size = std::min<uint64_t>(num_left_, input->size());
      body->append(input->data(), size);
      input->remove_prefix(size);
      num_left_ -= size;
      if (num_left_ == 0) state_ = State::kDataEnd;
    } else if (TakeLine(input)) {
      if (auto refusal = OnLine(body->size())) return refusal;
      line_.clear();
    } else if (state_ == State::kDataEnd && line_ != "\r") {
      return BadChunk("a chunk is longer than its size says");
    }
  }
  return std::nullopt;
}

std::optional<HttpRefusal> ChunkDecoder::OnLine(size_t body_bytes) {
  if (line_.size() > kMaxLineBytes) {
    return BadChunk(absl::StrCat("a line between chunks has more than ", kMaxLineBytes, " bytes"));
  }
  if (!absl::EndsWith(line_, "\r\n")) return BadChunk("a line ends without CR");
  line_.resize(line_.size() - 2);
  switch (state_) {
    case State::kSize:
      return ReadSize(body_bytes);
    case State::kDataEnd:
      if (!line_.empty()) return BadChunk("a chunk is longer than its size says");
      state_ = State::kSize;
      return std::nullopt;
    default:
      break;
  }
  if (line_.empty()) {
    state_ = State::kDone;
    return std::nullopt;
  }
  num_overhead_ += line_.size();
  if (const auto reason = ReadHeaderLine(line_, nullptr, nullptr)) return BadChunk(*reason);
  if (num_overhead_ <= kMaxOverheadBytes) return std::nullopt;
  return HttpRefusal{431, absl::StrCat("extensions and trailers have more than ", kMaxOverheadBytes, " bytes")};
}

std::optional<HttpRefusal> ChunkDecoder::ReadSize(size_t body_bytes) {
  size_t num_digits = 0;
  num_left_ = 0;
  while (num_digits < line_.size() && HexValue(line_[num_digits]) >= 0) {
    if (++num_digits > kMaxSizeDigits) return BadChunk("the size of a chunk has too many digits");
    num_left_ = 16 * num_left_ + static_cast<uint64_t>(HexValue(line_[num_digits - 1]));
  }
  const absl::string_view rest = absl::string_view(line_).substr(num_digits);
  const bool is_clean = std::all_of(rest.begin(), rest.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '\t' || (byte >= 0x20 && byte != 0x7F);
  });
  if (num_digits == 0 || (!rest.empty() && rest[0] != ';') || !is_clean) {
    return BadChunk("the size of a chunk is no hexadecimal number");
  }
  num_overhead_ += rest.size();
  if (num_overhead_ > kMaxOverheadBytes) {
    return HttpRefusal{431, absl::StrCat("extensions and trailers have more than ", kMaxOverheadBytes, " bytes")};
  }
  if (num_left_ > max_body_bytes_ - body_bytes) {
    return HttpRefusal{413, absl::StrCat("the body of the request has more than ", max_body_bytes_, " bytes")};
  }
  state_ = num_left_ == 0 ? State::kTrailers : State::kData;
  return std::nullopt;
}

}  // namespace quire
