// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/stream_errors.h"

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

absl::Status UnknownRequestError() {
  return WithReason(absl::NotFoundError("resume_token: the request is not known, or not any more"), "REQUEST_UNKNOWN",
                    {{"resubmit_ok", "true"}});
}

absl::Status TakenOverError() {
  return WithReason(absl::AbortedError("another call has taken the stream of the request over"), "TAKEN_OVER");
}

absl::Status NoReplayMemoryError() {
  return WithRetryDelay(WithReason(absl::ResourceExhaustedError(
                                       "the memory for streams that can be resumed is used up (--max-replay-bytes)"),
                                   "REPLAY_MEMORY"),
                        /*delay_ms=*/1000);
}

absl::Status SlowReaderError(size_t num_waiting, size_t limit, bool ends_request) {
  return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                        "the client reads too slowly: ", num_waiting, " tokens wait for it, and the limit is ", limit,
                        " (--max-outbox-tokens for each sample); ",
                        ends_request ? "the request is over"
                                     : "the call is over, and the request continues as if the client had left")),
                    "SLOW_READER", {{"max_outbox_tokens", absl::StrCat(limit)}});
}

}  // namespace quire
