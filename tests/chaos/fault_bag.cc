// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/fault_bag.h"

#include "absl/strings/str_cat.h"

namespace quire {

absl::Status FaultBag::RunNext() {
  if (left_.empty()) {
    for (size_t i = 0; i < faults_.size(); ++i) left_.push_back(static_cast<int>(i));
  }
  const auto drawn = left_.begin() + random_.Below(static_cast<int>(left_.size()));
  const Fault& fault = faults_[*drawn];
  left_.erase(drawn);
  ++counts_[fault.name];
  const absl::Status status = fault.run();
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(fault.name, ": ", status.message()));
}

}  // namespace quire
