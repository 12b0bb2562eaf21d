// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/text/stop_string_condition.h"

#include <algorithm>
#include <string>
#include <utility>

namespace quire {
namespace {

// Says how many tokens are decoded before the ones that may match. The first tokens of a text may decode differently
// from tokens in the middle, by a space or by missing bytes of a character, and some tokens have no text.
constexpr int kLeadTokens = 16;
constexpr int kMaxCharacterBytes = 4;

int LongestStop(const OutputOptions& options) {
  size_t num_bytes = 0;
  for (const std::string& stop : options.stop) num_bytes = std::max(num_bytes, stop.size());
  return static_cast<int>(num_bytes);
}

bool ContinuesCharacter(const std::string& bytes) {
  return !bytes.empty() && (static_cast<unsigned char>(bytes[0]) & 0xC0) == 0x80;
}

}  // namespace

StopStringCondition::StopStringCondition(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& prompt,
                                         const OutputOptions& options)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(options.skip_special_tokens),
      min_tokens_(options.min_tokens),
      num_decoded_(LongestStop(options) + kLeadTokens),
      from_prompt_(*tokenizer_, prompt, options.skip_special_tokens),
      matcher_(options.stop) {}

bool StopStringCondition::IsMet(absl::Span<const TokenId> last_tokens, int num_tokens) const {
  if (last_tokens.empty() || num_tokens < min_tokens_) return false;
  StreamingDetokenizer detokenizer = Begin(&last_tokens);
  StopStringMatcher matcher = matcher_;
  std::string shown;
  const auto read = [&](TokenId token, bool may_match) {
    if (matcher.Append(detokenizer.Push(token), may_match, &shown).has_value()) return true;
    if (!skip_special_tokens_ || !tokenizer_->IsSpecial(token)) return false;
    return matcher.AppendHidden(tokenizer_->TokenBytes(token), may_match, &shown).has_value();
  };
  for (const TokenId token : last_tokens.first(last_tokens.size() - 1)) read(token, /*may_match=*/false);
  return read(last_tokens.back(), /*may_match=*/true);
}

StreamingDetokenizer StopStringCondition::Begin(absl::Span<const TokenId>* tokens) const {
  if (static_cast<int>(tokens->size()) <= num_decoded_) return from_prompt_;
  tokens->remove_prefix(tokens->size() - num_decoded_);
  for (int i = 1; i < kMaxCharacterBytes && ContinuesCharacter(tokenizer_->TokenBytes(tokens->front())); ++i) {
    tokens->remove_prefix(1);
  }
  return StreamingDetokenizer(*tokenizer_, {}, skip_special_tokens_);
}

}  // namespace quire
