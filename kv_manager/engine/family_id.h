// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_FAMILY_ID_H_
#define QUIRE_KV_MANAGER_ENGINE_FAMILY_ID_H_

#include <cstdint>

namespace quire {

// The generations of a family have the same weights and the same tokenizer, so that a token id has the same meaning in
// all of them. They differ in their numerics: the same request may get other tokens. 0 is no family. See ModelRegistry.
enum class FamilyId : uint64_t {};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_FAMILY_ID_H_
