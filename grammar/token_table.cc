// SPDX-License-Identifier: Apache-2.0

#include "grammar/token_table.h"

#include <algorithm>
#include <utility>

namespace quire::grammar {

std::string SpecialTokenBytes(std::string_view name) {
  std::string bytes = "\xFF";
  bytes += name;
  bytes += '\xFF';
  return bytes;
}

TokenTable::TokenTable(std::vector<std::string> bytes, std::vector<TokenId> end_tokens)
    : bytes_(std::move(bytes)), end_tokens_(std::move(end_tokens)) {
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
  std::erase_if(end_tokens_, [&](TokenId token) { return token < 0 || token >= vocab_size(); });
  for (const TokenId token : end_tokens_) bytes_[static_cast<size_t>(token)].clear();
  std::vector<std::pair<std::string_view, TokenId>> texts;
  texts.reserve(bytes_.size());
  for (size_t i = 0; i < bytes_.size(); ++i) texts.emplace_back(bytes_[i], static_cast<TokenId>(i));
  trie_ = ByteTrie(std::move(texts));
  suffixes_ = SuffixTable(trie_);
}

bool TokenTable::is_end(TokenId token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

}  // namespace quire::grammar
