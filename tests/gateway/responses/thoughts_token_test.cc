// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/thoughts_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(ThoughtsTokenTest, ATokenHasItsThoughts) {
  for (const std::string thoughts : {"", "so", "ÄÖ \"{}\"\n"}) {
    EXPECT_EQ(ThoughtsOfToken(ThoughtsToken(thoughts)), thoughts);
  }
}

TEST(ThoughtsTokenTest, TokensOfOtherServersHaveNone) {
  const std::string not_utf8 = absl::StrCat("quire.1.", absl::WebSafeBase64Escape("\xff"));
  for (const std::string& token : {std::string("gAAAAABo"), std::string("quire.1.#"), std::string(), not_utf8}) {
    EXPECT_EQ(ThoughtsOfToken(token), std::nullopt) << token;
  }
}

}  // namespace
}  // namespace quire
