#ifndef QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_
#define QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/worker_link/worker_client.h"

namespace quire {

// Decides which model is served: the model of the first worker. Thread-safe.
class ModelRegistry {
 public:
  // `max_context_tokens` is an upper bound for the context that the model supports.
  explicit ModelRegistry(int max_context_tokens) : max_context_tokens_(max_context_tokens) {}

  // Whether a worker with this description may serve here. FAILED_PRECONDITION names the first difference from the
  // first worker: all workers must have the same model and the same numerics, so that equal requests get equal tokens.
  // The first worker is refused with FAILED_PRECONDITION when a tokenizer file cannot be used; the message says which
  // file and why. A model without tokenizer files is served for token ids only. Calls wait for each other, and so for
  // the first worker's tokenizer to be loaded.
  absl::Status Admit(const WorkerDescription& description);

  // Null until a worker was admitted; never changes afterwards. Does not wait for Admit.
  std::shared_ptr<const ServedModel> model() const;

 private:
  const int max_context_tokens_;
  Mutex admission_mutex_;  // Held by Admit from beginning to end; taken before mutex_.
  std::optional<WorkerDescription> first_ QUIRE_GUARDED_BY(admission_mutex_);
  mutable Mutex mutex_;
  std::shared_ptr<const ServedModel> model_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_
