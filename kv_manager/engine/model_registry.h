#ifndef QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_
#define QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_

#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/worker_link/worker_client.h"

namespace quire {

// Decides which model is served: the first worker's. Thread-safe.
class ModelRegistry {
 public:
  // `max_context_tokens` caps what the model was made for.
  explicit ModelRegistry(int max_context_tokens) : max_context_tokens_(max_context_tokens) {}

  // Whether a worker with this description may serve here. FAILED_PRECONDITION names what differs from the first one:
  // the model, or the numerics that make equal requests give equal tokens; or, for what would be the first, the
  // tokenizer file that cannot be used and why. A model without tokenizer files is served for token ids alone. One at a
  // time: a call waits while the first worker's tokenizer is loaded.
  absl::Status Admit(const WorkerDescription& description);

  // Null until a worker was admitted; never changes afterwards. Waits for nobody.
  std::shared_ptr<const ServedModel> model() const;

 private:
  const int max_context_tokens_;
  std::mutex admission_mutex_;              // Held by Admit from beginning to end; taken before mutex_.
  std::optional<WorkerDescription> first_;  // Guarded by admission_mutex_.
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;  // Guarded by mutex_.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_
