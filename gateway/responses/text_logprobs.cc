// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/text_logprobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace quire {

void TextLogprobs::Add(const LogprobList& positions, TokenName name) {
  for (const v1::PositionLogprobs& position : positions) {
    tokens_.push_back({.text = position.chosen().token()});
    AppendChatLogprob(position, name, &tokens_.back().entry);
  }
}

void TextLogprobs::DropBefore(absl::string_view text) {
  const auto first = std::find_if(tokens_.begin(), tokens_.end(), [text](const Token& token) {
    return !token.text.empty() && (absl::StartsWith(text, token.text) || absl::StartsWith(token.text, text));
  });
  tokens_.erase(tokens_.begin(), first);
}

std::string TextLogprobs::Take() {
  std::string entries;
  for (const Token& token : std::exchange(tokens_, {})) {
    absl::StrAppend(&entries, entries.empty() ? "" : ",", token.entry);
  }
  return entries;
}

}  // namespace quire
