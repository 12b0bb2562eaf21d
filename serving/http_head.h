// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_HTTP_HEAD_H_
#define QUIRE_SERVING_HTTP_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// Why a request is not served: an HTTP code and a sentence for the client.
struct HttpRefusal {
  int code;
  std::string message;
};

// The head of a request of HTTP/1.0 or HTTP/1.1.
struct HttpHead {
  std::string method;
  std::string path;       // As it was sent, without '?' and what follows it. "*" means the server itself.
  std::string query;      // What follows '?'.
  std::string host;       // The host and the port that the client asked for. It is empty if the client named none.
  int minor_version = 1;  // The 1 in HTTP/1.1.
  std::vector<std::pair<std::string, std::string>> headers = {};  // The names are in lower case.
  std::optional<uint64_t> content_length = std::nullopt;
  bool is_chunked = false;  // The body comes in chunks.
  bool keeps_alive = true;  // The client may send another request on this connection.
  bool expects_continue = false;

  bool Has(absl::string_view name) const;
  // Returns the value of the first header with this name, or an empty string. `name` is in lower case.
  absl::string_view Header(absl::string_view name) const;
};

// Looks for the empty line that ends a head. Returns the size of the head with that line, or nothing if it has not come
// yet. Refuses a line end without CR, a CR without LF, and control characters. `num_searched` bytes were searched
// before.
std::variant<std::optional<size_t>, HttpRefusal> FindHeadEnd(absl::string_view text, size_t num_searched);

// Reads a head with or without its empty line. Refuses whatever RFC 9110 and RFC 9112 leave no single meaning, so that
// a proxy before this server and the server never disagree on where a request ends or for whom it is: see the table in
// the tests. The connection must be closed after a refusal.
std::variant<HttpHead, HttpRefusal> ReadHttpHead(absl::string_view text);

// Returns whether the text begins as a request with the method HEAD does, also if it is refused. The answer to it has
// no body.
bool IsHeadRequest(absl::string_view text);

// Returns why a line is no header or trailer ("name: value", without the line end), or nothing. With a header, `name`
// and `value` may be null, or get its parts.
std::optional<std::string> ReadHeaderLine(absl::string_view line, absl::string_view* name, absl::string_view* value);

// Returns the words for a code in the first line of a response.
const char* HttpReason(int code);

// Decodes %41 in a path.
std::string DecodedPath(absl::string_view path);

// Decodes the parameters "a=1&b=2".
std::map<std::string, std::string> QueryParameters(absl::string_view query);

}  // namespace quire

#endif  // QUIRE_SERVING_HTTP_HEAD_H_
