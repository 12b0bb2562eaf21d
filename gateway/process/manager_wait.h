// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_MANAGER_WAIT_H_
#define QUIRE_GATEWAY_PROCESS_MANAGER_WAIT_H_

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "gateway/manager_link/manager_link.h"

namespace quire {

// How long the calls of one HTTP request may wait for a manager: for a time that begins with the first question, but
// not beyond the deadline of the request, and not after End. Copies are one wait. Only the thread of the server uses
// it.
class ManagerWait {
 public:
  explicit ManagerWait(std::chrono::milliseconds time) : state_(std::make_shared<State>(State{.time = time})) {}

  void SetDeadline(std::chrono::steady_clock::time_point deadline) const { state_->deadline = deadline; }
  // Nobody waits for the answer any longer.
  void End() const { state_->is_over = true; }

  // What a call of the link asks. It keeps nothing alive but the state of the wait.
  ManagerLink::MayWait MayWait() const {
    return [state = state_] {
      const auto now = std::chrono::steady_clock::now();
      if (!state->end.has_value()) state->end = std::min(state->deadline, now + state->time);
      return !state->is_over && now < *state->end;
    };
  }

 private:
  struct State {
    std::chrono::milliseconds time;
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::optional<std::chrono::steady_clock::time_point> end = std::nullopt;  // Once the wait has begun.
    bool is_over = false;
  };

  std::shared_ptr<State> state_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_MANAGER_WAIT_H_
