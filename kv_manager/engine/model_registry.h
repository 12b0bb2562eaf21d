// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_
#define QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kv_manager/engine/family_id.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/request.h"

namespace quire {

// Sorts the workers into generations. The workers of a generation have the same model name, configuration, tokenizer
// files and numerics fingerprint, so each of them gives the same tokens for the same request. What a worker notes in a
// tokenizer file about its origin may differ. An address belongs to one generation at most. A generation without
// addresses is forgotten, so there are never more generations than addresses. Generations that differ only in the
// numerics fingerprint, and have the same weights, belong to one family. Thread-safe.
class ModelRegistry {
 public:
  // `max_context_tokens` is an upper bound for the context of every model. Without `reads_defaults` no file
  // generation_config.json is read.
  explicit ModelRegistry(int max_context_tokens, bool reads_defaults = true)
      : max_context_tokens_(max_context_tokens), reads_defaults_(reads_defaults) {}

  // The worker at this address has described itself. From now on the address belongs to the generation of the
  // description. This generation becomes the newest, unless the address has belonged to it before: a rollback makes an
  // old generation the newest again, but the restart of an old worker does not. Returns FAILED_PRECONDITION when a
  // tokenizer file cannot be used; the message says which file and why, and nothing changes. Returns it also when the
  // process of the worker has joined at another address, because the sessions of two addresses would end each other
  // repeatedly. A model without tokenizer files is served for token ids only. Calls wait for each other, and so
  // for tokenizers that are being loaded.
  absl::StatusOr<GenerationId> Admit(const std::string& address, const WorkerDescription& description);

  // From now on no other address belongs to a generation. That holds for workers that describe themselves later, too: a
  // step loop that is about to end may still call Admit. Until the first call any address may belong to one.
  void Retain(std::set<std::string> addresses);

  // The family of a generation; 0 when the generation is not known, or not any more. Does not wait for Admit.
  FamilyId FamilyOf(GenerationId generation) const;

  // Says how the workers of two generations differ (DescribeDifference). The result is empty
  // when one of them is not known, or not any more. Does not wait for Admit.
  std::string DifferenceBetween(GenerationId generation, GenerationId other) const;

  // The models of all generations, the newest first. Does not wait for Admit.
  std::vector<std::shared_ptr<const ServedModel>> models() const;

 private:
  struct Generation {
    WorkerDescription description;  // Its first worker has given it.
    std::shared_ptr<const ServedModel> model;
    std::set<std::string> addresses;
  };

  // Returns null when there is no generation with the model of `description`.
  std::shared_ptr<const ServedModel> Find(const WorkerDescription& description) const QUIRE_EXCLUDES(mutex_);
  absl::StatusOr<std::shared_ptr<const ServedModel>> MakeModel(const WorkerDescription& description)
      QUIRE_REQUIRES(admission_mutex_);
  // The family to which `description` belongs; 0 when no generation belongs to it.
  FamilyId FindFamily(const WorkerDescription& description) const QUIRE_EXCLUDES(mutex_);
  absl::Status CheckProcess(const std::string& address, const std::string& process_id) const QUIRE_EXCLUDES(mutex_);
  void ForgetEmpty() QUIRE_REQUIRES(mutex_);

  const int max_context_tokens_;
  const bool reads_defaults_;
  Mutex admission_mutex_;  // Held by Admit from beginning to end; taken before mutex_.
  uint64_t last_id_ QUIRE_GUARDED_BY(admission_mutex_) = 0;
  uint64_t last_family_ QUIRE_GUARDED_BY(admission_mutex_) = 0;
  mutable Mutex mutex_;
  std::vector<Generation> generations_ QUIRE_GUARDED_BY(mutex_);           // The newest first.
  std::map<std::string, std::string> processes_ QUIRE_GUARDED_BY(mutex_);  // The process at each address.
  // DifferenceBetween keeps its results here, because tokenizer files are large. The key is its two arguments.
  mutable std::map<std::pair<uint64_t, uint64_t>, std::string> differences_ QUIRE_GUARDED_BY(mutex_);
  std::optional<std::set<std::string>> retained_ QUIRE_GUARDED_BY(mutex_);  // The argument of the last Retain.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MODEL_REGISTRY_H_
