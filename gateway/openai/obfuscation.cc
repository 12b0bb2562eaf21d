// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/obfuscation.h"

#include "absl/strings/str_cat.h"

namespace quire {

void AppendObfuscation(size_t begin, std::string* out) {
  constexpr size_t kUnit = 64;
  constexpr absl::string_view kMember = ",\"obfuscation\":\"";
  const size_t num_bytes = out->size() - begin + kMember.size() + sizeof("\"}\n\n") - 1;
  absl::StrAppend(out, kMember, std::string(kUnit - num_bytes % kUnit, 'x'), "\"");
}

}  // namespace quire
