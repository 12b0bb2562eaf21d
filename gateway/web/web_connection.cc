// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/web_connection.h"

#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/web/error_body.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using SteadyTime = std::chrono::steady_clock::time_point;
using Socket = asio::generic::stream_protocol::socket;

constexpr uint32_t kMaxHeadBytes = 16 << 10;
constexpr size_t kReadBytes = 16 << 10;
constexpr std::chrono::seconds kLingerTimeout(2);

// One connection. It has at most one request at a time.
template <typename Stream>
class Connection : public WebConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... Args>
  explicit Connection(WebConnectionOwner* owner, Args&&... args)
      : owner_(owner), stream_(std::forward<Args>(args)...) {}
  void Start() override;
  void Close() override;
  bool is_busy() const override { return exchange_ != nullptr || is_writing_; }
  void CheckTime(SteadyTime now) override;

 private:
  class Exchange : public WebExchange {
   public:
    Exchange(std::shared_ptr<Connection> connection, WebRequest request)
        : connection_(std::move(connection)), request_(std::move(request)) {}
    const WebRequest& request() const override { return request_; }
    void DropBody() { request_.body = std::string(); }
    void OnGone(std::function<void()> gone) override {
      if (IsCurrent()) connection_->gone_ = std::move(gone);
    }
    void Keep(std::shared_ptr<void> something) override {
      if (IsCurrent()) connection_->kept_ = std::move(something);
    }
    void Respond(WebResponse response) override {
      if (IsCurrent()) connection_->Respond(std::move(response));
    }
    void BeginEvents() override {
      if (IsCurrent()) connection_->BeginEvents();
    }
    void Send(const std::string& text) override {
      if (IsCurrent()) connection_->Send(text);
    }
    void EndEvents() override {
      if (IsCurrent()) connection_->EndEvents();
    }

   private:
    bool IsCurrent() const { return connection_->exchange_ == this; }

    const std::shared_ptr<Connection> connection_;
    WebRequest request_;
  };

  auto& socket() {
    if constexpr (std::is_same_v<Stream, Socket>) {
      return stream_;
    } else {
      return stream_.next_layer();
    }
  }
  // Returns whether the client has closed its side, even if there are unread bytes before the end.
  bool HasPeerClosed() {
    pollfd file = {.fd = socket().native_handle(), .events = POLLRDHUP, .revents = 0};
    return poll(&file, 1, 0) > 0 && (file.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }
  void SetDeadline(std::chrono::milliseconds timeout) { deadline_ = std::chrono::steady_clock::now() + timeout; }

  // Waits for bytes of the next request, or for the end of the connection: during a response, or when it lingers.
  void Watch();
  void OnBytes(error_code error, size_t num_bytes);
  void NextRequest();
  void ReadHead();
  void OnHead(error_code error);
  void ReadBody();
  // Chunks of a body that has no Content-Length.
  void ReadChunks();
  void OnChunks(error_code error);
  void OnRequest(error_code error);
  // Reserves memory for a body of this size. Otherwise refuses the request and returns false.
  bool ReserveBody(int64_t num_bytes);
  void ReleaseBody();

  // Answers a request that cannot be handled, and closes the connection.
  void Refuse(int code, absl::string_view message);
  // The same for a request that cannot be read.
  void RefuseUnreadable(error_code error);
  // The same for a body that is compressed.
  void RefuseEncoding(absl::string_view encoding);
  void Respond(WebResponse response);
  void BeginEvents();
  void Send(const std::string& text);
  void EndEvents();
  std::string Head(int code, absl::string_view content_type) const;
  void Write(std::string text);
  void Flush();
  // Writes what is left of `sending_`, as much as the socket takes.
  void WriteSome();
  void OnWritten(error_code error, size_t num_bytes);
  // The whole response was given to the connection.
  void EndResponse();
  void Linger();
  // Ends TLS, then the side of the server, and waits for the end of the connection.
  void EndSending();
  void EndSocket();

  WebConnectionOwner* const owner_;
  Stream stream_;
  boost::beast::flat_buffer buffer_{kMaxHeadBytes + kReadBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  Exchange* exchange_ = nullptr;  // The current one.
  std::function<void()> gone_;
  std::string unsent_;
  std::string sending_;
  size_t num_sent_ = 0;         // Bytes of `sending_`.
  std::shared_ptr<void> kept_;  // For the response.
  int64_t reserved_bytes_ = 0;
  SteadyTime deadline_ = SteadyTime::max();
  SteadyTime write_deadline_ = SteadyTime::max();
  SteadyTime send_deadline_ = SteadyTime::max();
  bool is_watching_ = false;
  bool is_writing_ = false;
  bool is_late_ = false;  // The request did not arrive in time.
  bool keeps_alive_ = true;
  bool is_head_ = false;           // The client wants the head of the response only.
  bool is_chunked_ = true;         // For HTTP/1.0 the end of the connection ends a stream.
  bool ends_after_write_ = false;  // Then the next request follows, or the end of the connection.
  bool is_lingering_ = false;
  bool has_ended_sending_ = false;
  bool is_closed_ = false;
};

template <typename Stream>
void Connection<Stream>::Start() {
  SetDeadline(owner_->options().head_timeout);
  if constexpr (std::is_same_v<Stream, Socket>) {
    Watch();
  } else {
    stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](error_code error) {
      if (error) return self->Close();
      self->Watch();
    });
  }
}

template <typename Stream>
void Connection<Stream>::Close() {
  if (is_closed_) return;
  is_closed_ = true;
  exchange_ = nullptr;
  error_code ignored;
  socket().close(ignored);
  ReleaseBody();
  kept_ = nullptr;
  owner_->Remove(this);
  if (gone_) std::exchange(gone_, nullptr)();
}

template <typename Stream>
void Connection<Stream>::CheckTime(SteadyTime now) {
  if (now >= write_deadline_ || now >= send_deadline_) return Close();
  // Bytes of the next request end the watching, and wait until the response has been sent.
  if (exchange_ != nullptr && !is_watching_ && HasPeerClosed()) return Close();
  if (now < deadline_) return;
  deadline_ = SteadyTime::max();
  if (is_lingering_ || !parser_.has_value()) return Close();
  // The read of the request ends with an error, and its handler refuses the request.
  is_late_ = true;
  error_code ignored;
  socket().cancel(ignored);
}

template <typename Stream>
void Connection<Stream>::Watch() {
  is_watching_ = true;
  auto on_bytes = [self = this->shared_from_this()](error_code error, size_t num_bytes) {
    self->OnBytes(error, num_bytes);
  };
  // TLS has ended when the connection lingers, so what still comes is not decrypted.
  if (is_lingering_) return socket().async_read_some(buffer_.prepare(kReadBytes), std::move(on_bytes));
  stream_.async_read_some(buffer_.prepare(kReadBytes), std::move(on_bytes));
}

template <typename Stream>
void Connection<Stream>::OnBytes(error_code error, size_t num_bytes) {
  is_watching_ = false;
  if (is_closed_) return;
  if (is_lingering_ && !has_ended_sending_) return EndSending();
  if (error) return Close();
  if (is_lingering_) return Watch();
  buffer_.commit(num_bytes);
  // Bytes during a response belong to the next request, which waits.
  if (!is_busy()) ReadHead();
}

template <typename Stream>
void Connection<Stream>::NextRequest() {
  if (!keeps_alive_ || owner_->is_stopping()) return Linger();
  SetDeadline(owner_->options().idle_timeout);
  if (is_watching_) return;
  if (buffer_.size() > 0) return ReadHead();
  Watch();
}

template <typename Stream>
void Connection<Stream>::ReadHead() {
  SetDeadline(owner_->options().head_timeout);
  parser_.emplace();
  parser_->header_limit(kMaxHeadBytes);
  parser_->body_limit(owner_->options().max_body_bytes);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = this->shared_from_this()](error_code error, size_t) { self->OnHead(error); });
}

template <typename Stream>
void Connection<Stream>::OnHead(error_code error) {
  if (is_closed_) return;
  const uint64_t num_bytes = parser_->content_length().value_or(0);
  if (num_bytes > owner_->options().max_body_bytes) error = http::error::body_limit;
  if (error) return RefuseUnreadable(error);
  const auto [begin, end] = parser_->get().equal_range(http::field::content_encoding);
  for (auto field = begin; field != end; ++field) {
    if (boost::beast::iequals(field->value(), "identity")) continue;
    return RefuseEncoding({field->value().data(), field->value().size()});
  }
  if (!ReserveBody(static_cast<int64_t>(num_bytes))) return;
  SetDeadline(owner_->options().body_timeout);
  if (boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    auto text = std::make_shared<std::string>("HTTP/1.1 100 Continue\r\n\r\n");
    asio::async_write(stream_, asio::buffer(*text),
                      [self = this->shared_from_this(), text](error_code write_error, size_t) {
                        if (self->is_closed_) return;
                        if (write_error) return self->Close();
                        self->ReadBody();
                      });
    return;
  }
  ReadBody();
}

template <typename Stream>
void Connection<Stream>::ReadBody() {
  if (parser_->chunked()) return ReadChunks();
  http::async_read(stream_, buffer_, *parser_,
                   [self = this->shared_from_this()](error_code error, size_t) { self->OnRequest(error); });
}

template <typename Stream>
void Connection<Stream>::ReadChunks() {
  // An eager parser would read on while a chunk is not complete, and the memory of those before would not be reserved.
  parser_->eager(false);
  http::async_read_some(stream_, buffer_, *parser_,
                        [self = this->shared_from_this()](error_code error, size_t) { self->OnChunks(error); });
}

template <typename Stream>
void Connection<Stream>::OnChunks(error_code error) {
  if (is_closed_) return;
  if (error || parser_->is_done()) return OnRequest(error);
  if (ReserveBody(static_cast<int64_t>(parser_->get().body().size()))) ReadChunks();
}

template <typename Stream>
void Connection<Stream>::OnRequest(error_code error) {
  if (is_closed_) return;
  if (error) return RefuseUnreadable(error);
  is_late_ = false;
  deadline_ = SteadyTime::max();
  auto message = parser_->release();
  parser_.reset();
  keeps_alive_ = message.keep_alive();
  is_head_ = message.method() == http::verb::head;
  is_chunked_ = message.version() >= 11;
  const auto text = [](auto view) { return std::string(view.data(), view.size()); };
  const std::string target = text(message.target());
  WebRequest request{
      .method = text(message.method_string()),
      .path = target.substr(0, target.find('?')),
      .authorization = text(message[http::field::authorization]),
      .last_event_id = text(message["Last-Event-ID"]),
      .timeout = text(message["X-Request-Timeout"]),
      .read_timeout = text(
          message[message.count("X-Stainless-Read-Timeout") > 0 ? "X-Stainless-Read-Timeout" : "X-Stainless-Timeout"]),
      .body = std::move(message.body())};
  auto exchange = std::make_shared<Exchange>(this->shared_from_this(), std::move(request));
  exchange_ = exchange.get();
  if (buffer_.size() == 0) Watch();
  owner_->Handle(exchange);
  exchange->DropBody();  // A stream may last for minutes, and the bodies of all of them together have no limit.
  ReleaseBody();
}

template <typename Stream>
bool Connection<Stream>::ReserveBody(int64_t num_bytes) {
  if (!owner_->ReserveBytes(num_bytes - reserved_bytes_)) {
    Refuse(503, "the server is receiving too many bytes of requests");
    return false;
  }
  reserved_bytes_ = num_bytes;
  return true;
}

template <typename Stream>
void Connection<Stream>::ReleaseBody() {
  owner_->ReleaseBytes(std::exchange(reserved_bytes_, 0));
}

template <typename Stream>
std::string Connection<Stream>::Head(int code, absl::string_view content_type) const {
  const auto reason = http::obsolete_reason(http::int_to_status(code));
  std::string head = absl::StrCat("HTTP/1.1 ", code, " ", absl::string_view(reason.data(), reason.size()),
                                  "\r\nContent-Type: ", content_type,
                                  "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
  if (!keeps_alive_) head += "Connection: close\r\n";
  return head;
}

template <typename Stream>
void Connection<Stream>::Refuse(int code, absl::string_view message) {
  keeps_alive_ = false;
  deadline_ = SteadyTime::max();
  WebResponse response{.code = code, .body = ErrorBody(message, "invalid_request_error", std::nullopt, std::nullopt)};
  owner_->NoteRefusal(code);
  if (code == 503) response.headers.emplace_back("Retry-After", "1");
  Respond(std::move(response));
}

template <typename Stream>
void Connection<Stream>::RefuseUnreadable(error_code error) {
  if (is_late_) return Refuse(408, "the request did not arrive in time");
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refuse(431, absl::StrCat("the head of the request has more than ", kMaxHeadBytes, " bytes"));
  }
  if (error == http::error::body_limit) {
    return Refuse(413,
                  absl::StrCat("the body of the request has more than ", owner_->options().max_body_bytes, " bytes"));
  }
  const bool is_of_http = error.category() == http::make_error_code(http::error::bad_method).category();
  if (!is_of_http || error == http::error::end_of_stream || error == http::error::partial_message) return Close();
  Refuse(400, absl::StrCat("this is not a request of HTTP/1: ", error.message()));
}

template <typename Stream>
void Connection<Stream>::RefuseEncoding(absl::string_view encoding) {
  Refuse(415, absl::StrCat("the header Content-Encoding is \"", absl::Utf8SafeCHexEscape(encoding),
                           "\", and this server reads bodies without compression only; send the body as it is, without "
                           "the header"));
}

template <typename Stream>
void Connection<Stream>::Respond(WebResponse response) {
  keeps_alive_ = keeps_alive_ && !owner_->is_stopping();
  std::string text = Head(response.code, response.content_type);
  for (const auto& [name, value] : response.headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  absl::StrAppend(&text, "Content-Length: ", response.body.size(), "\r\n\r\n");
  if (!std::exchange(is_head_, false)) {
    response.body.insert(0, text);
    text = std::move(response.body);
  }
  ends_after_write_ = true;
  EndResponse();
  Write(std::move(text));
}

template <typename Stream>
void Connection<Stream>::BeginEvents() {
  keeps_alive_ = keeps_alive_ && is_chunked_ && !owner_->is_stopping();
  absl::StrAppend(&unsent_, Head(200, "text/event-stream; charset=utf-8"),
                  is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "", "\r\n");
}

template <typename Stream>
void Connection<Stream>::Send(const std::string& text) {
  if (text.empty()) return;
  if (!is_chunked_) return Write(text);
  Write(absl::StrCat(absl::Hex(text.size()), "\r\n", text, "\r\n"));
}

template <typename Stream>
void Connection<Stream>::EndEvents() {
  ends_after_write_ = true;
  EndResponse();
  Write(is_chunked_ ? "0\r\n\r\n" : "");
}

template <typename Stream>
void Connection<Stream>::EndResponse() {
  exchange_ = nullptr;
  gone_ = nullptr;
}

template <typename Stream>
void Connection<Stream>::Write(std::string text) {
  if (is_closed_) return;
  // What has been made already is sent, even if it is larger: a whole response, or one event.
  if (!ends_after_write_ && unsent_.size() > owner_->options().max_unsent_bytes) return Close();
  if (unsent_.empty()) {
    unsent_ = std::move(text);
  } else {
    unsent_ += text;
  }
  if (!is_writing_) Flush();
}

template <typename Stream>
void Connection<Stream>::Flush() {
  is_writing_ = true;
  sending_ = std::exchange(unsent_, std::string());
  num_sent_ = 0;
  send_deadline_ = std::chrono::steady_clock::now() + owner_->options().send_timeout;
  WriteSome();
}

template <typename Stream>
void Connection<Stream>::WriteSome() {
  // Every write that takes bytes is progress, so the client has the whole time again.
  write_deadline_ = std::chrono::steady_clock::now() + owner_->options().write_timeout;
  stream_.async_write_some(
      asio::buffer(sending_) + num_sent_,
      [self = this->shared_from_this()](error_code error, size_t num_bytes) { self->OnWritten(error, num_bytes); });
}

template <typename Stream>
void Connection<Stream>::OnWritten(error_code error, size_t num_bytes) {
  num_sent_ += num_bytes;
  if (!error && !is_closed_ && num_sent_ < sending_.size()) return WriteSome();
  is_writing_ = false;
  write_deadline_ = SteadyTime::max();
  send_deadline_ = SteadyTime::max();
  if (is_closed_) return;
  if (error) return Close();
  if (!unsent_.empty()) return Flush();
  sending_ = std::string();
  if (!std::exchange(ends_after_write_, false)) return;
  kept_ = nullptr;
  NextRequest();
}

// Tells the client that nothing follows, and waits until it has closed its side. If the socket were closed while data
// of the client is unread, the client could lose the response.
template <typename Stream>
void Connection<Stream>::Linger() {
  is_lingering_ = true;
  parser_.reset();
  SetDeadline(kLingerTimeout);
  if (!is_watching_) return EndSending();
  // The read ends first, because the end of TLS reads as well.
  error_code ignored;
  socket().cancel(ignored);
}

template <typename Stream>
void Connection<Stream>::EndSending() {
  has_ended_sending_ = true;
  buffer_.consume(buffer_.size());
  if constexpr (std::is_same_v<Stream, Socket>) {
    EndSocket();
  } else {
    // Sends close_notify, without which the client cannot know that the response is whole. It ends when the client has
    // answered, has sent something else or has closed the connection.
    stream_.async_shutdown([self = this->shared_from_this()](error_code) { self->EndSocket(); });
  }
}

template <typename Stream>
void Connection<Stream>::EndSocket() {
  if (is_closed_) return;
  error_code ignored;
  socket().shutdown(asio::socket_base::shutdown_send, ignored);
  Watch();
}

}  // namespace

std::shared_ptr<WebConnection> MakeWebConnection(WebConnectionOwner* owner, Socket socket, asio::ssl::context* tls) {
  if (tls == nullptr) return std::make_shared<Connection<Socket>>(owner, std::move(socket));
  return std::make_shared<Connection<asio::ssl::stream<Socket>>>(owner, std::move(socket), *tls);
}

}  // namespace quire
