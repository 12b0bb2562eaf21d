#ifndef QUIRE_KV_MANAGER_MODEL_REGISTRY_H_
#define QUIRE_KV_MANAGER_MODEL_REGISTRY_H_

#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "kv_manager/served_model.h"
#include "kv_manager/worker_client.h"

namespace quire {

// Decides which model is served: the first worker's. Thread-safe.
class ModelRegistry {
 public:
  // `max_context_tokens` caps what the model was made for.
  explicit ModelRegistry(int max_context_tokens) : max_context_tokens_(max_context_tokens) {}

  // Whether a worker with this description may serve here. FAILED_PRECONDITION names what differs from the first one:
  // the model, or the numerics that make equal requests give equal tokens.
  absl::Status Admit(const WorkerDescription& description);

  // Null until a worker was admitted; never changes afterwards.
  std::shared_ptr<const ServedModel> model() const;

 private:
  const int max_context_tokens_;
  mutable std::mutex mutex_;  // Guards the rest.
  std::optional<WorkerDescription> first_;
  std::shared_ptr<const ServedModel> model_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_MODEL_REGISTRY_H_
