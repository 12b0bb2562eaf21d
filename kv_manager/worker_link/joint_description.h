// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_JOINT_DESCRIPTION_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_JOINT_DESCRIPTION_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kv_manager/worker_link/worker_description.h"

namespace quire {

// Returns the description of a group as of one worker; `ranks` are the descriptions of its ranks in their order. One
// block table serves the pools of all ranks, so the group has the blocks, rows and step tokens of the smallest one. Its
// last epoch is the greatest one, since the next session must be new to every rank. The digests of tensors of all ranks
// together name the weights in the fingerprint. Rank 0 tells the files of the tokenizer. FAILED_PRECONDITION names the
// first rank that is not where it belongs or that differs from rank 0, with both values. REQUIRES: there is a rank.
absl::StatusOr<WorkerDescription> JoinDescriptions(absl::Span<const WorkerDescription> ranks);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_JOINT_DESCRIPTION_H_
