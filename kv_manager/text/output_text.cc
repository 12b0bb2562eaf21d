// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/text/output_text.h"

#include <algorithm>
#include <utility>

namespace quire {

OutputText::OutputText(const Tokenizer* tokenizer, const std::vector<TokenId>& prompt, OutputOptions options,
                       std::string* prompt_text)
    : matcher_(std::exchange(options.stop, {})), options_(std::move(options)) {
  if (tokenizer == nullptr) return;
  if (prompt_text == nullptr) {
    detokenizer_.emplace(*tokenizer, prompt, options_.skip_special_tokens);
    return;
  }
  detokenizer_.emplace(*tokenizer, absl::Span<const TokenId>(), options_.skip_special_tokens);
  prompt_text->clear();
  for (TokenId token : prompt) prompt_text->append(detokenizer_->Push(token));
}

std::optional<std::string> OutputText::Append(TokenId token, std::string* text) {
  ++num_tokens_;
  if (!detokenizer_.has_value()) return std::nullopt;
  const bool is_end = std::binary_search(options_.end_tokens.begin(), options_.end_tokens.end(), token);
  if (is_end && !options_.include_stop) return std::nullopt;
  return Match(detokenizer_->Push(token), text);
}

std::optional<std::string> OutputText::Finish(std::string* text) {
  if (!detokenizer_.has_value()) return std::nullopt;
  std::optional<std::string> stop = Match(detokenizer_->Finish(), text);
  if (!stop.has_value()) text->append(matcher_.held_back());
  return stop;
}

std::optional<std::string> OutputText::Match(const std::string& piece, std::string* text) {
  const std::optional<int> match = matcher_.Append(piece, num_tokens_ >= options_.min_tokens, text);
  if (!match.has_value()) return std::nullopt;
  const std::string& stop = matcher_.stop(*match);
  if (options_.include_stop) text->append(stop);
  return stop;
}

}  // namespace quire
