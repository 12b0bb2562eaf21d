// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_EMBED_RUN_H_
#define QUIRE_KV_MANAGER_REQUESTS_EMBED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/trace_context.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/request_log.h"
#include "kv_manager/requests/request_registry.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"
#include "security/caller.h"

namespace quire {

// One call of Embed, which keeps this object until its client has read the answer. Each input is a request of the
// engine. Only some inputs are there at a time, so that a call fills no queue, and fewer when the engine takes no more
// because of a limit. The first error ends the call. Thread-safe.
class EmbedRun : public std::enable_shared_from_this<EmbedRun> {
 public:
  // Inputs of one call that the engine has at the same time.
  static constexpr size_t kMaxInEngine = 128;

  // Ends the call, with a response if the status is OK. Called once, on any thread.
  using Done = std::function<void(const absl::Status& status, const v1::EmbedResponse& response)>;

  // `environment` is borrowed. `caller` is empty when callers need no token, `parent` when the caller sends no trace
  // context.
  EmbedRun(RequestEnvironment* environment, std::optional<Caller> caller, const std::optional<TraceParent>& parent,
           v1::EmbedRequest request, int64_t deadline_us, Done done);
  ~EmbedRun();

  // Tokenizes the inputs, which may take long, and submits the first ones. Called once.
  void Start();
  // The client has left: the inputs end, now or as soon as they have started.
  void Leave();

 private:
  class InputSink;
  struct Input {
    Request request;
    std::vector<float> values;
    int num_prompt_tokens = 0;
    int num_cached_tokens = 0;
    bool is_in_engine = false;
  };

  absl::Status Prepare();
  // Validates the inputs for this model.
  absl::Status MakeInputs(const std::shared_ptr<const ServedModel>& model);
  void OnStarted(size_t index, int num_cached_tokens);
  void OnEmbedding(size_t index, std::vector<float> values);
  // The engine has nothing of the input any more.
  void OnEnded(size_t index, absl::Status status);
  // Takes the input out of the engine, and keeps the error unless the input may come again.
  void NoteEnd(size_t index, absl::Status status) QUIRE_REQUIRES(mutex_);
  // Lets an output thread advance the call, unless it is about to.
  void Schedule();
  // Submits inputs, and ends the call when it is over.
  void Advance();
  // The next input to submit.
  std::optional<size_t> TakeNext() QUIRE_REQUIRES(mutex_);
  void End(const absl::Status& status);
  v1::EmbedResponse MakeResponse() const QUIRE_REQUIRES(mutex_);

  RequestEnvironment* const environment_;
  const std::optional<Caller> caller_;
  const TraceSpan span_;
  const v1::EmbedRequest request_;
  const int64_t arrival_us_;
  const int64_t deadline_us_;
  const Done done_;
  std::unique_ptr<RequestRegistry::Registration> registration_;  // A drain waits as long as it exists.
  std::optional<RequestLog> log_;
  std::shared_ptr<const ServedModel> model_;
  size_t num_places_ = 0;  // See RequestEnvironment::num_embed_inputs.

  Mutex mutex_;
  std::vector<Input> inputs_ QUIRE_GUARDED_BY(mutex_);
  std::vector<size_t> again_ QUIRE_GUARDED_BY(mutex_);  // Inputs that the engine had no room for.
  size_t next_ QUIRE_GUARDED_BY(mutex_) = 0;            // Inputs before this one were submitted.
  size_t num_in_engine_ QUIRE_GUARDED_BY(mutex_) = 0;
  size_t num_done_ QUIRE_GUARDED_BY(mutex_) = 0;
  size_t max_in_engine_ QUIRE_GUARDED_BY(mutex_) = kMaxInEngine;
  absl::Status status_ QUIRE_GUARDED_BY(mutex_);  // The first error.
  bool has_job_ QUIRE_GUARDED_BY(mutex_) = true;  // Advance runs or is about to; Start counts.
  bool is_over_ QUIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_EMBED_RUN_H_
