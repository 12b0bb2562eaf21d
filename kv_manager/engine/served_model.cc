// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/served_model.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "grammar/token_table.h"

namespace quire {

bool ServedModel::has_exact_numerics() const {
  // The part before the first slash names the weights.
  const size_t slash = numerics_fingerprint.find('/');
  const absl::string_view backend =
      absl::string_view(numerics_fingerprint).substr(slash == std::string::npos ? 0 : slash);
  return !absl::StrContains(backend, "tuned");
}

std::string ServedModel::GuideBytes(TokenId token) const {
  if (std::find(eos_token_ids.begin(), eos_token_ids.end(), token) != eos_token_ids.end()) return "";
  std::string bytes = tokenizer->TokenBytes(token);
  if (tokenizer->IsSpecial(token)) return bytes.empty() ? "" : grammar::SpecialTokenBytes(bytes);
  // A token for the byte 0xFF alone must not spell the mark of special tokens. No text has this byte.
  return absl::StrContains(bytes, '\xFF') ? "" : bytes;
}

}  // namespace quire
