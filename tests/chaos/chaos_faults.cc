// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/chaos_faults.h"

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr absl::Duration kLongTime = absl::Minutes(2);  // For something that normally takes a second.

void Sleep(int ms) {
  absl::SleepFor(absl::Milliseconds(ms));
}

// Ends a process that nothing else may have ended.
absl::Status Kill(Process* process) {
  if (process->HasEnded()) {
    return absl::InternalError(
        absl::StrCat("a process has ended with ", process->Wait(), " by itself:\n", process->Output()));
  }
  process->Signal(SIGKILL);
  process->Wait();
  return absl::OkStatus();
}

// The faults of the processes, with what they share.
class ProcessChaos {
 public:
  explicit ProcessChaos(const ChaosContext& context) : context_(context) {}

  absl::Status KillWorker() {
    const int worker = DrawWorker();
    const int away_ms = Between(0, 1500);
    Note("worker ", worker, " is killed and comes back after ", away_ms, " ms");
    QUIRE_RETURN_IF_ERROR(Kill(&cluster()->worker(worker)));
    Sleep(away_ms);
    cluster()->RestartWorker(worker);
    return absl::OkStatus();  // The next fault may come before the worker has joined.
  }

  // The worker stays away until all its requests have ended on other workers.
  absl::Status KillWorkerForEver() {
    const int worker = DrawWorker();
    Note("worker ", worker, " is killed and does not come back for its requests");
    QUIRE_RETURN_IF_ERROR(Kill(&cluster()->worker(worker)));
    if (!context_.load->WaitForRunning(kLongTime)) return absl::InternalError("its requests do not end");
    Note("worker ", worker, " is started again");
    cluster()->RestartWorker(worker);
    return WaitForWorkers();
  }

  absl::Status KillAllWorkers() {
    const int away_ms = Between(0, 1500);
    Note("all workers are killed and come back after ", away_ms, " ms");
    for (int i = 0; i < context_.num_workers; ++i) QUIRE_RETURN_IF_ERROR(Kill(&cluster()->worker(i)));
    Sleep(away_ms);
    for (int i = 0; i < context_.num_workers; ++i) cluster()->RestartWorker(i);
    return WaitForWorkers();
  }

  absl::Status PauseWorker() {
    const int worker = DrawWorker();
    const int ms = Between(50, 4000);
    Note("worker ", worker, " is stopped for ", ms, " ms");
    return Pause(&cluster()->worker(worker), ms);
  }

  absl::Status PauseManager() {
    const int ms = Between(50, 3000);
    Note("the manager is stopped for ", ms, " ms");
    return Pause(&cluster()->manager(), ms);
  }

  absl::Status KillManager() {
    const int away_ms = Between(0, 800);
    Note("the manager is killed and comes back after ", away_ms, " ms");
    return ReplaceManager([&] { return Kill(&cluster()->manager()); }, away_ms);
  }

  // Its drain is too short for most requests.
  absl::Status StopManager() {
    const int away_ms = Between(0, 800);
    Note("the manager gets SIGTERM and comes back ", away_ms, " ms after its end");
    Process* const manager = &cluster()->manager();
    return ReplaceManager(
        [&] {
          if (manager->HasEnded()) return Kill(manager);
          manager->Signal(SIGTERM);
          const int exit_code = manager->Wait();
          if (exit_code == 0) return absl::OkStatus();
          return absl::InternalError(absl::StrCat("it has ended with ", exit_code, ":\n", manager->Output()));
        },
        away_ms);
  }

  absl::Status KillManagerWhileItAdopts() {
    const int us = Between(0, 30'000);
    Note("the manager is killed twice, the second time ", us, " us after it has come back");
    context_.outages->Begin();
    QUIRE_RETURN_IF_ERROR(Kill(&cluster()->manager()));
    cluster()->RestartManager();
    absl::SleepFor(absl::Microseconds(us));
    return ReplaceManager([&] { return Kill(&cluster()->manager()); }, 0);
  }

  absl::Status KillManagerWithWorker() {
    const int worker = DrawWorker();
    const int away_ms = Between(0, 1000);
    const bool is_worker_first = context_.random->OneIn(2);
    Note("the manager and worker ", worker, " are killed; the ", is_worker_first ? "worker" : "manager",
         " comes back first, the other one after ", away_ms, " ms");
    context_.outages->Begin();
    QUIRE_RETURN_IF_ERROR(Kill(&cluster()->worker(worker)));
    QUIRE_RETURN_IF_ERROR(Kill(&cluster()->manager()));
    if (is_worker_first) cluster()->RestartWorker(worker);
    if (is_worker_first) Sleep(away_ms);
    cluster()->RestartManager();
    if (!is_worker_first) Sleep(away_ms);
    if (!is_worker_first) cluster()->RestartWorker(worker);
    QUIRE_RETURN_IF_ERROR(WaitForWorkers());
    context_.outages->End();
    return absl::OkStatus();
  }

  absl::Status DrainAndMigrate() {
    const int worker = DrawWorker();
    const int ms = Between(50, 1500);
    const bool is_killed = context_.random->OneIn(3);
    Note("worker ", worker, " is drained with --migrate for ", ms, " ms", is_killed ? " and killed meanwhile" : "");
    const std::string endpoint = cluster()->worker_endpoint(worker);
    QUIRE_RETURN_IF_ERROR(cluster()->client().Drain(endpoint, /*migrates=*/true).status());
    Sleep(ms);
    if (is_killed) {
      QUIRE_RETURN_IF_ERROR(Kill(&cluster()->worker(worker)));
      cluster()->RestartWorker(worker);
    }
    return cluster()->client().Undrain(endpoint);
  }

  absl::Status DrainBySignal() {
    const int worker = DrawWorker();
    Note("worker ", worker, " gets SIGTERM");
    Process& process = cluster()->worker(worker);
    // A process that has just begun would die of the signal.
    if (process.HasEnded() || process.WaitForLine("listening on").empty()) return Kill(&process);
    process.Signal(SIGTERM);
    const int exit_code = process.Wait();
    if (exit_code != 0) {
      return absl::InternalError(absl::StrCat("it has ended with ", exit_code, ":\n", process.Output()));
    }
    Note("worker ", worker, " has ended and is started again");
    cluster()->RestartWorker(worker);
    return WaitForWorkers();
  }

 private:
  Cluster* cluster() const { return context_.cluster; }
  int Between(int low, int high) const { return context_.random->Between(low, high); }
  int DrawWorker() const { return context_.random->Below(context_.num_workers); }

  template <typename... Parts>
  void Note(const Parts&... parts) const {
    context_.events->Add(absl::StrCat(parts...));
  }

  absl::Status Pause(Process* process, int ms) const {
    if (process->HasEnded()) return Kill(process);
    process->Signal(SIGSTOP);
    Sleep(ms);
    process->Signal(SIGCONT);
    return absl::OkStatus();
  }

  absl::Status WaitForWorkers() const {
    const absl::Time deadline = absl::Now() + kLongTime;
    while (absl::Now() < deadline) {
      if (cluster()->WaitUntilReady()) return absl::OkStatus();
    }
    return absl::InternalError("a worker does not come back");
  }

  template <typename End>
  absl::Status ReplaceManager(const End& end, int away_ms) const {
    context_.outages->Begin();
    QUIRE_RETURN_IF_ERROR(end());
    Sleep(away_ms);
    cluster()->RestartManager();
    QUIRE_RETURN_IF_ERROR(WaitForWorkers());
    context_.outages->End();
    return absl::OkStatus();
  }

  const ChaosContext context_;
};

// The faults of the connections, with what they share.
class LinkChaos {
 public:
  explicit LinkChaos(const ChaosContext& context) : context_(context) {}

  absl::Status Cut() {
    const auto [proxy, name] = DrawProxy();
    Note(name, " are cut");
    proxy->Cut();
    return absl::OkStatus();
  }

  absl::Status Delay() {
    const auto [proxy, name] = DrawProxy();
    const int delays_ms[] = {context_.random->Between(0, 120), context_.random->Between(0, 120)};
    const int ms = context_.random->Between(200, 2000);
    Note(name, " are slow for ", ms, " ms: by ", delays_ms[0], " ms to the server, by ", delays_ms[1], " ms back");
    proxy->Delay(FaultProxy::kToServer, absl::Milliseconds(delays_ms[0]));
    proxy->Delay(FaultProxy::kToClient, absl::Milliseconds(delays_ms[1]));
    return Heal(proxy, ms);
  }

  absl::Status Hold() {
    const auto [proxy, name] = DrawProxy();
    const FaultProxy::Direction direction = DrawDirection();
    const int ms = context_.random->Between(50, 3000);
    Note(name, " hold what goes ", NameOf(direction), " for ", ms, " ms");
    proxy->Hold(direction);
    return Heal(proxy, ms);
  }

  absl::Status Swallow() {
    const auto [proxy, name] = DrawProxy();
    const FaultProxy::Direction direction = DrawDirection();
    const int ms = context_.random->Between(50, 3000);
    Note(name, " lose what goes ", NameOf(direction), " for ", ms, " ms");
    proxy->Swallow(direction);
    return Heal(proxy, ms);
  }

  absl::Status AcceptAndSwallow() {
    const auto [proxy, name] = DrawProxy();
    const int ms = context_.random->Between(50, 3000);
    Note(name, " are cut, and new ones lead nowhere for ", ms, " ms");
    proxy->AcceptAndSwallow();
    proxy->Cut();
    return Heal(proxy, ms);
  }

 private:
  struct Drawn {
    FaultProxy* proxy;
    std::string name;
  };

  Drawn DrawProxy() const {
    const int number = context_.random->Between(0, context_.num_workers);
    if (number == context_.num_workers) return {context_.client_proxy, "the connections of the clients"};
    return {(*context_.worker_proxies)[static_cast<size_t>(number)].get(),
            absl::StrCat("the connections to worker ", number)};
  }
  FaultProxy::Direction DrawDirection() const {
    return context_.random->OneIn(2) ? FaultProxy::kToServer : FaultProxy::kToClient;
  }
  static const char* NameOf(FaultProxy::Direction direction) {
    return direction == FaultProxy::kToServer ? "to the server" : "to the client";
  }

  template <typename... Parts>
  void Note(const Parts&... parts) const {
    context_.events->Add(absl::StrCat(parts...));
  }

  absl::Status Heal(FaultProxy* proxy, int ms) const {
    Sleep(ms);
    proxy->Heal();
    return absl::OkStatus();
  }

  const ChaosContext context_;
};

}  // namespace

void ManagerOutages::Begin() {
  const MutexLock lock(&mutex_);
  last_end_ = absl::InfiniteFuture();
}

void ManagerOutages::End() {
  const MutexLock lock(&mutex_);
  last_end_ = absl::Now();
}

bool ManagerOutages::HappenedSince(absl::Time start) const {
  const MutexLock lock(&mutex_);
  return last_end_ >= start;
}

std::vector<Fault> ProcessFaults(const ChaosContext& context) {
  const auto chaos = std::make_shared<ProcessChaos>(context);
  return {
      {"worker killed", [=] { return chaos->KillWorker(); }},
      {"worker killed, a second time", [=] { return chaos->KillWorker(); }},
      {"worker gone for ever", [=] { return chaos->KillWorkerForEver(); }},
      {"all workers killed", [=] { return chaos->KillAllWorkers(); }},
      {"worker stopped and continued", [=] { return chaos->PauseWorker(); }},
      {"manager stopped and continued", [=] { return chaos->PauseManager(); }},
      {"manager killed", [=] { return chaos->KillManager(); }},
      {"manager stopped by SIGTERM", [=] { return chaos->StopManager(); }},
      {"manager killed while it adopts", [=] { return chaos->KillManagerWhileItAdopts(); }},
      {"manager killed with a worker", [=] { return chaos->KillManagerWithWorker(); }},
      {"drain with --migrate", [=] { return chaos->DrainAndMigrate(); }},
      {"drain by SIGTERM", [=] { return chaos->DrainBySignal(); }},
  };
}

std::vector<Fault> LinkFaults(const ChaosContext& context) {
  const auto chaos = std::make_shared<LinkChaos>(context);
  return {
      {"connections cut", [=] { return chaos->Cut(); }},
      {"connections slow", [=] { return chaos->Delay(); }},
      {"connections held", [=] { return chaos->Hold(); }},
      {"connections half-open", [=] { return chaos->Swallow(); }},
      {"connections that lead nowhere", [=] { return chaos->AcceptAndSwallow(); }},
  };
}

}  // namespace quire
