// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SERVING_HALF_SENT_MESSAGE_H_
#define QUIRE_TESTS_SERVING_HALF_SENT_MESSAGE_H_

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "tests/serving/sockets.h"

namespace quire {

// A client that begins a call with a long message over HTTP/2 (RFC 9113) and never ends it. It keeps no copy of what it
// sends.
class HalfSentMessage {
 public:
  HalfSentMessage(int port, int64_t size, const std::string& method = "/grpc.health.v1.Health/Check") : size_(size) {
    socket_.Connect(port);
    std::string head = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
    std::string fields;
    for (const auto& [name, value] : {std::pair<std::string, std::string>{":method", "POST"},
                                      {":scheme", "http"},
                                      {":path", method},
                                      {":authority", "localhost"},
                                      {"content-type", "application/grpc"},
                                      {"te", "trailers"}}) {
      // A literal field without Huffman code, by RFC 7541, section 6.2.2.
      fields += std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
    }
    Send(head + Frame(kHeaders, kEndHeaders, 1, fields));
    std::string prefix(1, '\0');  // Not compressed.
    for (int shift = 24; shift >= 0; shift -= 8) prefix += static_cast<char>(size >> shift);
    Send(Frame(kData, 0, 1, prefix));
    stream_window_ -= static_cast<int64_t>(prefix.size());
    connection_window_ -= static_cast<int64_t>(prefix.size());
  }

  // Sends until `left` bytes of the message are left, until the server ends the call, or until it has opened no window
  // for a while.
  void SendAllBut(int64_t left) {
    constexpr int64_t kMaxFrame = 16'384;
    while (!has_ended_ && size_ - sent_ > left) {
      const int64_t now = std::min({size_ - sent_ - left, kMaxFrame, stream_window_, connection_window_});
      if (now > 0) {
        Send(Frame(kData, 0, 1, std::string(static_cast<size_t>(now), 'a')));
        sent_ += now;
        stream_window_ -= now;
        connection_window_ -= now;
      }
      if (!Read(now > 0 ? 0 : 3000) && now <= 0) return;
    }
  }

  int64_t sent() const { return sent_; }
  // Whether the server has ended the call or the connection, as far as SendAllBut has read.
  bool has_ended() const { return has_ended_; }

 private:
  enum Type : char { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7, kWindowUpdate = 8 };
  static constexpr char kEndHeaders = 4;
  static constexpr char kAck = 1;

  static std::string Frame(char type, char flags, char stream, const std::string& payload) {
    const size_t size = payload.size();
    std::string frame = {static_cast<char>(size >> 16),
                         static_cast<char>(size >> 8),
                         static_cast<char>(size),
                         type,
                         flags,
                         0,
                         0,
                         0,
                         stream};
    return frame + payload;
  }

  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t size = send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) {
        has_ended_ = true;
        return;
      }
      bytes.remove_prefix(static_cast<size_t>(size));
    }
  }

  static int64_t Number(absl::string_view bytes) {
    int64_t number = 0;
    for (const char c : bytes) number = number * 256 + static_cast<unsigned char>(c);
    return number;
  }

  // Reads the frames that come within `timeout_ms`. Returns whether there was any.
  bool Read(int timeout_ms) {
    pollfd file{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
    if (poll(&file, 1, timeout_ms) <= 0) return false;
    char buffer[65'536];
    const ssize_t size = recv(socket_.fd(), buffer, sizeof(buffer), 0);
    if (size <= 0) has_ended_ = true;
    input_.append(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    while (input_.size() >= 9) {
      const size_t length = static_cast<size_t>(Number(absl::string_view(input_).substr(0, 3)));
      if (input_.size() < 9 + length) break;
      const std::string frame = input_.substr(0, 9 + length);
      input_.erase(0, 9 + length);
      Handle(frame[3], frame[4], Number(absl::string_view(frame).substr(5, 4)), frame.substr(9));
    }
    return true;
  }

  void Handle(char type, char flags, int64_t stream, const std::string& payload) {
    if (type == kWindowUpdate) (stream == 0 ? connection_window_ : stream_window_) += Number(payload);
    if (type == kPing && flags != kAck) Send(Frame(kPing, kAck, 0, payload));
    if (type == kReset || type == kGoAway || type == kHeaders) has_ended_ = true;
    if (type != kSettings || flags == kAck) return;
    for (size_t i = 0; i + 6 <= payload.size(); i += 6) {
      constexpr int64_t kInitialWindow = 4;
      const absl::string_view setting = absl::string_view(payload).substr(i, 6);
      if (Number(setting.substr(0, 2)) != kInitialWindow) continue;
      stream_window_ += Number(setting.substr(2)) - initial_window_;
      initial_window_ = Number(setting.substr(2));
    }
    Send(Frame(kSettings, kAck, 0, ""));
  }

  const int64_t size_;
  TestSocket socket_;
  std::string input_;
  int64_t sent_ = 0;
  int64_t initial_window_ = 65'535;
  int64_t stream_window_ = 65'535;
  int64_t connection_window_ = 65'535;
  bool has_ended_ = false;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SERVING_HALF_SENT_MESSAGE_H_
