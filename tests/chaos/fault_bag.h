// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_FAULT_BAG_H_
#define QUIRE_TESTS_CHAOS_FAULT_BAG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/random.h"

namespace quire {

// A fault: it happens, lasts for a while and is over when `run` returns. The error says what the service did wrong.
struct Fault {
  std::string name;
  std::function<absl::Status()> run;
};

// Draws faults so that each occurs once before any of them occurs again, and counts them.
class FaultBag {
 public:
  FaultBag(std::vector<Fault> faults, uint64_t seed) : faults_(std::move(faults)), random_(seed) {}

  // Runs one fault. The error begins with its name.
  absl::Status RunNext();

  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  const std::vector<Fault> faults_;
  Random random_;
  std::vector<int> left_;  // Faults that this turn has not had yet.
  std::map<std::string, int> counts_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_FAULT_BAG_H_
