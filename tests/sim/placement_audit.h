// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_PLACEMENT_AUDIT_H_
#define QUIRE_TESTS_SIM_PLACEMENT_AUDIT_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kv_manager/engine/placement.h"

namespace quire {

// Chooses a worker as production does. The error says that a worker was chosen that takes no requests, that another
// worker is better, or that none was chosen although there is one.
absl::StatusOr<std::optional<int>> ChooseWorkerAudited(const std::vector<WorkerLoad>& loads,
                                                       const PlacementRequest& request);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_PLACEMENT_AUDIT_H_
