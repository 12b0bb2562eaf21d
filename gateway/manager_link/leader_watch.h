// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_MANAGER_LINK_LEADER_WATCH_H_
#define QUIRE_GATEWAY_MANAGER_LINK_LEADER_WATCH_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace quire {

// Runs a function after some time.
using DelayedExecutor = std::function<void(std::chrono::milliseconds delay, std::function<void()> function)>;

// Notices that the leading manager has stopped answering while its connection is open, long before keepalive does. A
// manager that owes answers and has been silent for a second is asked for its health. When it does not answer that
// within another second either, the other managers are asked repeatedly. As soon as one of them serves, it leads, and
// the silent one is given up. So a manager that is merely slow is never given up: while it has the lease, no other one
// serves. All functions run on the owner's thread. The executor must not run functions after the destructor.
class LeaderWatch {
 public:
  struct Answer {
    bool has_come;    // Within kPatience.
    bool is_serving;  // The manager leads and can take requests.
  };
  struct Hooks {
    // Returns whether the manager owes answers.
    std::function<bool(size_t manager)> is_awaited;
    // Asks the manager for its health, and waits for kPatience.
    std::function<void(size_t manager, std::function<void(Answer answer)> done)> ask;
    // What `silent` owes is to be asked of `leader`.
    std::function<void(size_t silent, size_t leader)> give_up;
  };

  static constexpr std::chrono::milliseconds kPatience{1000};
  static constexpr std::chrono::milliseconds kInterval{250};

  LeaderWatch(size_t num_managers, DelayedExecutor delayed_executor, Hooks hooks);

  // A manager owes an answer from here on. Without others there is nothing to watch.
  void OnSent();
  // The manager has answered something.
  void OnHeard(size_t manager) { managers_[manager] = {.is_asked = managers_[manager].is_asked, .was_heard = true}; }

 private:
  struct Manager {
    bool is_asked = false;   // Its health.
    bool was_heard = false;  // Since the last look.
    bool is_silent = false;  // No answer about its health has come.
    int num_silent_looks = 0;
  };

  void Look();
  void LookAt(size_t manager);
  void AskOthers(size_t silent);
  void Ask(size_t manager, std::function<void(Answer answer)> done);

  const DelayedExecutor delayed_executor_;
  const Hooks hooks_;
  std::vector<Manager> managers_;
  bool is_watching_ = false;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_MANAGER_LINK_LEADER_WATCH_H_
