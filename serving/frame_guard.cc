// SPDX-License-Identifier: Apache-2.0

#include "serving/frame_guard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr size_t kPrioritySize = 5;
constexpr int64_t kMicrosPerSpareFrame = 1'000'000 / FrameGuard::kSpareFramesPerSecond;

// The estimate of the memory of a header block.
int64_t BytesOf(const HeaderBlock& block) {
  return block.num_fields() * FrameGuard::kBytesPerField +
         2 * std::max<int64_t>(block.num_bytes() - FrameGuard::kFreeHeaderBytes, 0);
}

}  // namespace

absl::Status FrameGuard::Receive(absl::string_view bytes, int64_t now_us) {
  while (is_http2_ && preface_size_ < kPreface.size() && !bytes.empty()) {
    is_http2_ = bytes.front() == kPreface[preface_size_++];
    bytes.remove_prefix(1);
  }
  while (is_http2_) {
    const std::optional<FrameReader::Piece> piece = received_.Next(&bytes);
    if (!piece.has_value()) break;
    QUIRE_RETURN_IF_ERROR(Handle(*piece, now_us));
  }
  return absl::OkStatus();
}

void FrameGuard::Send(absl::string_view bytes) {
  while (is_http2_) {
    const std::optional<FrameReader::Piece> piece = sent_.Next(&bytes);
    if (!piece.has_value()) return;
    if (!piece->is_first) continue;
    const FrameHead& head = piece->head;
    const bool has_payload = head.type == FrameHead::kData || head.type == FrameHead::kHeaders;
    if (head.type == FrameHead::kSettings && !head.has(FrameHead::kAck)) ++num_settings_sent_;
    if (has_payload) Earn(kSpareFramesPerSentFrame);
    if (head.type == FrameHead::kResetStream || (has_payload && head.has(FrameHead::kEndStream))) {
      CloseStream(head.stream);
    } else if (has_payload) {
      NoteAnswer(head.stream);
    }
  }
}

absl::Status FrameGuard::Handle(const FrameReader::Piece& piece, int64_t now_us) {
  if (piece.is_first) {
    work_us_ += kMicrosPerFrame + piece.head.size / kBytesPerMicro;
    QUIRE_RETURN_IF_ERROR(BeginFrame(piece.head, now_us));
  }
  switch (piece.head.type) {
    case FrameHead::kHeaders:
    case FrameHead::kContinuation:
      return AddHeaders(piece);
    case FrameHead::kData:
      AddData(piece.head.stream, piece.payload);
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

absl::Status FrameGuard::BeginFrame(const FrameHead& head, int64_t now_us) {
  switch (head.type) {
    case FrameHead::kHeaders:
      return BeginHeaders(head, now_us);
    case FrameHead::kContinuation:
      return head.size > 0 ? absl::OkStatus() : Spend(1, now_us);
    case FrameHead::kData:
      if (!streams_.contains(head.stream)) return Spend(1 + head.size / kLateBytesPerSpareFrame, now_us);
      return head.size > 0 || head.has(FrameHead::kEndStream) ? absl::OkStatus() : Spend(1, now_us);
    case FrameHead::kResetStream:
      return Spend(CloseStream(head.stream) ? kSpareFramesPerReset : 1, now_us);
    case FrameHead::kSettings:
      return BeginSettings(head, now_us);
    default:
      return Spend(1 + head.size / kBytesPerSpareFrame, now_us);
  }
}

absl::Status FrameGuard::BeginHeaders(const FrameHead& head, int64_t now_us) {
  if (head.stream % 2 == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("headers came on stream ", head.stream, ", and the streams of a client have odd numbers"));
  }
  block_ = HeaderBlock();
  block_stream_ = head.stream;
  skipped_ = head.has(FrameHead::kPriority) ? kPrioritySize : 0;
  // Trailers of a call. gRPC ignores them when the call has ended, and also a call that comes out of order.
  if (head.stream <= last_stream_) return Spend(1, now_us);
  last_stream_ = head.stream;
  Earn(1);
  work_us_ += kMicrosPerCall;
  streams_[head.stream] = {.bytes_of_head = kBytesPerStream};
  held_bytes_ += kBytesPerStream;
  ++num_calls_;
  if (num_settings_acknowledged_ == 0 && num_calls_ > kMaxStreamsBeforeAck) {
    return absl::ResourceExhaustedError(absl::StrCat("the client has begun ", num_calls_,
                                                     " calls before it acknowledged the settings, and the limit is ",
                                                     kMaxStreamsBeforeAck));
  }
  return absl::OkStatus();
}

absl::Status FrameGuard::BeginSettings(const FrameHead& head, int64_t now_us) {
  if (!head.has(FrameHead::kAck)) return Spend(1 + head.size / kBytesPerSpareFrame, now_us);
  if (++num_settings_acknowledged_ <= num_settings_sent_) return absl::OkStatus();
  // gRPC would take it for the answer to settings that it sends later, and never apply their limits.
  return absl::InvalidArgumentError("the client has acknowledged settings that were not sent");
}

absl::Status FrameGuard::AddHeaders(const FrameReader::Piece& piece) {
  absl::string_view payload = piece.payload;
  const size_t num_skipped = std::min(skipped_, payload.size());
  payload.remove_prefix(num_skipped);
  skipped_ -= num_skipped;
  const int64_t before = BytesOf(block_);
  block_.Add(payload);
  if (const auto stream = streams_.find(block_stream_); stream != streams_.end()) {
    const int64_t added = BytesOf(block_) - before;
    stream->second.bytes_of_head += added;
    held_bytes_ += added;
  }
  if (block_.num_bytes() > kMaxHeaderBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a header block has more than ", kMaxHeaderBytes, " bytes, which is the limit"));
  }
  if (block_.num_fields() > kMaxHeaderFields) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a header block has more than ", kMaxHeaderFields, " fields, which is the limit"));
  }
  if (block_.has_error()) return absl::InvalidArgumentError("a header block has a number that is too large");
  return absl::OkStatus();
}

void FrameGuard::AddData(uint32_t stream_id, absl::string_view bytes) {
  const auto it = streams_.find(stream_id);
  if (it == streams_.end()) return;
  Stream& stream = it->second;
  held_bytes_ -= stream.unfinished;
  while (!bytes.empty()) {
    if (stream.prefix_size < stream.prefix.size()) {
      stream.prefix[stream.prefix_size++] = static_cast<uint8_t>(bytes.front());
      bytes.remove_prefix(1);
      if (stream.prefix_size < stream.prefix.size()) continue;
      for (size_t i = 1; i < stream.prefix.size(); ++i) stream.missing = stream.missing << 8 | stream.prefix[i];
    }
    const int64_t size = std::min(stream.missing, static_cast<int64_t>(bytes.size()));
    bytes.remove_prefix(static_cast<size_t>(size));
    stream.missing -= size;
    stream.unfinished += size;
    if (stream.missing == 0) stream.unfinished = static_cast<int64_t>(stream.prefix_size = 0);
  }
  held_bytes_ += stream.unfinished;
}

absl::Status FrameGuard::Spend(int64_t num_frames, int64_t now_us) {
  const int64_t grown = spare_at_us_ == 0 ? 0 : (now_us - spare_at_us_) / kMicrosPerSpareFrame;
  if (spare_at_us_ == 0) spare_at_us_ = now_us;
  spare_at_us_ += grown * kMicrosPerSpareFrame;
  Earn(grown);
  num_spare_ -= num_frames;
  if (num_spare_ >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the client sends too many resets, pings, settings or other frames that bring nothing; the limit is ",
      kMaxSpareFrames, " at once and ", kSpareFramesPerSecond, " per second"));
}

void FrameGuard::Earn(int64_t num_frames) {
  num_spare_ = std::min(num_spare_ + num_frames, kMaxSpareFrames);
}

void FrameGuard::NoteAnswer(uint32_t stream) {
  const auto it = streams_.find(stream);
  if (it != streams_.end()) it->second.has_answer = true;
}

bool FrameGuard::CloseStream(uint32_t stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return false;
  held_bytes_ -= it->second.bytes_of_head + it->second.unfinished;
  if (!it->second.has_answer) work_us_ += kMicrosPerLostCall;
  streams_.erase(it);
  return true;
}

}  // namespace quire
