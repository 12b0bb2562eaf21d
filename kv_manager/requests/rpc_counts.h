// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_RPC_COUNTS_H_
#define QUIRE_KV_MANAGER_REQUESTS_RPC_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace quire {

// Methods of InferenceService. A request of GenerateBatch counts as a call of Generate, its stream as GenerateBatch.
enum class RpcMethod {
  kGenerate,
  kGenerateBatch,
  kTokenize,
  kDetokenize,
  kGetModel,
  kAbort,
  kResume,
  kRenderChat,
  kEmbed
};
inline constexpr std::array<const char*, 9> kRpcMethodNames = {
    "Generate", "GenerateBatch", "Tokenize", "Detokenize", "GetModel", "Abort", "Resume", "RenderChat", "Embed"};
// By the number of the status code, which is the same for absl::StatusCode and gRPC.
inline constexpr std::array<const char*, 17> kRpcCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// Limits of the service itself, which refuse requests before the engine sees them.
enum class RpcRefusal { kTooManyRequests, kTooManyBatchRequests, kTooManyLongTexts, kTooManyNewGuides };
inline constexpr std::array<const char*, 4> kRpcRefusalNames = {"too_many_requests", "too_many_batch_requests",
                                                                "too_many_long_texts", "too_many_new_guides"};

// Counts the calls that have ended by method and status code, and those that a limit of the service has refused by
// limit. Thread-safe.
class RpcCounts {
 public:
  void Count(RpcMethod method, absl::StatusCode code) { ++counts_[Index(method)][Index(code)]; }
  int64_t count(RpcMethod method, absl::StatusCode code) const { return counts_[Index(method)][Index(code)]; }
  void Count(RpcRefusal refusal) { ++refusals_[Index(refusal)]; }
  int64_t count(RpcRefusal refusal) const { return refusals_[Index(refusal)]; }

 private:
  template <typename Enum>
  static size_t Index(Enum value) {
    return static_cast<size_t>(value);
  }

  std::array<std::array<std::atomic<int64_t>, kRpcCodeNames.size()>, kRpcMethodNames.size()> counts_ = {};
  std::array<std::atomic<int64_t>, kRpcRefusalNames.size()> refusals_ = {};
};

// The counts of ResumableRequests at one moment.
struct DetachedCounts {
  int64_t running = 0;       // Requests that run or wait without a client.
  int64_t ended = 0;         // Requests that have ended and whose stream can still be resumed.
  int64_t replay_bytes = 0;  // Memory of all streams that can be resumed.
  int64_t resumed = 0;       // Streams that another call has taken over. This and what follows only grow.
  int64_t expired = 0;       // Running requests that ended because their clients did not come back in time.
  int64_t displaced = 0;     // Running requests that ended because there were too many without clients.
  int64_t forgotten = 0;     // Streams that cannot be resumed any more, because there was no memory for them.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_RPC_COUNTS_H_
