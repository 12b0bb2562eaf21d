// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/tokenizer_use.h"

#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace quire {
namespace {

constexpr char kText[] = "It's <s> 12 na\u00EFve \u4E2D \U0001F600  x";

void CheckDecoded(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool skip_special_tokens) {
  const std::string text = tokenizer.Decode(tokens, skip_special_tokens);
  QUIRE_CHECK(CheckUtf8(text, "text").ok()) << CheckUtf8(text, "text");
}

}  // namespace

void UseTokenizer(const TokenizerFiles& files) {
  const auto tokenizer = Tokenizer::Load(files);
  if (!tokenizer.ok()) {
    const std::string message(tokenizer.status().message());
    QUIRE_CHECK(!message.empty() && message.find('\n') == message.npos) << message;
    return;
  }
  const auto tokens = (*tokenizer)->Encode(kText, {});
  if (tokens.ok()) {
    for (const TokenId token : *tokens) {
      QUIRE_CHECK(token >= 0 && static_cast<size_t>(token) < (*tokenizer)->vocab_size()) << token;
    }
    CheckDecoded(**tokenizer, *tokens, true);
  }
  std::vector<TokenId> low;
  for (TokenId id = -1; id < 300; ++id) low.push_back(id);
  CheckDecoded(**tokenizer, low, false);
}

}  // namespace quire
