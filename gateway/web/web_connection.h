// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_WEB_CONNECTION_H_
#define QUIRE_GATEWAY_WEB_WEB_CONNECTION_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstdint>
#include <memory>

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
  // Ends what has taken too long, and the request of a client that has left. The caller calls it every now and then.
  virtual void CheckTime(std::chrono::steady_clock::time_point now) = 0;
};

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
  // Returns false when there is no room for so many bytes. Otherwise they count until ReleaseBytes.
  virtual bool ReserveBytes(int64_t num_bytes) = 0;
  virtual void ReleaseBytes(int64_t num_bytes) = 0;
};

// Makes a connection of a socket, with TLS unless `tls` is null. The owner must outlive it.
std::shared_ptr<WebConnection> MakeWebConnection(WebConnectionOwner* owner,
                                                 boost::asio::generic::stream_protocol::socket socket,
                                                 boost::asio::ssl::context* tls);

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_WEB_CONNECTION_H_
