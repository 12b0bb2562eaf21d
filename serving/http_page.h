#ifndef QUIRE_SERVING_HTTP_PAGE_H_
#define QUIRE_SERVING_HTTP_PAGE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// What somebody asks for by GET or HEAD.
struct HttpRequest {
  std::map<std::string, std::string> parameters = {};  // Behind the '?', decoded.
  bool is_local_user = false;                          // See IsLocalUser.
};

struct HttpResponse {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // Beside those that all responses have.
};

// Called by several threads at once.
using HttpPage = std::function<HttpResponse(const HttpRequest&)>;

// Whether a request comes straight from a program on this machine: from 127.0.0.1 or ::1, by a name of this machine
// and through no proxy. `peer` is an IP address; `host` is the header, in which a browser that was lured to this port
// by a name of somebody else's ("DNS rebinding") has that name; `is_forwarded` says that a proxy has left a header. Not
// all proxies do, so this alone guards nothing.
bool IsLocalUser(absl::string_view peer, absl::string_view host, bool is_forwarded);

}  // namespace quire

#endif  // QUIRE_SERVING_HTTP_PAGE_H_
