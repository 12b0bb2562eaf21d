// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_WEB_CONNECTION_H_
#define QUIRE_GATEWAY_WEB_WEB_CONNECTION_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gateway/web/body_memory.h"
#include "gateway/web/web_server.h"

namespace quire {

// A connection of the HTTP server. It belongs to the thread of the server.
class WebConnection {
 public:
  virtual ~WebConnection() = default;
  virtual void Start() = 0;
  virtual void Close() = 0;
  // A response is being made or sent.
  virtual bool is_busy() const = 0;
  // Since when the connection waits for a handshake, for a request, for the rest of a head or for its turn with these,
  // or nothing if it does not.
  virtual std::optional<std::chrono::steady_clock::time_point> waiting_since() const = 0;
  virtual const std::string& address() const = 0;
  // Ends what has taken too long, and the request of a client that has left. The caller calls it every now and then.
  virtual void CheckTime(std::chrono::steady_clock::time_point now) = 0;
};

// Largest number of bytes of one read of a connection.
inline constexpr size_t kReadBytes = 16 << 10;

// A connection calls these functions of its server.
class WebConnectionOwner {
 public:
  virtual ~WebConnectionOwner() = default;
  virtual const WebServerOptions& options() const = 0;
  virtual bool is_stopping() const = 0;
  virtual void Handle(std::shared_ptr<WebExchange> exchange) = 0;
  // A request was answered with an error before it was handled.
  virtual void NoteRefusal(int code) = 0;
  // The connection is closed.
  virtual void Remove(WebConnection* connection) = 0;
  virtual BodyMemory* body_memory() = 0;
  // Runs the function when it is the turn of `caller` to read kReadBytes of a large body. All large bodies together
  // come at a rate that leaves the thread of the server time for others.
  virtual void Pace(const std::string& caller, std::function<void()> read) = 0;
  // Runs the function when it is the turn of the address (see ServerTurns).
  virtual void WaitForTurn(const std::string& address, std::function<void()> function) = 0;
  // Runs the function soon on the thread of the server. Thread-safe.
  virtual void RunSoon(std::function<void()> function) = 0;
};

// Makes a connection of a socket to a client at this IP address, with TLS unless `tls` is null. The owner must outlive
// it.
std::shared_ptr<WebConnection> MakeWebConnection(WebConnectionOwner* owner,
                                                 boost::asio::generic::stream_protocol::socket socket,
                                                 std::string address, boost::asio::ssl::context* tls);

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_WEB_CONNECTION_H_
