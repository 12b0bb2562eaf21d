// SPDX-License-Identifier: Apache-2.0

#include "gateway/manager_link/leader_watch.h"

#include <utility>

namespace quire {

LeaderWatch::LeaderWatch(size_t num_managers, DelayedExecutor delayed_executor, Hooks hooks)
    : delayed_executor_(std::move(delayed_executor)), hooks_(std::move(hooks)), managers_(num_managers) {}

void LeaderWatch::OnSent() {
  if (is_watching_ || managers_.size() == 1) return;
  is_watching_ = true;
  delayed_executor_(kInterval, [this] { Look(); });
}

void LeaderWatch::Look() {
  is_watching_ = false;
  for (size_t manager = 0; manager < managers_.size(); ++manager) {
    if (!hooks_.is_awaited(manager)) {
      OnHeard(manager);
      continue;
    }
    LookAt(manager);
    OnSent();
  }
}

void LeaderWatch::LookAt(size_t index) {
  Manager& manager = managers_[index];
  if (std::exchange(manager.was_heard, false)) return;
  if (++manager.num_silent_looks * kInterval < kPatience) return;
  if (manager.is_silent) return AskOthers(index);
  Ask(index, [this, index](Answer answer) {
    if (answer.has_come) {
      OnHeard(index);
    } else {
      managers_[index].is_silent = !managers_[index].was_heard;
    }
  });
}

void LeaderWatch::AskOthers(size_t silent) {
  for (size_t other = 0; other < managers_.size(); ++other) {
    if (other == silent) continue;
    Ask(other, [this, silent, other](Answer answer) {
      if (answer.has_come) OnHeard(other);
      if (!answer.is_serving || !managers_[silent].is_silent) return;
      OnHeard(silent);  // Its watch restarts.
      hooks_.give_up(silent, other);
    });
  }
}

void LeaderWatch::Ask(size_t manager, std::function<void(Answer answer)> done) {
  if (std::exchange(managers_[manager].is_asked, true)) return;
  hooks_.ask(manager, [this, manager, done = std::move(done)](Answer answer) {
    managers_[manager].is_asked = false;
    done(answer);
  });
}

}  // namespace quire
