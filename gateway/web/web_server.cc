// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/web_server.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/fair_queue.h"
#include "base/status.h"
#include "gateway/web/body_memory.h"
#include "gateway/web/server_turns.h"
#include "gateway/web/tls_context.h"
#include "gateway/web/web_connection.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using SteadyTime = std::chrono::steady_clock::time_point;
using Socket = asio::generic::stream_protocol::socket;

// How often the server looks for connections whose time is up or whose client has left.
constexpr std::chrono::milliseconds kTick(200);
// Rate of all large bodies together in bytes per second, and the most bytes at once.
constexpr int64_t kPacedRate = 64 << 20;
constexpr int64_t kMaxPacedBytes = 256 << 10;
constexpr std::chrono::milliseconds kPaceTick(2);
// Time for requests before other work has its turn, such as tokens of streams.
constexpr int64_t kTurnsUs = 500;
// One of this number of connections is kept free for the next client, as long as others only wait.
constexpr size_t kPartKeptFree = 16;

class Server : public WebServer, public WebConnectionOwner {
 public:
  explicit Server(WebServerOptions options)
      : options_(std::move(options)),
        body_memory_(options_.max_receiving_bytes,
                     std::max(options_.max_receiving_bytes / 4 * 3, static_cast<int64_t>(options_.max_body_bytes))) {}
  ~Server() override { Stop(std::chrono::milliseconds(0)); }

  absl::Status Listen(Handler handler) override;
  void Post(std::function<void()> function) override { asio::post(io_, std::move(function)); }
  void PostAfter(std::chrono::milliseconds delay, std::function<void()> function) override;
  void Stop(std::chrono::milliseconds grace) override;
  bool is_stopping() const override { return is_stopping_; }
  PortStats stats() const override { return acceptor_->stats(); }
  std::string address() const override { return acceptor_->address(); }

  // The rest is for connections, on the server's thread.
  const WebServerOptions& options() const override { return options_; }
  void Handle(std::shared_ptr<WebExchange> exchange) override { handler_(std::move(exchange)); }
  void NoteRefusal(int code) override {
    if (options_.on_refusal) options_.on_refusal(code);
  }
  void Remove(WebConnection* connection) override { connections_.erase(connection); }
  BodyMemory* body_memory() override { return &body_memory_; }
  void Pace(const std::string& caller, std::function<void()> read) override;
  void WaitForTurn(const std::string& address, std::function<void()> function) override;
  void RunSoon(std::function<void()> function) override { Post(std::move(function)); }

 private:
  void Take(int fd, const std::string& peer);
  // Handles what has come from clients for a moment, and again behind all other work if there is more.
  void RunTurns();
  // Reads the part of large bodies that is due, and looks again soon if there is more.
  void ReadPaced();
  // Closes a connection that waits, if nearly all are taken.
  void MakeRoom();
  void Tick();

  const WebServerOptions options_;
  BodyMemory body_memory_;           // Destroyed after what still waits in io_. It belongs to the server's thread.
  Handler handler_;                  // Constant after Listen.
  std::unique_ptr<TlsContext> tls_;  // Null without TLS.
  std::unique_ptr<Acceptor> acceptor_;
  asio::io_context io_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  asio::steady_timer timer_{io_};
  asio::steady_timer pace_timer_{io_};
  std::thread thread_;
  bool has_stopped_ = false;

  // These belong to the server's thread.
  absl::flat_hash_map<WebConnection*, std::shared_ptr<WebConnection>> connections_;
  ServerTurns turns_{&SteadyClock()};
  bool has_turns_ = false;                  // RunTurns runs again soon.
  FairQueue<std::function<void()>> paced_;  // Reads of large bodies that wait.
  int64_t paced_bytes_ = 0;                 // Number of bytes that may be read now.
  SteadyTime paced_until_;                  // The time that these bytes count.
  bool is_pacing_ = false;                  // ReadPaced runs again soon.
  bool is_stopping_ = false;
  SteadyTime stop_deadline_;
};

absl::Status Server::Listen(Handler handler) {
  handler_ = std::move(handler);
  if (!options_.tls.certificate.empty()) {
    QUIRE_ASSIGN_OR_RETURN(tls_, TlsContext::Open(options_.tls));
  }
  work_.emplace(io_.get_executor());
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor =
      Acceptor::Start(options_.address,
                      {.port = "listen",
                       .flag = "--max-connections",
                       .max_connections = options_.max_connections,
                       .max_per_address = options_.max_connections_per_address},
                      [this](int fd, const std::string& peer) { Post([this, fd, peer] { Take(fd, peer); }); });
  if (!acceptor.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options_.address, ": ", acceptor.status().message()));
  }
  acceptor_ = *std::move(acceptor);
  thread_ = std::thread([this] {
    Tick();
    io_.run();
  });
  return absl::OkStatus();
}

void Server::Take(int fd, const std::string& peer) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (is_stopping_ || getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    close(fd);
    return;
  }
  const int on = 1;  // Tokens do not wait until a packet is full. Fails for unix sockets, which need it not.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Socket socket(io_);
  error_code error;
  socket.assign(asio::generic::stream_protocol(address.ss_family, 0), fd, error);
  if (error) {
    close(fd);
    return;
  }
  const std::shared_ptr<WebConnection> connection =
      MakeWebConnection(this, std::move(socket), peer, tls_ == nullptr ? nullptr : &tls_->current());
  MakeRoom();
  connections_.emplace(connection.get(), connection);
  connection->Start();
}

void Server::WaitForTurn(const std::string& address, std::function<void()> function) {
  turns_.Push(address, std::move(function));
  if (!std::exchange(has_turns_, true)) Post([this] { RunTurns(); });
}

void Server::RunTurns() {
  turns_.Run(kTurnsUs);
  has_turns_ = !turns_.empty();
  if (has_turns_) Post([this] { RunTurns(); });
}

void Server::Pace(const std::string& caller, std::function<void()> read) {
  paced_.Push(caller, std::move(read));
  if (!is_pacing_) ReadPaced();
}

void Server::ReadPaced() {
  const SteadyTime now = std::chrono::steady_clock::now();
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - paced_until_).count();
  paced_bytes_ = std::min(kMaxPacedBytes, paced_bytes_ + std::min<int64_t>(passed, 1'000'000) * kPacedRate / 1'000'000);
  paced_until_ = now;
  while (!paced_.empty() && paced_bytes_ > 0) {
    paced_bytes_ -= kReadBytes;
    paced_.Pop()();
  }
  is_pacing_ = !paced_.empty();
  if (!is_pacing_) return;
  pace_timer_.expires_after(kPaceTick);
  pace_timer_.async_wait([this](error_code error) {
    if (!error) ReadPaced();
  });
}

void Server::MakeRoom() {
  const auto max = static_cast<size_t>(options_.max_connections);
  if (connections_.size() < max - max / kPartKeptFree) return;
  absl::flat_hash_map<std::string, int> counts;
  for (const auto& [key, connection] : connections_) ++counts[connection->address()];
  WebConnection* oldest = nullptr;
  for (const auto& [key, connection] : connections_) {
    if (!connection->waiting_since().has_value()) continue;
    if (oldest != nullptr) {
      const int count = counts[connection->address()];
      const int most = counts[oldest->address()];
      if (count < most || (count == most && *connection->waiting_since() >= *oldest->waiting_since())) continue;
    }
    oldest = key;
  }
  if (oldest != nullptr) oldest->Close();
}

void Server::Tick() {
  const SteadyTime now = std::chrono::steady_clock::now();
  // Both calls may remove the connection.
  std::vector<std::shared_ptr<WebConnection>> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(connection);
  for (const auto& connection : all) {
    if (is_stopping_ && (!connection->is_busy() || now >= stop_deadline_)) {
      connection->Close();
    } else {
      connection->CheckTime(now);
    }
  }
  if (is_stopping_ && connections_.empty()) return io_.stop();
  timer_.expires_after(is_stopping_ ? kTick / 10 : kTick);
  timer_.async_wait([this](error_code) { Tick(); });
}

void Server::PostAfter(std::chrono::milliseconds delay, std::function<void()> function) {
  Post([this, delay, function = std::move(function)] {
    const auto timer = std::make_shared<asio::steady_timer>(io_, delay);
    timer->async_wait([timer, function](error_code error) {
      if (!error) function();
    });
  });
}

void Server::Stop(std::chrono::milliseconds grace) {
  if (std::exchange(has_stopped_, true) || acceptor_ == nullptr) return;
  acceptor_->Stop();
  // This runs after Take for all connections that were accepted, so it leaves none of their descriptors open.
  Post([this, grace] {
    is_stopping_ = true;
    stop_deadline_ = std::chrono::steady_clock::now() + grace;
    timer_.cancel();  // The next look is now.
  });
  if (thread_.joinable()) thread_.join();
}

}  // namespace

std::unique_ptr<WebServer> WebServer::Create(WebServerOptions options) {
  return std::make_unique<Server>(std::move(options));
}

}  // namespace quire
