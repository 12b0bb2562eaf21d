// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_LEADER_SEARCH_H_
#define QUIRE_CLIENT_LIBRARY_LEADER_SEARCH_H_

#include <cstddef>
#include <utility>

namespace quire {

// Finds the manager that leads, among several: a call asks one after the other. When all were asked and one of them
// stands by or stops, one will lead soon, so the call pauses and begins again. When none has answered, it ends. This
// class is not thread-safe.
class LeaderSearch {
 public:
  enum class Next {
    kAsk,          // Ask the next manager.
    kPauseAndAsk,  // Ask it after a pause.
    kEnd,
  };

  explicit LeaderSearch(size_t num_managers) : num_managers_(num_managers) {}

  // A manager stands by or stops, or could not be reached.
  Next After(bool stands_by) {
    has_standby_ |= stands_by;
    if (++num_asked_ % num_managers_ != 0) return Next::kAsk;
    return std::exchange(has_standby_, false) ? Next::kPauseAndAsk : Next::kEnd;
  }

 private:
  size_t num_managers_;
  size_t num_asked_ = 0;
  bool has_standby_ = false;  // Says whether one of the managers of this round stands by or stops.
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_LEADER_SEARCH_H_
