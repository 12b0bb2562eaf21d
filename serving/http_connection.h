// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_HTTP_CONNECTION_H_
#define QUIRE_SERVING_HTTP_CONNECTION_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// One side of a connected socket that does not block. It reads and writes with deadlines, so that a slow client costs
// no more than that time.
class HttpConnection {
 public:
  using Duration = std::chrono::milliseconds;

  explicit HttpConnection(int fd) : fd_(fd) {}
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Reads until the empty line after the head of a request, for at most `timeout` in total. Returns the text with the
  // empty line; or DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED when the head is longer than 16 KiB, INVALID_ARGUMENT when
  // FindHeadEnd refuses it, or UNAVAILABLE when the client has gone.
  absl::StatusOr<std::string> ReadHead(Duration timeout);

  // Writes `text`, for at most `timeout` in total, and gives up after it.
  void Write(absl::string_view text, Duration timeout);

  // Tells the client that nothing follows, and waits until it has closed its side, for at most `timeout`. If the socket
  // were closed while data of the client is unread, the client could lose the response.
  void Finish(Duration timeout);

  void Close();

 private:
  const int fd_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_HTTP_CONNECTION_H_
