// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_ACCEPTOR_H_
#define QUIRE_SERVING_ACCEPTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/listening_sockets.h"
#include "base/log.h"
#include "base/mutex.h"
#include "serving/connection_table.h"

namespace quire {

// What happened at a port since its start.
struct PortStats {
  std::string port;               // The name of the port, such as "listen".
  int connections = 0;            // Open now.
  int max_connections = 0;        // The limit.
  int64_t refused_at_limit = 0;   // Connections that were refused because the port had its maximum of them.
  int64_t refused_for_files = 0;  // Connections that were refused because the process had no file descriptors left.
  int64_t ended = 0;              // Connections that were ended for what they sent or held.
  int64_t listened_again = 0;     // How often the port was deaf and listened again.
  bool is_listening = false;
};

struct AcceptorOptions {
  std::string port = {};    // The name of the port in metrics, such as "listen".
  std::string flag = {};    // What sets max_connections, for the log; empty if nothing does.
  int max_connections = 0;  // Limit; further connections are closed at once.
  int max_per_address = 0;  // The same for connections from one IP address. 0: only max_connections counts.
  // Returns whether clients must wait, so that no connection is accepted. Null: they never must. Called by the
  // acceptor's thread.
  std::function<bool()> must_wait = nullptr;
  std::chrono::milliseconds probe_interval = std::chrono::seconds(5);  // See Acceptor.
  std::chrono::milliseconds probe_timeout = std::chrono::seconds(2);   // Until the port counts as deaf.
};

// Accepts the connections of one port on a thread of its own and hands them over. It keeps accepting when the process
// runs out of file descriptors: connections that cannot be served are closed, with a line in the log. When no
// connection has come for a while, it connects to its own port. If that fails, for example because somebody removed the
// file of the unix socket, it listens again. Thread-safe.
class Acceptor {
 public:
  // Takes over a connected socket that does not block, and closes it in the end. `peer` is the IP address of the
  // client, or empty for a unix socket. The acceptor's thread calls it.
  using Handler = std::function<void(int fd, const std::string& peer)>;

  // Listens and accepts. Fails like ListeningSockets::Open.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(const std::string& address, AcceptorOptions options,
                                                         Handler handler);
  ~Acceptor();

  // Closes the port and waits until no call of the handler runs. Connections stay open. Later calls do nothing.
  void Stop();

  PortStats stats() const QUIRE_EXCLUDES(mutex_);

  // Returns how many bytes the open TCP connection from this IP address and port has received, or nothing if there is
  // none.
  std::optional<int64_t> ReceivedBytes(const std::string& peer, int port) const QUIRE_EXCLUDES(mutex_);
  // Returns the descriptor of this connection. Returns nothing if it has been closed.
  std::optional<int> FindConnection(const std::string& peer, int port) const QUIRE_EXCLUDES(mutex_);

  // With the port that was taken.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;

  Acceptor(ListeningSockets sockets, AcceptorOptions options, Handler handler);

  void Run();
  // Waits until a connection has come, the thread must stop or `until` is reached.
  void WaitUntil(Clock::time_point until, bool for_connections);
  // Accepts the connections that wait at `listener`. Returns false when the port
  // listens again, with other listeners.
  bool AcceptAll(int listener);
  // Accepts nothing for a moment, because must_wait says so.
  void Pause();
  // `name` is the name of the peer, see NameOf in the source.
  void Admit(int fd, const std::string& peer, const std::string& name);
  // Returns why a connection from `peer` must be refused, or an empty string when it need not be.
  std::string ReasonToRefuse(const std::string& peer) QUIRE_EXCLUDES(mutex_);
  void RefuseForLackOfFiles(int listener, int error);
  void LogRefusal(const std::string& reason);

  void StartProbe();
  // Listens again if the probe does not wait to be accepted either.
  void FinishProbe();
  // Closes the end from which the probe was made.
  void EndProbe();
  // Returns whether the connection that was accepted from a socket of this name is the probe, which then is over.
  bool TakeProbe(const std::string& name);
  // Closes the sockets and opens them again. If that fails, none is open. `reason` is empty in a later attempt.
  void ListenAnew(const std::string& reason);

  const AcceptorOptions options_;
  const std::string address_;
  const int port_;
  const Handler handler_;
  int stop_event_ = -1;

  // These belong to the thread.
  ListeningSockets sockets_;
  int spare_fd_ = -1;       // A reserve: closed to accept and refuse a connection when no other descriptor is left.
  int probe_fd_ = -1;       // A connection to the own port, or -1.
  std::string probe_name_;  // What accepting it shows as the name of its peer. Empty after that.
  Clock::time_point next_probe_;      // When the probe starts, if no connection comes before.
  Clock::time_point probe_deadline_;  // When the port counts as deaf.
  Clock::time_point paused_until_;    // Time before which no connection is accepted.
  LogLimiter log_limiter_;

  std::atomic<bool> is_stopping_{false};
  mutable Mutex mutex_;
  mutable ConnectionTable connections_ QUIRE_GUARDED_BY(mutex_);
  PortStats stats_ QUIRE_GUARDED_BY(mutex_);  // Without the number of connections.
  // Until then connections_ are counted without asking which of them have been closed.
  Clock::time_point counted_until_ QUIRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_ACCEPTOR_H_
