#ifndef QUIRE_KV_MANAGER_REQUESTS_INFERENCE_OPTIONS_H_
#define QUIRE_KV_MANAGER_REQUESTS_INFERENCE_OPTIONS_H_

#include <cstddef>
#include <memory>

#include "absl/time/time.h"

namespace quire {

class TokenFile;

struct RequestLimits {
  size_t max_prompt_bytes = 4 << 20;  // Of a text to be tokenized.
};

struct InferenceServiceOptions {
  RequestLimits limits;
  size_t max_requests = 4096;           // Calls of Generate, and requests of GenerateBatch, at the same time.
  size_t max_batch_requests = 1024;     // Of those, the ones of one GenerateBatch.
  size_t max_message_bytes = 16 << 20;  // That gRPC sends.
  size_t max_outbox_tokens = 4096;      // Tokens that wait for one slow reader before its request is ended.
  // How long a client may take to read what is under way when generation has ended, before its call is cancelled.
  absl::Duration last_write_timeout = absl::Seconds(30);
  size_t max_waiting_texts = 64;  // Long texts that wait to be tokenized.
  // Who callers are and what belongs to them; null: callers need no token, and all belongs to all.
  std::shared_ptr<TokenFile> tokens = nullptr;
  bool logs_requests = false;
  int num_text_threads = 2;  // Tokenize long texts; as many again make the text of generated tokens.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_INFERENCE_OPTIONS_H_
