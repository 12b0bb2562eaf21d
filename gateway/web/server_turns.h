// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_SERVER_TURNS_H_
#define QUIRE_GATEWAY_WEB_SERVER_TURNS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"

namespace quire {

// The work that a server does on its thread for the requests of its clients, in pieces. IP addresses take turns: the
// next piece is one of the address whose pieces have taken least time since there is a queue. So an address with many
// connections, or with requests that take long, delays itself more than others. Not thread-safe.
class ServerTurns {
 public:
  // `clock` must outlive it.
  explicit ServerTurns(const Clock* clock) : clock_(clock) {}

  void Push(const std::string& address, std::function<void()> piece);

  // Runs pieces until `duration_us` has passed, one at least, or until none waits. A piece may push others.
  void Run(int64_t duration_us);

  bool empty() const { return waiting_.empty(); }

 private:
  struct Address {
    std::deque<std::function<void()>> pieces;
    int64_t used_us = 0;
  };

  const Clock* const clock_;
  std::map<std::string, Address> addresses_;           // Waiting ones, and others that have used more than these.
  std::set<std::pair<int64_t, std::string>> waiting_;  // `used_us` and the name of each address that has pieces.
  // What the address of the latest piece had used before it. An address that was away counts as if it had used the
  // same, so that it does not come before all others for the time of its absence.
  int64_t used_us_ = 0;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_SERVER_TURNS_H_
