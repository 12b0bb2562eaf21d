// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_DESCRIPTION_H_
#define QUIRE_WORKER_DESCRIPTION_H_

#include <string>

#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "quire/v1/worker.pb.h"
#include "worker/model/model.h"
#include "worker/rank_group.h"
#include "worker/worker_limits.h"

namespace quire {

// Makes the answer of Describe for a loaded model. The process calls it once, because the name of the process is drawn.
// `place` is null unless the worker is a rank of a group.
v1::DescribeResponse MakeDescription(const std::string& model_name, const Model& model, const Backend& backend,
                                     const KvLayout& layout, const WorkerLimits& limits,
                                     const RankPlace* place = nullptr);

// Returns InventoryHeader.layout_id for a worker with this description.
std::string LayoutId(const v1::DescribeResponse& description);

}  // namespace quire

#endif  // QUIRE_WORKER_DESCRIPTION_H_
