// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_GUIDE_H_
#define QUIRE_SCHEDULER_GUIDE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"

namespace quire {

// The bytes of each token in the middle of a text. A worker needs them once in a session.
struct GuideVocabulary {
  std::string bytes;              // Bytes of all tokens, one after the other. Special tokens have none.
  std::vector<uint32_t> lengths;  // [vocab_size], in bytes.
  std::vector<TokenId> end_tokens;
};

// What the output of each sample must be. The service edge has checked it, and the scheduler does not read it.
struct Guide {
  enum class Kind { kJsonSchema, kJsonObject, kRegex, kChoice, kGrammar };

  Kind kind = Kind::kJsonObject;
  std::vector<std::string> texts;  // kChoice: the choices. kJsonObject: none. Otherwise one text.
  std::shared_ptr<const GuideVocabulary> vocabulary;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_GUIDE_H_
