#ifndef QUIRE_SCHEDULER_STOP_H_
#define QUIRE_SCHEDULER_STOP_H_

#include <optional>

#include "base/ids.h"
#include "scheduler/request.h"

namespace quire {

// Why a sequence of `request` ends with `token`, its `num_generated`th generated one; nothing when it goes on. A stop
// token at the length limit counts as a stop token.
std::optional<FinishReason> StopReason(const Request& request, int num_generated, TokenId token);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STOP_H_
