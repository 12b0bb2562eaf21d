// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_FAULT_PROXY_H_
#define QUIRE_TESTS_CHAOS_FAULT_PROXY_H_

#include <cstdint>
#include <list>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace quire {

// A network that can fail: a proxy on a port of the loopback address, which passes bytes on between clients and one
// server. Faults apply to the connections that exist and to those that come. Only one fault of each kind is in effect
// in each direction. All functions are thread-safe and return at once.
class FaultProxy {
 public:
  enum Direction { kToServer = 0, kToClient = 1 };

  // `target` is the server, unix:PATH or 127.0.0.1:PORT. While it is empty, connections are closed when they come.
  explicit FaultProxy(const std::string& target = "");
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  const std::string& endpoint() const { return endpoint_; }  // 127.0.0.1:PORT
  void SetTarget(const std::string& target);

  // Closes all connections. New ones work.
  void Cut();
  // From now on, bytes of this direction arrive later by `delay`.
  void Delay(Direction direction, absl::Duration delay);
  // From now on, the bytes of this direction wait in the proxy. Heal lets them continue, and no byte is lost.
  void Hold(Direction direction);
  // From now on, the bytes of this direction vanish, and the bytes of the other one arrive. Nobody is told: the
  // connection is half-open. Heal closes the connections that have lost bytes.
  void Swallow(Direction direction);
  // From now on, a new connection is accepted, but nothing that is sent there arrives anywhere. Heal closes it.
  void AcceptAndSwallow();
  // Closes the next n connections when they come.
  void RefuseNext(int n);
  // Ends all faults.
  void Heal();

  struct Counts {
    int64_t connections = 0;  // Number of accepted connections.
    int open = 0;
    int64_t bytes[2] = {};  // Bytes that were passed on, by direction.
  };
  Counts counts() const;

 private:
  struct Connection;
  // What is wrong with one direction.
  struct Trouble {
    absl::Duration delay;
    bool holds = false;
    bool swallows = false;
  };

  void Run();
  void Wake() const;
  void Accept() QUIRE_REQUIRES(mutex_);
  // Reads and writes what is possible. Returns false when the connection is over.
  bool Pump(Connection* connection, absl::Time now) QUIRE_REQUIRES(mutex_);
  bool PumpDirection(Connection* connection, int direction, absl::Time now) QUIRE_REQUIRES(mutex_);

  int listener_ = -1;
  int wake_ = -1;  // An eventfd.
  std::string endpoint_;
  mutable Mutex mutex_;
  std::string target_ QUIRE_GUARDED_BY(mutex_);
  Trouble trouble_[2] QUIRE_GUARDED_BY(mutex_);
  bool accepts_and_swallows_ QUIRE_GUARDED_BY(mutex_) = false;
  int num_to_refuse_ QUIRE_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::list<Connection> connections_ QUIRE_GUARDED_BY(mutex_);
  Counts counts_ QUIRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_FAULT_PROXY_H_
