// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_RESTORE_REQUEST_H_
#define QUIRE_KV_MANAGER_ENGINE_RESTORE_REQUEST_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/engine/tenant_quotas.h"
#include "scheduler/request.h"

namespace quire {

// What a worker has of a request that another manager has started.
struct RequestToRestore {
  absl::string_view record;  // Request::record.
  absl::Span<const TokenId> prompt;
  // The time since the last step of its samples, without the time in which the worker had no manager at the end.
  int64_t idle_us = 0;
  // Returns whether the worker has all tokens that the request can have, with these stop strings, if it has any. Null
  // means that it has not. Valid during the call of the hook.
  std::function<bool(const Request&, const StopCondition* stop_strings)> is_over = nullptr;
  GenerationId generation{0};                          // Generation of the worker.
  std::shared_ptr<const ServedModel> model = nullptr;  // Model of this generation, set by the engine.
  // Tokens that are drawn again are the same tokens, whichever worker has drawn them before. The engine sets it.
  bool repeats_tokens = false;
};

// Says how far a worker has come with the request. Several workers may have the same request: one that was silent while
// the request moved to another one still has the rows from before the move.
struct RestoredCopy {
  int num_moves = 0;            // See SequenceStart.
  std::vector<int> num_tokens;  // [samples or returned hypotheses]: what the stream is told of each at once.
  bool is_over = false;         // The worker has all tokens of the request.

  int num_all_tokens() const;
};

// Returns whether `copy` is the one to continue, and not `other`: it has moved more often, so the tokens that the
// client has last received are its tokens. Of two that have moved equally often, it is the one with more tokens.
bool IsLaterCopy(const RestoredCopy& copy, const RestoredCopy& other);

// The request as it was submitted to the other manager, with an id of this one.
struct RequestRestored {
  Request request;
  std::shared_ptr<RequestSink> sink;
  // Returns whether its stream has ended meanwhile, so that nobody wants its tokens.
  std::function<bool()> has_ended;
  // Makes the stream known to its client. It is called once, before the sink is told anything. An error says why this
  // manager does not continue what this worker has. It is not called when what the worker has is of no use (see
  // Revival::is_lost): then nothing but OnFailed follows. Null: there is nothing to do.
  std::function<absl::Status(const RestoredCopy& copy)> keep = nullptr;
  std::unique_ptr<TenantQuotas::Ticket> ticket = nullptr;  // May be null.
  bool is_over = false;                                    // RequestToRestore::is_over has said so.
};

// Makes the request and its stream from the record. An error says why this manager does not continue the request.
// DEADLINE_EXCEEDED: it has ended, and its stream cannot be resumed any more.
using RestoreRequestHook = std::function<absl::StatusOr<RequestRestored>(const RequestToRestore&)>;

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_RESTORE_REQUEST_H_
