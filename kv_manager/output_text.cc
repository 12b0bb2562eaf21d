#include "kv_manager/output_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace quire {

OutputText::OutputText(const Tokenizer* tokenizer, const std::vector<TokenId>& prompt, OutputOptions options,
                       std::string* prompt_text)
    : options_(std::move(options)), matcher_(options_.stop) {
  if (tokenizer == nullptr) return;
  decoder_ = tokenizer->NewDecodeStream(options_.skip_special_tokens);
  std::string decoded;
  for (TokenId token : prompt) decoder_->Push(token, &decoded);
  if (prompt_text != nullptr) {
    *prompt_text = std::move(decoded);
  } else {
    decoder_->Clone()->Finish(&prompt_rest_);
  }
}

std::optional<std::string> OutputText::Append(TokenId token, std::string* text) {
  ++num_tokens_;
  if (decoder_ == nullptr) return std::nullopt;
  const bool is_end = std::binary_search(options_.end_tokens.begin(), options_.end_tokens.end(), token);
  if (is_end && !options_.include_stop) return std::nullopt;
  std::string piece;
  decoder_->Push(token, &piece);
  return Match(std::move(piece), text);
}

std::optional<std::string> OutputText::Finish(std::string* text) {
  if (decoder_ == nullptr) return std::nullopt;
  std::string piece;
  decoder_->Finish(&piece);
  std::optional<std::string> stop = Match(std::move(piece), text);
  if (!stop.has_value()) text->append(matcher_.held_back());
  return stop;
}

std::optional<std::string> OutputText::Match(std::string piece, std::string* text) {
  std::string_view generated = piece;
  if (!prompt_rest_.empty() && !piece.empty()) {
    const size_t common = std::min(prompt_rest_.size(), piece.size());
    const bool is_prompt = generated.substr(0, common) == std::string_view(prompt_rest_).substr(0, common);
    if (is_prompt) generated.remove_prefix(common);
    prompt_rest_.erase(0, is_prompt ? common : prompt_rest_.size());
  }
  const std::optional<int> match = matcher_.Append(generated, num_tokens_ >= options_.min_tokens, text);
  if (!match.has_value()) return std::nullopt;
  const std::string& stop = matcher_.stop(*match);
  if (options_.include_stop) text->append(stop);
  return stop;
}

}  // namespace quire
