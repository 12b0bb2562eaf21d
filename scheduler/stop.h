// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_STOP_H_
#define QUIRE_SCHEDULER_STOP_H_

#include <optional>

#include "base/ids.h"
#include "scheduler/request.h"

namespace quire {

// Returns why a sequence of `request` ends with `token`, which is the `num_generated`th token that it has generated.
// Returns nothing when the sequence continues. A stop token at the length limit counts as a stop token.
std::optional<FinishReason> StopReason(const Request& request, int num_generated, TokenId token);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STOP_H_
