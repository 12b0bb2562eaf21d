// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_WEB_SERVER_H_
#define QUIRE_GATEWAY_WEB_WEB_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/span.h"
#include "base/web_access.h"
#include "security/tls_files.h"
#include "serving/acceptor.h"

namespace quire {

// A request of HTTP/1.
struct WebRequest {
  std::string method;
  std::string path;                            // As it was sent, without '?' and what follows it.
  std::string authorization;                   // The header, or empty.
  std::string api_key;                         // The header x-api-key, or empty.
  std::string last_event_id;                   // The header, or empty.
  std::optional<std::string> timeout;          // The header X-Request-Timeout; several are joined by commas.
  std::string traceparent;                     // The header, or empty.
  std::string read_timeout;                    // The header X-Stainless-Read-Timeout or X-Stainless-Timeout, or empty.
  std::string content_type;                    // The header, or empty.
  std::string id;                              // The header X-Request-Id, or a new name; sent with the answer.
  bool is_of_page = false;                     // A browser has sent it for a page.
  std::string address;                         // The IP address of the client; empty for a unix socket.
  std::vector<std::string> client_names = {};  // Names in the client's certificate, see PeerNames.
  std::string body = "";
};

struct WebResponse {
  int code = 200;
  std::string content_type = "application/json";
  std::string body = "";
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Of an error, for the log. They are not sent.
  std::string error_param = "";
  std::string error_code = "";
};

// One request, and the way to answer it: either with Respond, or with BeginEvents, any number of calls of Send, and
// EndEvents. After the end of the response, or when the client has left, all calls do nothing. Only the thread of the
// server may use it.
class WebExchange {
 public:
  virtual ~WebExchange() = default;

  // The body is empty after the handler has returned.
  virtual const WebRequest& request() const = 0;
  // The header `traceparent` for what is done on behalf of this request: the client's, or that of the request's span.
  virtual std::string traceparent() const { return request().traceparent; }
  // A fact about the request, if it has a span.
  virtual void Describe(SpanAttribute /*attribute*/) {}
  // Takes the body over, so that it is still there after the handler has returned. Its memory counts until the result
  // is destroyed, which any thread may do, but not after the server.
  virtual std::shared_ptr<const std::string> TakeBody() = 0;
  // `gone` is called at most once, when the client leaves before the whole response was given to the server, or when it
  // reads too slowly.
  virtual void OnGone(std::function<void()> gone) = 0;
  // Keeps something until the client has got the whole response, or has left.
  virtual void Keep(std::shared_ptr<void> something) = 0;

  virtual void Respond(WebResponse response) = 0;
  // Begins a stream of server-sent events with code 200. Its head is sent with the first piece, or with the end.
  virtual void BeginEvents() = 0;
  // Sends a piece of the stream.
  virtual void Send(const std::string& text) = 0;
  virtual void EndEvents() = 0;
};

struct WebServerOptions {
  std::string address = {};  // host:port or unix:path; port 0 takes a free one.
  TlsFiles tls = {};  // Without a certificate, the port has no TLS. With an authority, clients need a certificate.
  WebAccess access = {};
  int max_connections = 1024;
  int max_connections_per_address = 0;  // 0: only max_connections counts.
  size_t max_body_bytes = 16 << 20;     // Limit for one request.
  // Limit for all bodies that arrive or wait to be read, see BodyMemory. One address has at most three quarters of it,
  // or a body of max_body_bytes.
  int64_t max_receiving_bytes = 256 << 20;
  // A client of a stream that is further behind gets no more, and is disconnected.
  size_t max_unsent_bytes = 1 << 20;
  std::chrono::milliseconds head_timeout = std::chrono::seconds(10);  // Limits TLS and the head of a request.
  std::chrono::milliseconds body_timeout = std::chrono::seconds(30);  // Limits the body.
  std::chrono::milliseconds body_start = std::chrono::seconds(5);  // Afterwards, a body must come at 1 KiB per second.
  // It limits the time between two requests of a connection.
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(75);
  // It limits the time in which a write makes no progress.
  std::chrono::milliseconds write_timeout = std::chrono::seconds(30);
  // It limits the time until the client has got a whole response, or what a stream has for it.
  std::chrono::milliseconds send_timeout = std::chrono::minutes(5);
  // The thread of the server calls it with the code when it refuses a request by itself.
  std::function<void(int code)> on_refusal = {};
  // Makes the answer to a request that the server refuses by itself. What is not known of the head is empty. By default
  // the answer has the form of the OpenAI interface.
  std::function<WebResponse(const WebRequest& head, int code, absl::string_view message)> refusal = {};
  // The thread of the server calls it with each head, before it reads the body. A response refuses the request.
  std::function<std::optional<WebResponse>(const WebRequest& head)> check_head = {};
};

// An HTTP/1.1 server with one thread, which runs the handler and serves all connections without blocking. Everything
// that a client can make it hold is bounded: connections, bytes of heads and bodies, unsent bytes, and times. Requests
// that break a limit get 400, 408, 413, 431 or 503 with an error in the form of WebServerOptions::refusal. Heads are
// read strictly (ReadHttpHead), and requests of other sites and for other hosts get 403 (CheckWebRules). A body has a
// Content-Length or comes in chunks, and may not come slowly. A compressed one gets 415. Addresses take turns: requests
// of one are handled for no longer than requests of another while both have some. When nearly all
// connections are taken, the one that has waited longest for its client is closed, at the address that has most.
class WebServer {
 public:
  using Handler = std::function<void(std::shared_ptr<WebExchange> exchange)>;

  // Makes a server that does not listen yet. Post may be called already.
  static std::unique_ptr<WebServer> Create(WebServerOptions options);
  // REQUIRES: it does not run on the server's thread.
  virtual ~WebServer() = default;

  // Listens. Returns UNAVAILABLE when the address cannot be taken, or INVALID_ARGUMENT when a TLS file cannot be used.
  // TLS files are read again when they have changed. The thread of the server calls `handler` for each request. Call it
  // once.
  virtual absl::Status Listen(Handler handler) = 0;

  // Runs `function` soon on the server's thread, in the order of the calls. Thread-safe. After Stop it is dropped.
  virtual void Post(std::function<void()> function) = 0;

  // The same, after some time.
  virtual void PostAfter(std::chrono::milliseconds delay, std::function<void()> function) = 0;

  // Refuses new connections, closes those without a request, and waits until all responses have been sent, for at most
  // `grace`. Then it closes everything and ends the thread. Thread-safe, but not on the server's thread. Call it before
  // the objects that the handler uses are destroyed.
  virtual void Stop(std::chrono::milliseconds grace) = 0;

  // True after the beginning of Stop. It is for the server's thread.
  virtual bool is_stopping() const = 0;
  // REQUIRES for the rest: Listen has returned OK.
  virtual PortStats stats() const = 0;
  // It has the port that was taken.
  virtual std::string address() const = 0;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_WEB_SERVER_H_
