// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_RESTORED_GROUP_H_
#define QUIRE_SCHEDULER_RESTORED_GROUP_H_

#include <memory>

#include "base/ids.h"
#include "scheduler/block_manager.h"
#include "scheduler/restored_request.h"
#include "scheduler/sequence_group.h"

namespace quire {

// Makes the group of a request that an earlier session has left, and takes its parts out of `restored`. The first
// sequence has the id `first`.
std::unique_ptr<SequenceGroup> MakeRestoredGroup(RestoredRequest* restored, ServiceRank rank, SequenceId first);

// Returns whether the block tables of all sequences begin with the same full blocks of the prompt.
bool SharesPrompt(const SequenceGroup& group, const BlockManager& blocks);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_RESTORED_GROUP_H_
