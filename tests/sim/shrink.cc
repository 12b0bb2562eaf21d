// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/shrink.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace quire {
namespace {

class Shrinker {
 public:
  Shrinker(Scenario scenario, const std::function<bool(const Scenario&)>& fails, int max_attempts)
      : best_(std::move(scenario)), fails_(fails), num_attempts_left_(max_attempts) {}

  Scenario Run() {
    do {
      has_changed_ = false;
      DropEvents();
      DropWorkers();
      for (SimField<SimModel> field : ModelFields()) Lower(field, [](Scenario& s) { return &s.model; });
      for (size_t i = 0; i < best_.workers.size(); ++i) {
        for (SimField<SimWorker> field : WorkerFields()) Lower(field, [i](Scenario& s) { return &s.workers[i]; });
      }
      DropUnusedRequests();
      std::vector<int> ids;
      for (const auto& [id, request] : best_.requests) ids.push_back(id);
      for (const int id : ids) {
        for (SimField<SimRequest> field : RequestFields()) Lower(field, [id](Scenario& s) { return &s.requests[id]; });
      }
    } while (has_changed_ && num_attempts_left_ > 0);
    return std::move(best_);
  }

 private:
  // Replaces the scenario by `smaller` if that fails too.
  bool Try(Scenario smaller) {
    if (num_attempts_left_ == 0 || !CheckScenario(smaller).ok()) return false;
    --num_attempts_left_;
    if (!fails_(smaller)) return false;
    best_ = std::move(smaller);
    has_changed_ = true;
    return true;
  }

  void DropEvents() {
    for (size_t size = std::max<size_t>(best_.events.size() / 2, 1);; size /= 2) {
      for (size_t first = 0; first < best_.events.size();) {
        Scenario smaller = best_;
        const auto begin = smaller.events.begin() + static_cast<int64_t>(first);
        smaller.events.erase(begin, begin + static_cast<int64_t>(std::min(size, smaller.events.size() - first)));
        Scenario sooner = smaller;
        for (auto& [id, request] : sooner.requests) {
          if (request.deadline > 0) request.deadline = std::max(1, request.deadline - static_cast<int>(size));
        }
        if (!Try(std::move(smaller)) && !(HasDeadlines() && Try(std::move(sooner)))) first += size;
      }
      if (size <= 1) return;
    }
  }

  bool HasDeadlines() const {
    return std::any_of(best_.requests.begin(), best_.requests.end(),
                       [](const auto& entry) { return entry.second.deadline > 0; });
  }

  void DropWorkers() {
    for (size_t i = best_.workers.size(); i-- > 0 && best_.workers.size() > 1;) {
      Scenario smaller = best_;
      smaller.workers.erase(smaller.workers.begin() + static_cast<int64_t>(i));
      std::erase_if(smaller.events,
                    [&](const SimEvent& event) { return IsOfWorker(event) && event.subject == static_cast<int>(i); });
      for (SimEvent& event : smaller.events) {
        if (IsOfWorker(event) && event.subject > static_cast<int>(i)) --event.subject;
      }
      Try(std::move(smaller));
    }
  }

  void DropUnusedRequests() {
    std::erase_if(best_.requests, [&](const auto& entry) {
      return std::find(best_.events.begin(), best_.events.end(), SimEvent{SimEventKind::kSubmit, entry.first}) ==
             best_.events.end();
    });
  }

  // Moves a parameter to its default. If that does not fail, moves it half of the way as often as possible, or by 1.
  template <typename T, typename Get>
  void Lower(SimField<T> field, const Get& get) {
    const int least = T().*field.value;
    int T::*const value = field.value;
    const auto set = [&](int to) {
      if (get(best_)->*value == to) return false;
      Scenario smaller = best_;
      get(smaller)->*value = to;
      return Try(std::move(smaller));
    };
    if (set(least)) return;
    while (set(least + (get(best_)->*value - least) / 2)) {
    }
    const int now = get(best_)->*value;
    if (now != least) set(now > least ? now - 1 : now + 1);
  }

  static bool IsOfWorker(const SimEvent& event) {
    return event.kind != SimEventKind::kSubmit && event.kind != SimEventKind::kCancel &&
           event.kind != SimEventKind::kCancelSample && event.kind != SimEventKind::kProbe &&
           event.kind != SimEventKind::kManagerLost;
  }

  Scenario best_;
  const std::function<bool(const Scenario&)>& fails_;
  int num_attempts_left_;
  bool has_changed_ = false;
};

}  // namespace

Scenario Shrink(Scenario scenario, const std::function<bool(const Scenario&)>& fails, int max_attempts) {
  return Shrinker(std::move(scenario), fails, max_attempts).Run();
}

}  // namespace quire
