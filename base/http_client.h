// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_HTTP_CLIENT_H_
#define QUIRE_BASE_HTTP_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace quire {

struct HttpCall {
  std::string method;  // "GET", "PUT" or "POST".
  std::string url;     // https://... or http://...
  std::vector<std::string> headers;
  std::string body = "";
  std::string authority = "";  // PEM file with the certificates that may have issued the server's.
  bool checks_server = true;   // False: any certificate will do, for a server that this process has started.
  absl::Duration timeout;      // Limit of the whole call.
};

struct HttpAnswer {
  int code = 0;  // 200 and so on.
  std::string body;
};

// Makes HTTP calls, one after the other, and keeps the connection open between them (libcurl). Follows no redirection,
// because the calls carry a secret. Used by one thread.
class HttpClient {
 public:
  HttpClient();
  ~HttpClient();

  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Returns an answer with any code. UNAVAILABLE with the reason if there is none in time, or if it is too large.
  absl::StatusOr<HttpAnswer> Call(const HttpCall& call);

 private:
  struct Handle;
  const std::unique_ptr<Handle> handle_;
};

}  // namespace quire

#endif  // QUIRE_BASE_HTTP_CLIENT_H_
