// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/web_connection.h"

#include <poll.h>

#include <algorithm>
#include <bit>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gateway/web/body_decoder.h"
#include "gateway/web/error_body.h"
#include "gateway/web/request_id.h"
#include "gateway/web/response_head.h"
#include "security/peer_names.h"
#include "serving/http_head.h"
#include "serving/web_rules.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using SteadyTime = std::chrono::steady_clock::time_point;
using Socket = asio::generic::stream_protocol::socket;

constexpr size_t kMaxHeadBytes = 16 << 10;
// Largest body of a request whose answer does not depend on its body.
constexpr size_t kMaxUnusedBytes = BodyMemory::kSmallBytes;
constexpr std::chrono::seconds kLingerTimeout(2);
// Smallest rate in bytes per second at which a body must come, counted from body_start.
constexpr int64_t kMinBodyRate = 1024;
constexpr char kNoRoom[] = "the server is receiving too many bytes of requests";

// Returns the values of all headers with this name, which RFC 9110, 5.3 takes as one list. Returns nothing when there
// is none. `name` is in lower case.
std::optional<std::string> AllValues(const HttpHead& head, absl::string_view name) {
  std::optional<std::string> values;
  for (const auto& [key, value] : head.headers) {
    if (key == name) values = values.has_value() ? absl::StrCat(*values, ", ", value) : value;
  }
  return values;
}

// One connection. It has at most one request at a time.
template <typename Stream>
class Connection : public WebConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... Args>
  explicit Connection(WebConnectionOwner* owner, std::string address, Args&&... args)
      : owner_(owner), address_(std::move(address)), stream_(std::forward<Args>(args)...) {}
  void Start() override;
  void Close() override;
  bool is_busy() const override { return exchange_ != nullptr || is_writing_ || waits_for_turn_; }
  std::optional<SteadyTime> waiting_since() const override {
    const bool waits = phase_ == Phase::kIdle || phase_ == Phase::kHead;
    return waits && !is_lingering_ ? std::optional(waiting_since_) : std::nullopt;
  }
  const std::string& address() const override { return address_; }
  void CheckTime(SteadyTime now) override;

 private:
  // What the connection waits for: the handshake or the first byte of a request, the rest of a head, a body, or the end
  // of the response.
  enum class Phase { kIdle, kHead, kBody, kResponse };

  class Exchange : public WebExchange {
   public:
    Exchange(std::shared_ptr<Connection> connection, WebRequest request, std::shared_ptr<BodyMemory::Share> share)
        : connection_(std::move(connection)), request_(std::move(request)), share_(std::move(share)) {}
    const WebRequest& request() const override { return request_; }
    std::shared_ptr<const std::string> TakeBody() override {
      WebConnectionOwner* const owner = connection_->owner_;
      return std::shared_ptr<const std::string>(
          new std::string(std::exchange(request_.body, std::string())),
          [owner, share = std::exchange(share_, nullptr)](const std::string* body) mutable {
            delete body;
            owner->RunSoon([share = std::move(share)] {});  // The share belongs to the thread of the server.
          });
    }
    void DropBody() {
      request_.body = std::string();
      share_ = nullptr;
    }
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
    std::shared_ptr<BodyMemory::Share> share_;  // Null for a request without a body.
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

  void SetPhase(Phase phase) {
    phase_ = phase;
    waiting_since_ = std::chrono::steady_clock::now();
  }

  // Waits for bytes of the next request, or for the end of the connection: during a response, or when it lingers.
  void Watch();
  void OnBytes(error_code error, size_t num_bytes);
  void NextRequest();
  // Adds bytes to buffer_ and continues with `next`, unless the request must be refused meanwhile.
  void Read(void (Connection::*next)());
  void OnRead(error_code error, size_t num_bytes, void (Connection::*next)());
  // Bytes of a request have come. Continues with `next` when it is the turn of the address, unless the request must be
  // refused then.
  void WaitForTurn(void (Connection::*next)());
  // Returns whether the reading of a request continues after this result. Otherwise it has refused the request or
  // closed the connection.
  bool GoesOn(error_code error);
  void ReadHead();
  void ContinueHead();
  void OnHead(HttpHead head);
  // Returns why the request is refused, judging by its head.
  std::optional<HttpRefusal> ReasonToRefuse(const HttpHead& head) const;
  // Begins to read a body.
  void BeginBody(const HttpHead& head);
  void ContinueBody();
  // The memory of the body is needed for others.
  void DropBody();
  void OnRequest();

  // Answers a request that cannot be handled, and closes the connection.
  void Refuse(int code, absl::string_view message);
  void RefuseWith(WebResponse response);
  void Respond(WebResponse response);
  void BeginEvents();
  void Send(const std::string& text);
  void EndEvents();
  std::string Head(int code, absl::string_view content_type) const {
    return ResponseHead{code, content_type, request_id_, keeps_alive_, /*is_http10=*/!is_chunked_}.Text();
  }
  void Write(std::string text);
  void Flush();
  // Writes the part of `sending_` that the socket takes.
  void WriteSome();
  void OnWritten(error_code error, size_t num_bytes);
  // The whole response was given to the connection.
  void EndResponse();
  void Linger();
  // Ends TLS, then the side of the server, and waits for the end of the connection.
  void EndSending();
  void EndSocket();

  WebConnectionOwner* const owner_;
  const std::string address_;
  Stream stream_;
  std::string read_block_;   // The next bytes come here.
  std::string buffer_;       // Bytes that came and were not used yet.
  size_t num_searched_ = 0;  // Number of its first bytes without the end of the head.
  Phase phase_ = Phase::kIdle;
  SteadyTime waiting_since_ = std::chrono::steady_clock::now();  // The beginning of the phase.
  std::string request_id_;                                       // Of the request that is read or answered.
  WebRequest request_;                                           // The request that is being read.
  std::shared_ptr<BodyMemory::Share> share_;                     // Memory of its body.
  std::optional<BodyDecoder> decoder_;                           // For the body that is being read.
  std::vector<std::string> client_names_;
  Exchange* exchange_ = nullptr;  // The current one.
  std::function<void()> gone_;
  std::string unsent_;
  std::string sending_;
  size_t num_sent_ = 0;         // Bytes of `sending_`.
  std::shared_ptr<void> kept_;  // For the response.
  SteadyTime deadline_ = SteadyTime::max();
  SteadyTime write_deadline_ = SteadyTime::max();
  SteadyTime send_deadline_ = SteadyTime::max();
  bool is_watching_ = false;
  bool is_writing_ = false;
  bool waits_for_turn_ = false;
  bool is_late_ = false;     // The request did not arrive in time.
  bool is_dropped_ = false;  // The memory of its body was needed for others.
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
      if (error || self->is_closed_) return self->Close();
      self->client_names_ = PeerNames(self->stream_.native_handle());
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
  share_ = nullptr;
  kept_ = nullptr;
  owner_->Remove(this);
  if (gone_) std::exchange(gone_, nullptr)();
}

template <typename Stream>
void Connection<Stream>::CheckTime(SteadyTime now) {
  if (now >= write_deadline_ || now >= send_deadline_) return Close();
  // Bytes of the next request end the watching, and wait until the response has been sent.
  if (exchange_ != nullptr && !is_watching_ && HasPeerClosed()) return Close();
  if (waits_for_turn_) return;  // The client has done its part.
  const auto body_time =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - waiting_since_ - owner_->options().body_start);
  const bool is_slow =
      phase_ == Phase::kBody && static_cast<int64_t>(request_.body.size()) < body_time.count() * kMinBodyRate / 1000;
  if (now < deadline_ && !is_slow) return;
  deadline_ = SteadyTime::max();
  if (is_lingering_ || (phase_ != Phase::kHead && phase_ != Phase::kBody)) return Close();
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
  read_block_.resize(kReadBytes);
  // TLS has ended when the connection lingers, so what still comes is not decrypted.
  if (is_lingering_) return socket().async_read_some(asio::buffer(read_block_), std::move(on_bytes));
  stream_.async_read_some(asio::buffer(read_block_), std::move(on_bytes));
}

template <typename Stream>
void Connection<Stream>::OnBytes(error_code error, size_t num_bytes) {
  is_watching_ = false;
  if (is_closed_) return;
  if (is_lingering_ && !has_ended_sending_) return EndSending();
  if (error) return Close();
  if (is_lingering_) {
    // What a client still sends is not worth the time of others.
    return owner_->Pace(absl::StrCat(address_, " end"), [self = this->shared_from_this()] {
      if (!self->is_closed_) self->Watch();
    });
  }
  buffer_.append(read_block_, 0, num_bytes);
  // Bytes during a response belong to the next request, which waits.
  if (!is_busy()) WaitForTurn(&Connection::ReadHead);
}

template <typename Stream>
void Connection<Stream>::NextRequest() {
  if (!keeps_alive_ || owner_->is_stopping()) return Linger();
  SetPhase(Phase::kIdle);
  SetDeadline(owner_->options().idle_timeout);
  if (is_watching_) return;
  if (!buffer_.empty()) return WaitForTurn(&Connection::ReadHead);
  Watch();
}

template <typename Stream>
void Connection<Stream>::Read(void (Connection::*next)()) {
  read_block_.resize(kReadBytes);
  stream_.async_read_some(asio::buffer(read_block_),
                          [self = this->shared_from_this(), next](error_code error, size_t num_bytes) {
                            self->OnRead(error, num_bytes, next);
                          });
}

template <typename Stream>
void Connection<Stream>::OnRead(error_code error, size_t num_bytes, void (Connection::*next)()) {
  if (!GoesOn(error)) return;
  buffer_.append(read_block_, 0, num_bytes);
  WaitForTurn(next);
}

template <typename Stream>
void Connection<Stream>::WaitForTurn(void (Connection::*next)()) {
  waits_for_turn_ = true;
  owner_->WaitForTurn(address_, [self = this->shared_from_this(), next] {
    self->waits_for_turn_ = false;
    if (self->GoesOn({})) (self.get()->*next)();
  });
}

template <typename Stream>
bool Connection<Stream>::GoesOn(error_code error) {
  if (is_closed_) return false;
  if (std::exchange(is_dropped_, false)) {
    Refuse(503, kNoRoom);
  } else if (std::exchange(is_late_, false)) {
    Refuse(408, "the request did not arrive in time");
  } else if (error) {
    Close();
  } else {
    return true;
  }
  return false;
}

template <typename Stream>
void Connection<Stream>::ReadHead() {
  SetPhase(Phase::kHead);
  SetDeadline(owner_->options().head_timeout);
  num_searched_ = 0;
  request_id_.clear();
  request_ = {};
  ContinueHead();
}

template <typename Stream>
void Connection<Stream>::ContinueHead() {
  is_head_ = IsHeadRequest(buffer_);
  const auto found = FindHeadEnd(buffer_, num_searched_);
  if (const auto* const refusal = std::get_if<HttpRefusal>(&found)) return Refuse(refusal->code, refusal->message);
  const std::optional<size_t> end = std::get<std::optional<size_t>>(found);
  if (end.value_or(buffer_.size()) > kMaxHeadBytes) {
    return Refuse(431, absl::StrCat("the head of the request has more than ", kMaxHeadBytes, " bytes"));
  }
  num_searched_ = buffer_.size();
  if (!end.has_value()) return Read(&Connection::ContinueHead);
  std::variant<HttpHead, HttpRefusal> head = ReadHttpHead(absl::string_view(buffer_).substr(0, *end));
  buffer_.erase(0, *end);
  if (const auto* const refusal = std::get_if<HttpRefusal>(&head)) return Refuse(refusal->code, refusal->message);
  OnHead(std::get<HttpHead>(std::move(head)));
}

template <typename Stream>
void Connection<Stream>::OnHead(HttpHead head) {
  keeps_alive_ = head.keeps_alive;
  is_head_ = head.method == "HEAD";
  is_chunked_ = head.minor_version >= 1;
  const absl::string_view id = head.Header("x-request-id");
  request_id_ = IsRequestId(id) ? std::string(id) : NewRequestId();
  const auto text = [&](const char* name) { return std::string(head.Header(name)); };
  request_ = {
      .method = head.method,
      .path = head.path,
      .authorization = text("authorization"),
      .api_key = text("x-api-key"),
      .last_event_id = text("last-event-id"),
      .timeout = AllValues(head, "x-request-timeout"),
      .traceparent = text("traceparent"),
      .read_timeout = text(head.Has("x-stainless-read-timeout") ? "x-stainless-read-timeout" : "x-stainless-timeout"),
      .content_type = text("content-type"),
      .id = request_id_,
      .is_of_page = IsOfPage(head),
      .address = address_,
      .client_names = client_names_};
  if (const auto refusal = ReasonToRefuse(head)) return Refuse(refusal->code, refusal->message);
  const bool has_body = head.is_chunked || head.content_length.value_or(0) > 0;
  if (owner_->options().check_head) {
    if (std::optional<WebResponse> response = owner_->options().check_head(request_)) {
      if (has_body) return RefuseWith(*std::move(response));
      SetPhase(Phase::kResponse);
      deadline_ = SteadyTime::max();
      return Respond(*std::move(response));
    }
  }
  if (!has_body) return OnRequest();
  BeginBody(head);
}

template <typename Stream>
std::optional<HttpRefusal> Connection<Stream>::ReasonToRefuse(const HttpHead& head) const {
  const WebServerOptions& options = owner_->options();
  if (auto refusal = CheckWebRules(head, options.access, !std::is_same_v<Stream, Socket>)) return refusal;
  for (const auto& [name, value] : head.headers) {
    if (name != "content-encoding" || absl::EqualsIgnoreCase(value, "identity")) continue;
    return HttpRefusal{415, absl::StrCat("the header Content-Encoding is \"", absl::Utf8SafeCHexEscape(value),
                                         "\", and this server reads bodies without compression only; send the body as "
                                         "it is, without the header")};
  }
  const size_t max_bytes = head.method == "POST" ? options.max_body_bytes : kMaxUnusedBytes;
  if (head.content_length.value_or(0) <= max_bytes) return std::nullopt;
  return HttpRefusal{413, absl::StrCat("the body of the request has more than ", max_bytes, " bytes")};
}

template <typename Stream>
void Connection<Stream>::BeginBody(const HttpHead& head) {
  decoder_.emplace(head, head.method == "POST" ? owner_->options().max_body_bytes : kMaxUnusedBytes);
  share_ = owner_->body_memory()->Begin(address_, [this] { DropBody(); });
  SetPhase(Phase::kBody);
  SetDeadline(owner_->options().body_timeout);
  if (!head.expects_continue || !buffer_.empty()) return ContinueBody();
  auto text = std::make_shared<std::string>("HTTP/1.1 100 Continue\r\n\r\n");
  asio::async_write(stream_, asio::buffer(*text), [self = this->shared_from_this(), text](error_code error, size_t) {
    if (self->GoesOn(error)) self->ContinueBody();
  });
}

template <typename Stream>
void Connection<Stream>::ContinueBody() {
  if (const auto refusal = decoder_->Take(&buffer_, &request_.body)) return Refuse(refusal->code, refusal->message);
  if (!share_->Grow(static_cast<int64_t>(request_.body.size()))) {
    return Refuse(503, kNoRoom);
  }
  if (decoder_->is_done()) return OnRequest();
  if (request_.body.size() < BodyMemory::kSmallBytes) return Read(&Connection::ContinueBody);
  // A body waits behind bodies of its size and of its address only, and takes turns with all others.
  owner_->Pace(absl::StrCat(address_, " ", std::bit_width(request_.body.size())), [self = this->shared_from_this()] {
    if (self->GoesOn({})) self->Read(&Connection::ContinueBody);
  });
}

template <typename Stream>
void Connection<Stream>::DropBody() {
  request_.body = std::string();
  share_ = nullptr;
  // The read of the request ends, and its handler refuses the request.
  is_dropped_ = true;
  error_code ignored;
  socket().cancel(ignored);
}

template <typename Stream>
void Connection<Stream>::OnRequest() {
  is_late_ = false;
  deadline_ = SteadyTime::max();
  SetPhase(Phase::kResponse);
  if (share_ != nullptr) share_->Complete();
  auto exchange = std::make_shared<Exchange>(this->shared_from_this(), std::exchange(request_, WebRequest()),
                                             std::exchange(share_, nullptr));
  exchange_ = exchange.get();
  if (buffer_.empty()) Watch();
  owner_->Handle(exchange);
  exchange->DropBody();  // A stream may last for minutes, and the bodies of all of them together have no limit.
}

template <typename Stream>
void Connection<Stream>::Refuse(int code, absl::string_view message) {
  WebResponse response{.code = code};
  if (owner_->options().refusal) {
    response = owner_->options().refusal(request_, code, message);
  } else {
    response.body = ErrorBody(message, "invalid_request_error", std::nullopt, std::nullopt);
  }
  owner_->NoteRefusal(response.code);
  if (code == 503) response.headers.emplace_back("Retry-After", "1");
  RefuseWith(std::move(response));
}

template <typename Stream>
void Connection<Stream>::RefuseWith(WebResponse response) {
  keeps_alive_ = false;
  deadline_ = SteadyTime::max();
  request_ = {};
  share_ = nullptr;
  SetPhase(Phase::kResponse);
  Respond(std::move(response));
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
  SetDeadline(kLingerTimeout);
  if (!is_watching_) return EndSending();
  // The read ends first, because the end of TLS reads as well.
  error_code ignored;
  socket().cancel(ignored);
}

template <typename Stream>
void Connection<Stream>::EndSending() {
  has_ended_sending_ = true;
  buffer_.clear();
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

std::shared_ptr<WebConnection> MakeWebConnection(WebConnectionOwner* owner, Socket socket, std::string address,
                                                 asio::ssl::context* tls) {
  if (tls == nullptr) return std::make_shared<Connection<Socket>>(owner, std::move(address), std::move(socket));
  return std::make_shared<Connection<asio::ssl::stream<Socket>>>(owner, std::move(address), std::move(socket), *tls);
}

}  // namespace quire
