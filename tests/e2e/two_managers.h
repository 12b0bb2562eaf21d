// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_E2E_TWO_MANAGERS_H_
#define QUIRE_TESTS_E2E_TWO_MANAGERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/library/client.h"
#include "tests/e2e/process.h"

namespace quire {

// The path of etcd, or empty. `./check` unpacks Debian's package etcd-server into the build folder.
std::string EtcdPath();

// An etcd of one member with a new store.
class Etcd {
 public:
  // REQUIRES: EtcdPath() is not empty.
  explicit Etcd(const std::string& folder);

  const std::string& address() const { return address_; }
  Process& process() { return *process_; }

 private:
  std::unique_ptr<Process> process_;
  std::string address_;
};

struct TwoManagersOptions {
  absl::Duration lease = absl::Seconds(4);
  int num_workers = 1;
  std::vector<std::string> worker_flags = {};  // In addition to the device, which is simulated.
};

// The real programs: two managers, of which the one that holds a lease in etcd leads, and their workers. All of them
// are joined by unix sockets in a temporary directory. A symbolic link names the socket of the leader, as a Service of
// Kubernetes leads to the pod that is ready. The managers have the same key for resume tokens, so the next leader
// continues with what the workers have.
class TwoManagers {
 public:
  // Starts everything and does not wait for a leader. REQUIRES: EtcdPath() is not empty.
  explicit TwoManagers(const TwoManagersOptions& options);
  ~TwoManagers();

  // Where the leader is, once AwaitLeader has found it.
  std::string endpoint() const;
  // Both addresses, for a client that finds the leader by itself.
  std::string endpoints() const { return "unix:" + SocketOf(0) + ",unix:" + SocketOf(1); }
  Process& manager(int i) { return *managers_[i]; }
  Client& client(int i) { return *clients_[i]; }  // Of this manager.
  Process& etcd() { return etcd_->process(); }

  // Waits until one of these managers serves, and leads the link to it. Returns its number, or -1 if none does in time.
  int AwaitLeader(const std::vector<int>& numbers, absl::Duration timeout = absl::Seconds(60));
  // Starts a manager again after its process has ended.
  void StartManager(int i);

 private:
  std::string SocketOf(int manager) const;
  std::string WorkerAddress(int i) const;

  const TwoManagersOptions options_;
  std::string folder_;
  std::unique_ptr<Etcd> etcd_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::unique_ptr<Process> managers_[2];
  std::unique_ptr<Client> clients_[2];
};

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_TWO_MANAGERS_H_
