// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_SERVED_MODEL_H_
#define QUIRE_KV_MANAGER_ENGINE_SERVED_MODEL_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kv_manager/chat/chat_template.h"
#include "kv_manager/engine/family_id.h"
#include "kv_manager/engine/lazy_guide_vocabulary.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "kv_manager/worker_link/worker_description.h"
#include "scheduler/request.h"

namespace quire {

// These values are recommended by a model, for fields that a request does not set.
struct SamplingDefaults {
  std::map<std::string, double> sampling;  // By the names of kSamplingFields.
  std::optional<int> max_tokens;

  bool operator==(const SamplingDefaults&) const = default;
};

// The model of a generation of workers. Immutable.
struct ServedModel {
  // Returns whether a request gets the same tokens each time. The workers of some generations do not promise it, see
  // kernels/backend.h.
  bool has_exact_numerics() const;
  // Returns what guides take the token for: the bytes of its text, none for an end token, and for another special token
  // those of grammar/token_table.h. REQUIRES: there is a tokenizer.
  std::string GuideBytes(TokenId token) const;

  GenerationId generation{0};
  FamilyId family{0};
  std::string name;
  std::string architecture;
  std::string numerics_fingerprint;
  int vocab_size = 0;
  int max_context_tokens = 0;
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  SamplingDefaults defaults;
  ModelPooling pooling;
  bool embeds_only = false;
  std::unique_ptr<const Tokenizer> tokenizer;  // Null when the checkpoint came without one.
  // Workers need it for guides. It is null when the model has no tokenizer or no end token.
  std::unique_ptr<const LazyGuideVocabulary> guide_vocabulary;
  // It is null when the checkpoint came without one. An error when it cannot be used; then only messages are refused.
  absl::StatusOr<std::unique_ptr<const ChatTemplate>> chat_template = nullptr;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_SERVED_MODEL_H_
