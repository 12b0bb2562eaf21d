// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_MODEL_COMPARISON_H_
#define QUIRE_KV_MANAGER_ENGINE_MODEL_COMPARISON_H_

#include <string>

#include "kv_manager/worker_link/worker_description.h"

namespace quire {

// The member of tokenizer_config.json in which a worker notes from what it has made the file.
inline constexpr char kMadeFrom[] = "made_from";

// Returns true if both workers have the same weights, configuration and tokenizer files, so that they belong to one
// family. What a worker notes in a tokenizer file about its origin may differ.
bool IsSameFamily(const WorkerDescription& a, const WorkerDescription& b);

// Returns true if they also have the same numerics, so that they belong to one generation.
bool IsSameModel(const WorkerDescription& a, const WorkerDescription& b);

// Says how `worker` differs from `other`, for people: the flag of the worker or the property of the model, with both
// values. An example is "--kv-type (int8, not float32), context (512, not 1024 tokens)". The result is empty if
// IsSameModel.
std::string DescribeDifference(const WorkerDescription& worker, const WorkerDescription& other);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MODEL_COMPARISON_H_
