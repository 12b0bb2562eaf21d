// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_FRAME_GUARD_H_
#define QUIRE_SERVING_FRAME_GUARD_H_

#include <array>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "serving/frame_reader.h"
#include "serving/header_block.h"

namespace quire {

// Follows the frames of one connection of HTTP/2 with gRPC, and finds what only an attacker sends. gRPC 1.51 limits the
// number of streams and the size of headers only after the client has acknowledged its settings, and it limits a header
// block only within a frame. The guard also estimates how much memory the calls of the connection hold.
//
// A client may send a limited number of frames that bring nothing: resets, settings, pings, window updates, empty data,
// headers that begin no call. Each frame that the server sends earns some of them, each new call one, and time some
// more. Not thread-safe.
class FrameGuard {
 public:
  static constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // A client begins with it.
  static constexpr int64_t kMaxHeaderBytes = 16 << 10;  // Of a block with its continuations, compressed.
  static constexpr int kMaxHeaderFields = 256;
  // Streams that a client may begin before it acknowledges the settings of the server.
  static constexpr int kMaxStreamsBeforeAck = 128;
  static constexpr int64_t kMaxSpareFrames = 4096;  // A client starts with this number.
  static constexpr int64_t kSpareFramesPerSecond = 1000;
  static constexpr int64_t kSpareFramesPerSentFrame = 4;
  // The price of ending a call that the server has not answered. A client may end all of its 1024 calls at once.
  static constexpr int64_t kSpareFramesPerReset = 3;
  // A frame that brings nothing costs one more for each of these parts, because gRPC keeps the buffer in which it came
  // as long as a part of a message beside it. Data of a call that the server has just ended is an honest mistake.
  static constexpr int64_t kBytesPerSpareFrame = 64;
  static constexpr int64_t kLateBytesPerSpareFrame = 4096;
  // Estimates of the memory of gRPC and of our own code.
  static constexpr int64_t kBytesPerStream = 16 << 10;
  static constexpr int64_t kBytesPerField = 600;
  // What a stream may have in headers without further cost. Each further byte counts as two, for Huffman's code.
  static constexpr int64_t kFreeHeaderBytes = 4 << 10;
  // Estimates of the time that the server needs.
  static constexpr int64_t kMicrosPerFrame = 5;
  static constexpr int64_t kMicrosPerCall = 30;
  // More for a call that the client resets before it has an answer, or that ends without one.
  static constexpr int64_t kMicrosPerLostCall = 270;
  static constexpr int64_t kBytesPerMicro = 1024;

  // Takes bytes that the client has sent. Returns an error when the connection must be closed. Bytes that do not begin
  // with the preface of HTTP/2 are ignored, because gRPC closes the connection itself.
  absl::Status Receive(absl::string_view bytes, int64_t now_us);

  // Takes bytes that the server has sent.
  void Send(absl::string_view bytes);

  // The estimate for the streams that are open, and the messages that have not arrived completely.
  int64_t held_bytes() const { return held_bytes_; }
  // Calls that the client has begun so far.
  int64_t num_calls() const { return num_calls_; }
  // Returns the estimate of the time that the server needs for what was new since the last call.
  int64_t TakeWork() { return std::exchange(work_us_, 0); }
  int64_t num_streams() const { return static_cast<int64_t>(streams_.size()); }

 private:
  // The message that arrives through a stream: a prefix of five bytes with its size, and the message.
  struct Stream {
    int64_t bytes_of_head = 0;
    std::array<uint8_t, 5> prefix = {};
    size_t prefix_size = 0;
    int64_t missing = 0;      // Bytes of the message that have not arrived.
    int64_t unfinished = 0;   // Bytes of it that have arrived, or 0 when it is complete.
    bool has_answer = false;  // The server has sent something that does not end the call.
  };

  absl::Status Handle(const FrameReader::Piece& piece, int64_t now_us);
  absl::Status BeginFrame(const FrameHead& head, int64_t now_us);
  absl::Status BeginHeaders(const FrameHead& head, int64_t now_us);
  absl::Status BeginSettings(const FrameHead& head, int64_t now_us);
  absl::Status AddHeaders(const FrameReader::Piece& piece);
  void AddData(uint32_t stream, absl::string_view bytes);
  absl::Status Spend(int64_t num_frames, int64_t now_us);
  void Earn(int64_t num_frames);
  // The server has sent a part of an answer.
  void NoteAnswer(uint32_t stream);
  // Returns whether the stream was open.
  bool CloseStream(uint32_t stream);

  size_t preface_size_ = 0;  // Bytes of the preface that have arrived.
  bool is_http2_ = true;     // Nothing else has come so far.
  FrameReader received_;
  FrameReader sent_;

  HeaderBlock block_;
  uint32_t block_stream_ = 0;
  size_t skipped_ = 0;        // Bytes of a priority, before the block.
  uint32_t last_stream_ = 0;  // Stream of the newest call.
  int64_t num_calls_ = 0;
  int num_settings_sent_ = 0;
  int num_settings_acknowledged_ = 0;

  int64_t num_spare_ = kMaxSpareFrames;
  int64_t spare_at_us_ = 0;  // When num_spare_ grew by time, or 0 before the first frame.

  absl::flat_hash_map<uint32_t, Stream> streams_;  // The open ones.
  int64_t held_bytes_ = 0;
  int64_t work_us_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SERVING_FRAME_GUARD_H_
