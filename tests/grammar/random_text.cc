// SPDX-License-Identifier: Apache-2.0

#include "tests/grammar/random_text.h"

#include <vector>

#include "grammar/matcher.h"
#include "tests/grammar/fill_mask.h"

namespace quire::grammar {
namespace {

constexpr int kMaxTokens = 4000;
// Bytes that often lead to the end of a JSON text, the best ones first.
constexpr std::string_view kEnders = "\"]}0123456789:,tfn";

std::vector<TokenId> AllowedTokens(const std::vector<uint32_t>& mask) {
  std::vector<TokenId> tokens;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (int bit = 0; bit < 32; ++bit) {
      if ((mask[word] >> bit & 1) != 0) tokens.push_back(static_cast<TokenId>(word * 32 + static_cast<size_t>(bit)));
    }
  }
  return tokens;
}

TokenId Ender(const std::vector<TokenId>& allowed, const TokenTable& table, Random* random) {
  for (const TokenId token : allowed) {
    if (table.is_end(token)) return token;
  }
  for (const char ender : kEnders) {
    if (random->OneIn(2)) break;  // What is missing may be another byte.
    for (const TokenId token : allowed) {
      if (table.bytes(token) == std::string(1, ender)) return token;
    }
  }
  return allowed[static_cast<size_t>(random->Below(static_cast<int>(allowed.size())))];
}

}  // namespace

bool Matches(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  Matcher matcher(automaton);
  return matcher.Accept(text) && matcher.can_end();
}

std::optional<std::string> RandomText(const std::shared_ptr<const Automaton>& automaton, int num_free,
                                      TokenMasks* masks, Random* random) {
  Matcher matcher(automaton);
  std::string text;
  std::vector<uint32_t> mask(masks->num_words());
  for (int i = 0; i < kMaxTokens; ++i) {
    FillMask(matcher, masks, &mask);
    const std::vector<TokenId> allowed = AllowedTokens(mask);
    if (allowed.empty()) return std::nullopt;
    const TokenId token = i < num_free ? allowed[static_cast<size_t>(random->Below(static_cast<int>(allowed.size())))]
                                       : Ender(allowed, masks->tokens(), random);
    if (masks->tokens().is_end(token)) return text;
    if (!matcher.Accept(masks->tokens().bytes(token))) return std::nullopt;
    text += masks->tokens().bytes(token);
  }
  return std::nullopt;
}

}  // namespace quire::grammar
