// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_HTTP_PAGE_H_
#define QUIRE_SERVING_HTTP_PAGE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// A GET or HEAD request.
struct HttpRequest {
  std::map<std::string, std::string> parameters = {};  // The parameters after '?', decoded.
  bool is_local_user = false;                          // See IsLocalUser.
};

struct HttpResponse {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // In addition to the headers of every response.
};

// Makes the response to a request. Several threads call it at once.
using HttpPage = std::function<HttpResponse(const HttpRequest&)>;

// Whether a request comes directly from a program on this machine: from 127.0.0.1 or ::1, to a local host name, and
// through no proxy. `peer` is the IP address of the client. `host` is the Host header; it shows when a web page of
// another site makes a browser call this port under that site's name (DNS rebinding). `is_forwarded` says that a proxy
// has added a header. Not all proxies add one, so this function alone protects nothing.
bool IsLocalUser(absl::string_view peer, absl::string_view host, bool is_forwarded);

// A page for browsers in one document, which loads nothing.
struct PageDocument {
  std::string html;
  // Its Content-Security-Policy: no other script and style runs, and it talks to its own server only.
  std::string policy;
};

// `html` has the comments /*style.css*/ and /*page.js*/ where the style and the script belong.
PageDocument MakePageDocument(absl::string_view html, absl::string_view style, absl::string_view script);

}  // namespace quire

#endif  // QUIRE_SERVING_HTTP_PAGE_H_
