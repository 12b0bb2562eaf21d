// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_ENVIRONMENT_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_ENVIRONMENT_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/random_source.h"
#include "base/span_queue.h"
#include "base/trace_context.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/requests/guide_cache.h"
#include "kv_manager/requests/inference_options.h"
#include "kv_manager/requests/request_registry.h"
#include "kv_manager/requests/resumable_requests.h"
#include "kv_manager/requests/rpc_counts.h"
#include "kv_manager/requests/text_threads.h"
#include "kv_manager/rpc/answer_watch.h"
#include "kv_manager/rpc/receive_watch.h"

namespace quire {

// Work for one message of a call that may send many. It has the cost of a whole call.
enum class ClientWork {
  kMessage,
  kLostRequest,  // In addition: the request of the message has ended without an answer.
};

// The objects that all requests of one manager share. The services borrow it; it outlives them and their calls. Its
// members are thread-safe.
struct RequestEnvironment {
  // `engine` and `clock` are borrowed.
  RequestEnvironment(Engine* engine, const InferenceServiceOptions& options, const Clock* clock = &SteadyClock())
      : engine(engine),
        clock(clock),
        options(options),
        registry(options.max_requests),
        resumable(options.detach, clock),
        receiving(options.receive_limits, &SteadyClock()),
        answers(options.receive_limits.max_bytes, options.last_write_timeout, &SteadyClock()),
        guides(clock, &counts),
        text_threads(options.num_text_threads, options.max_waiting_texts, options.max_text_bytes, &counts) {}

  // Nothing that the engine tells later reaches a stream.
  ~RequestEnvironment() { resumable.Stop(); }

  // The span of a request that has arrived with this trace context, or without one.
  TraceSpan NewSpan(const std::optional<TraceParent>& parent) {
    const uint64_t numbers[] = {random.Next(), random.Next(), random.Next()};
    return spans == nullptr ? StartSpan(parent, numbers) : spans->Start(parent, numbers);
  }

  Engine* const engine;
  const Clock* const clock;  // The clock of Request::deadline_us.
  const InferenceServiceOptions options;
  RpcCounts counts;
  RandomSource random;
  RequestRegistry registry;
  ResumableRequests resumable;
  ReceiveWatch receiving;  // It watches the messages of all calls.
  AnswerWatch answers;     // It watches their answers.
  GuideCache guides;
  std::atomic<size_t> num_embed_inputs = 0;  // Of all calls of Embed. At most options.max_requests.
  // Returns whether workers may still have requests of an earlier manager, which are not restored yet, or this manager
  // leaves its requests to the next one. Set before the first call, and not changed then.
  std::function<bool()> is_restoring = [] { return false; };
  // A call makes work that its frames do not show, and its client pays for it with the turns of its connection. The
  // first is the peer of the call. Any thread may call it. Set like is_restoring.
  std::function<void(const std::string& peer, ClientWork work)> charge = [](const std::string&, ClientWork) {};
  // Says that this manager stands by, and who leads. The result is empty when it leads. Set like is_restoring.
  std::function<std::string()> standby = [] { return std::string(); };
  // Takes the spans of requests that have ended. Null: none are wanted. Borrowed. Set like is_restoring.
  SpanQueue* spans = nullptr;
  TextThreads text_threads;  // Ends first, because its jobs use the others.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_ENVIRONMENT_H_
