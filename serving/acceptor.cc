// SPDX-License-Identifier: Apache-2.0

#include "serving/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr std::chrono::seconds kRetryInterval(1);             // Between attempts to listen again.
constexpr std::chrono::milliseconds kPauseWithoutFiles(100);  // Until somebody may have closed a file.
constexpr std::chrono::milliseconds kPauseWhileBusy(5);       // Until must_wait is asked again.
constexpr int kMaxAcceptsPerRound = 64;
// After refusing a connection at a limit, wait this long before asking the kernel which connections have been closed.
constexpr std::chrono::milliseconds kRefusalTime(50);
// Time without an acknowledgement after which a peer counts as gone.
constexpr int kUserTimeoutMs = 30'000;

// Returns the IP address in the name of a socket, or an empty string for a unix socket.
std::string AddressOf(const sockaddr_storage& name) {
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(name).sin_addr, text, sizeof(text));
  } else if (name.ss_family == AF_INET6) {
    const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(name).sin6_addr;
    const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&ipv6);
    inet_ntop(is_ipv4 ? AF_INET : AF_INET6, is_ipv4 ? &ipv6.s6_addr[12] : ipv6.s6_addr, text, sizeof(text));
  }
  return text;
}

std::string NameOf(const std::string& ip, int port) {
  return absl::StrCat(ip, " ", port);
}

// Returns a text that differs from the text of every other connected socket of this machine, except for unix sockets
// without a name.
std::string NameOf(const sockaddr_storage& name, socklen_t size) {
  const auto* const bytes = reinterpret_cast<const char*>(&name);
  if (name.ss_family == AF_UNIX) return std::string(bytes, size);
  const bool is_ipv6 = name.ss_family == AF_INET6;
  const in_port_t port = is_ipv6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                 : reinterpret_cast<const sockaddr_in&>(name).sin_port;
  return NameOf(AddressOf(name), ntohs(port));
}

// Closes a connection so that the client sees a reset at once.
void Reset(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(fd);
}

bool IsLackOfFiles(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

int OpenSpare() {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

// Returns whether a connection to the own port that fails with this error proves that the port is deaf. Other errors
// can come from this end, for example from a machine whose loopback device has no address.
bool ProvesDeafness(int error) {
  return error == ECONNREFUSED || error == ENOENT || error == ENOTSOCK;
}

// Linux takes a connection to a wildcard address as one to the loopback address of the same family. A machine may lack
// the one of IPv6, so a listener for both families is reached by IPv4.
void AvoidLoopbackOfIpv6(int listener, sockaddr_storage* name) {
  if (name->ss_family != AF_INET6) return;
  in6_addr& ip = reinterpret_cast<sockaddr_in6*>(name)->sin6_addr;
  int only_ipv6 = 1;
  socklen_t size = sizeof(only_ipv6);
  getsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, &size);
  if (only_ipv6 == 0 && IN6_IS_ADDR_UNSPECIFIED(&ip)) inet_pton(AF_INET6, "::ffff:127.0.0.1", &ip);
}

// Begins to connect to the socket that listens at `listener`. Returns the new socket, or -1 with errno.
int ConnectTo(int listener) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size) != 0) return -1;
  AvoidLoopbackOfIpv6(listener, &name);
  const int fd = socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  // A unix socket gets a name by which the other end knows it; the kernel chooses one.
  const sockaddr unnamed{.sa_family = AF_UNIX, .sa_data = {}};
  if (name.ss_family == AF_UNIX) bind(fd, &unnamed, sizeof(sa_family_t));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0 || errno == EINPROGRESS || errno == EAGAIN) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(const std::string& address, AcceptorOptions options,
                                                          Handler handler) {
  QUIRE_ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Open(address));
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(sockets), std::move(options), std::move(handler)));
  acceptor->stop_event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  acceptor->spare_fd_ = OpenSpare();
  if (acceptor->stop_event_ < 0) return absl::UnavailableError(std::strerror(errno));
  acceptor->thread_ = std::thread([self = acceptor.get()] { self->Run(); });
  return acceptor;
}

Acceptor::Acceptor(ListeningSockets sockets, AcceptorOptions options, Handler handler)
    : options_(std::move(options)),
      address_(sockets.address()),
      port_(sockets.port()),
      handler_(std::move(handler)),
      sockets_(std::move(sockets)),
      next_probe_(Clock::now() + options_.probe_interval),
      log_limiter_(1) {
  stats_.port = options_.port;
  stats_.max_connections = options_.max_connections;
  stats_.is_listening = true;
}

Acceptor::~Acceptor() {
  Stop();
  if (stop_event_ >= 0) close(stop_event_);
  if (spare_fd_ >= 0) close(spare_fd_);
}

void Acceptor::Stop() {
  if (is_stopping_.exchange(true) || !thread_.joinable()) return;
  const uint64_t one = 1;
  QUIRE_CHECK(write(stop_event_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

PortStats Acceptor::stats() const {
  const MutexLock lock(&mutex_);
  connections_.RemoveClosed();
  PortStats stats = stats_;
  stats.connections = connections_.size();
  return stats;
}

std::optional<int64_t> Acceptor::ReceivedBytes(const std::string& peer, int port) const {
  const MutexLock lock(&mutex_);
  return connections_.ReceivedBytes(NameOf(peer, port));
}

std::optional<int> Acceptor::FindConnection(const std::string& peer, int port) const {
  const MutexLock lock(&mutex_);
  return connections_.Find(NameOf(peer, port));
}

void Acceptor::Run() {
  while (!is_stopping_) {
    const Clock::time_point now = Clock::now();
    if (sockets_.fds().empty()) {
      WaitUntil(now + kRetryInterval, false);
      ListenAnew("");
    } else if (now < paused_until_) {
      WaitUntil(paused_until_, false);
    } else if (probe_fd_ >= 0 && now >= probe_deadline_) {
      FinishProbe();
    } else if (probe_fd_ < 0 && now >= next_probe_) {
      StartProbe();
    } else {
      WaitUntil(probe_fd_ >= 0 ? probe_deadline_ : next_probe_, true);
    }
  }
  EndProbe();
  sockets_.Close();
}

void Acceptor::WaitUntil(Clock::time_point until, bool for_connections) {
  std::vector<pollfd> files = {{.fd = stop_event_, .events = POLLIN, .revents = 0}};
  if (for_connections) {
    for (const int fd : sockets_.fds()) files.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  if (poll(files.data(), files.size(), static_cast<int>(std::max<int64_t>(wait.count(), 0))) <= 0) return;
  for (size_t i = 1; i < files.size() && !is_stopping_; ++i) {
    if (files[i].revents != 0 && !AcceptAll(files[i].fd)) return;
  }
}

bool Acceptor::AcceptAll(int listener) {
  for (int i = 0; i < kMaxAcceptsPerRound; ++i) {
    if (options_.must_wait != nullptr && options_.must_wait()) {
      Pause();
      return true;
    }
    sockaddr_storage name{};
    socklen_t size = sizeof(name);
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&name), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      next_probe_ = Clock::now() + options_.probe_interval;  // The port hears.
      EndProbe();
      TakeProbe(NameOf(name, size)) ? Reset(fd) : Admit(fd, AddressOf(name), NameOf(name, size));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (IsLackOfFiles(errno)) {
      RefuseForLackOfFiles(listener, errno);
      return true;
    }
    if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EOPNOTSUPP) {
      ListenAnew(std::strerror(errno));
      return false;
    }
    // All other errors are about one connection, which has already gone.
  }
  return true;
}

void Acceptor::Pause() {
  EndProbe();  // It could no longer tell whether the port hears.
  const Clock::time_point now = Clock::now();
  paused_until_ = now + kPauseWhileBusy;
  next_probe_ = now + options_.probe_interval;
}

void Acceptor::Admit(int fd, const std::string& peer, const std::string& name) {
  if (const std::string reason = ReasonToRefuse(peer); !reason.empty()) {
    Reset(fd);
    return LogRefusal(reason);
  }
  if (!peer.empty()) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
  }
  {
    const MutexLock lock(&mutex_);
    connections_.Add(fd, peer, peer.empty() ? "" : name);
  }
  handler_(fd, peer);
}

std::string Acceptor::ReasonToRefuse(const std::string& peer) {
  const std::string limit = options_.flag.empty() ? "" : absl::StrCat(" (", options_.flag, ")");
  const MutexLock lock(&mutex_);
  const auto is_port_full = [&]() QUIRE_REQUIRES(mutex_) { return connections_.size() >= options_.max_connections; };
  const auto is_address_full = [&]() QUIRE_REQUIRES(mutex_) {
    return options_.max_per_address > 0 && connections_.CountOf(peer) >= options_.max_per_address;
  };
  if (!is_port_full() && !is_address_full()) return "";
  const Clock::time_point now = Clock::now();
  if (now >= counted_until_) {
    connections_.RemoveClosed();
    if (!is_port_full() && !is_address_full()) return "";
    counted_until_ = now + kRefusalTime;
  }
  ++stats_.refused_at_limit;
  if (is_port_full()) {
    return absl::StrCat("the port has ", connections_.size(), " connections, its limit is ", options_.max_connections,
                        limit);
  }
  return absl::StrCat("this address has ", options_.max_per_address, " connections, which is the limit");
}

void Acceptor::RefuseForLackOfFiles(int listener, int error) {
  // A probe that is under way can no longer tell whether the port hears. Its connection does not count as refused.
  EndProbe();
  // The spare descriptor allows to accept one connection after the other and to close them at once. Otherwise their
  // clients would wait.
  int num_refused = 0;
  if (spare_fd_ >= 0) close(std::exchange(spare_fd_, -1));
  for (int i = 0; i < kMaxAcceptsPerRound; ++i) {
    sockaddr_storage name{};
    socklen_t size = sizeof(name);
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&name), &size, SOCK_CLOEXEC);
    if (fd < 0) break;
    if (!TakeProbe(NameOf(name, size))) ++num_refused;
    Reset(fd);
  }
  spare_fd_ = OpenSpare();
  const Clock::time_point now = Clock::now();
  paused_until_ = now + kPauseWithoutFiles;
  next_probe_ = now + options_.probe_interval;
  {
    const MutexLock lock(&mutex_);
    stats_.refused_for_files += num_refused;
  }
  LogRefusal(std::strerror(error));
}

void Acceptor::LogRefusal(const std::string& reason) {
  const std::optional<int64_t> num_dropped = log_limiter_.Admit(SteadyClock().NowMicros());
  if (!num_dropped) return;
  QUIRE_LOG(kWarning) << "refused a connection at " << Named("address", address_) << ": " << reason
                      << (*num_dropped > 0 ? absl::StrCat("; ", *num_dropped, " like it since the last line") : "");
}

void Acceptor::StartProbe() {
  const Clock::time_point now = Clock::now();
  next_probe_ = now + options_.probe_interval;
  probe_fd_ = ConnectTo(sockets_.fds().front());
  if (probe_fd_ < 0) {
    // Without descriptors there is no probe. Accepting says so when a connection comes.
    if (ProvesDeafness(errno)) ListenAnew(std::strerror(errno));
    return;
  }
  probe_deadline_ = now + options_.probe_timeout;
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  const bool has_name = getsockname(probe_fd_, reinterpret_cast<sockaddr*>(&name), &size) == 0;
  probe_name_ = has_name ? NameOf(name, size) : "";
}

void Acceptor::FinishProbe() {
  // The connection may wait for this thread, which was busy or was not scheduled.
  const std::vector<int> listeners = sockets_.fds();
  for (const int fd : listeners) {
    if (!AcceptAll(fd)) return;
  }
  if (probe_fd_ >= 0) ListenAnew("a connection to the own port was not accepted");
}

void Acceptor::EndProbe() {
  if (probe_fd_ < 0) return;
  // A probe that has connected may still wait to be accepted, behind clients. Another one never will be, so a client
  // may get its name. After the shutdown, it cannot connect any more.
  shutdown(probe_fd_, SHUT_RDWR);
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(probe_fd_, reinterpret_cast<sockaddr*>(&peer), &size) != 0) probe_name_.clear();
  close(std::exchange(probe_fd_, -1));
}

bool Acceptor::TakeProbe(const std::string& name) {
  if (name != probe_name_) return false;
  probe_name_.clear();
  return true;
}

void Acceptor::ListenAnew(const std::string& reason) {
  EndProbe();
  if (!reason.empty()) {
    QUIRE_LOG(kError) << "the port " << Named("address", address_) << " takes no connections: " << reason
                      << "; listening again";
  }
  const bool was_listening = !sockets_.fds().empty();
  sockets_.Close();
  probe_name_.clear();  // What waited to be accepted is gone.
  absl::StatusOr<ListeningSockets> sockets = ListeningSockets::Open(address_);
  next_probe_ = Clock::now() + options_.probe_interval;
  if (!sockets.ok()) {
    if (was_listening) {
      QUIRE_LOG(kError) << "cannot listen on " << Named("address", address_) << " again: " << sockets.status().message()
                        << "; trying every second";
    }
  } else {
    sockets_ = *std::move(sockets);
    QUIRE_LOG(kInfo) << "listening again on " << Named("address", address_);
  }
  const MutexLock lock(&mutex_);
  stats_.is_listening = !sockets_.fds().empty();
  if (was_listening) ++stats_.listened_again;
}

}  // namespace quire
