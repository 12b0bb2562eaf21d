// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/text/output_text.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace quire {
namespace {

// Says how far the text of a token may be from where it is expected: for each token that is not found, and in all.
constexpr size_t kChangedBytes = 4;
constexpr size_t kMaxChangedBytes = 64;

}  // namespace

OutputText::OutputText(const Tokenizer* tokenizer, const std::vector<TokenId>& prompt, OutputOptions options,
                       std::string* prompt_text)
    : tokenizer_(tokenizer),
      matcher_(std::exchange(options.stop, {})),
      options_(std::make_shared<OutputOptions>(std::move(options))) {
  if (tokenizer == nullptr) return;
  if (prompt_text == nullptr) {
    detokenizer_.emplace(*tokenizer, prompt, options_->skip_special_tokens);
    return;
  }
  detokenizer_.emplace(*tokenizer, absl::Span<const TokenId>(), options_->skip_special_tokens);
  prompt_text->clear();
  for (TokenId token : prompt) prompt_text->append(detokenizer_->Push(token));
}

std::optional<std::string> OutputText::Append(TokenId token, std::string* text) {
  ++num_tokens_;
  if (!detokenizer_.has_value()) return std::nullopt;
  const bool is_end = std::binary_search(options_->end_tokens.begin(), options_->end_tokens.end(), token);
  if (is_end && !options_->include_stop) return std::nullopt;
  const std::string piece = detokenizer_->Push(token);
  num_code_points_ += NumCodePoints(piece);
  std::optional<int> match = matcher_.Append(piece, may_match(), text);
  if (!match.has_value() && options_->skip_special_tokens && tokenizer_->IsSpecial(token)) {
    match = matcher_.AppendHidden(tokenizer_->TokenBytes(token), may_match(), text);
  }
  return Stop(match, text);
}

std::optional<std::string> OutputText::Finish(std::string* text) {
  if (!detokenizer_.has_value()) return std::nullopt;
  std::optional<std::string> stop = Stop(matcher_.Append(detokenizer_->Finish(), may_match(), text), text);
  if (!stop.has_value()) text->append(matcher_.held_back());
  return stop;
}

std::optional<std::string> OutputText::Stop(std::optional<int> match, std::string* text) const {
  if (!match.has_value()) return std::nullopt;
  const std::string& stop = matcher_.stop(*match);
  if (options_->include_stop) text->append(stop);
  return stop;
}

std::vector<size_t> PromptTextOffsets(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt,
                                      std::string_view text) {
  StreamingDetokenizer detokenizer(tokenizer, {}, /*skip_special_tokens=*/true);
  std::vector<size_t> offsets;
  offsets.reserve(prompt.size());
  size_t offset = 0;
  const auto advance = [&](size_t num_bytes) {
    offset += NumCodePoints(text.substr(0, num_bytes));
    text.remove_prefix(num_bytes);
  };
  size_t num_missed = 0;
  for (const TokenId token : prompt) {
    // A tokenizer may change the text, for example to another form of Unicode. Then the piece is a little farther on,
    // or it is not there, and one of the next pieces is found.
    const std::string piece = detokenizer.Push(token);
    const size_t found = text.substr(0, piece.size() + std::min(num_missed, kMaxChangedBytes)).find(piece);
    num_missed = found == std::string_view::npos ? num_missed + piece.size() + kChangedBytes : 0;
    if (found != std::string_view::npos) advance(found);
    offsets.push_back(offset);
    if (found != std::string_view::npos) advance(piece.size());
    if (!tokenizer.IsSpecial(token)) continue;
    const std::string special = tokenizer.TokenBytes(token);
    if (text.starts_with(special)) advance(special.size());
  }
  return offsets;
}

}  // namespace quire
