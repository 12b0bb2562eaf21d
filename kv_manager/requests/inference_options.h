// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_INFERENCE_OPTIONS_H_
#define QUIRE_KV_MANAGER_REQUESTS_INFERENCE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "kv_manager/rpc/receive_watch.h"
#include "security/seal_key.h"

namespace quire {

class TokenFile;

// ValidateGenerate and ValidateTokenize need to know this besides the request and the model.
struct RequestLimits {
  size_t max_prompt_bytes = 4 << 20;  // Bytes of a text that is to be tokenized.
  // Says whether nobody waits for the request any more: then it soon fails with CANCELLED. Borrowed. Null: somebody
  // waits.
  const std::function<bool()>* has_left = nullptr;
  bool uses_model_defaults = true;  // For fields that a request does not set: ServedModel::defaults.
};

// Says how long and how many requests continue without their clients.
struct DetachOptions {
  // Time in which a client may come back, and for which a stream that has ended is kept.
  absl::Duration grace = absl::Seconds(30);
  // Limit for the requests that run without their clients, and again for those that have ended and wait for them. 0: no
  // request outlives its call.
  size_t max_detached = 1024;
  int64_t max_replay_bytes = 256 << 20;    // Memory for all streams that can be resumed.
  std::optional<SealKey> resume_key = {};  // Seals resume tokens. Empty: a key that only this process has.
};

// The options of InferenceService, with the defaults of the command line.
struct InferenceServiceOptions {
  RequestLimits limits = {};
  size_t max_requests = 4096;           // Calls of Generate and requests of GenerateBatch at the same time.
  size_t max_batch_requests = 1024;     // Requests of one GenerateBatch at the same time.
  size_t max_message_bytes = 16 << 20;  // Bytes of a message that gRPC sends.
  DetachOptions detach = {};
  ReceiveLimits receive_limits =
      {};  // Limits of messages that are being received. max_bytes also limits answers that are not read.
  // Says how many tokens of each sample may wait for a slow reader before its request is ended, see OutboxLimit.
  size_t max_outbox_tokens = 4096;
  // When generation has ended: how long a client may take to read the rest before its call is cancelled.
  absl::Duration last_write_timeout = absl::Seconds(30);
  size_t max_waiting_texts = 64;  // Number of long texts that may wait to be tokenized.
  // Bytes of the texts that wait to be tokenized or are being tokenized. A tenant may have half of it.
  size_t max_text_bytes = 128 << 20;
  // The tokens that tell tenants apart. Null: callers need no token, and every caller may use every request.
  std::shared_ptr<TokenFile> tokens = nullptr;
  bool logs_requests = false;
  int num_text_threads = 2;  // For long prompts, and again for the text of generated tokens.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_INFERENCE_OPTIONS_H_
