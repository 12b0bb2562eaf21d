// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/unknown_url.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(UnknownUrlTest, AWrongBaseUrlIsToldTheRightPath) {
  const auto message = [](absl::string_view path) {
    const ApiError error =
        UnknownUrl(path, {"/", "/v1/completions", "/v1/chat/completions", "/v1/models", "/tokenize"});
    EXPECT_EQ(error.http_code, 404);
    EXPECT_EQ(error.code, "unknown_url");
    return error.message;
  };
  EXPECT_EQ(message("/chat/completions"), "there is nothing at /chat/completions; did you mean /v1/chat/completions?");
  EXPECT_EQ(message("/completions"), "there is nothing at /completions; did you mean /v1/completions?");
  EXPECT_EQ(message("/v1/v1/models"), "there is nothing at /v1/v1/models; did you mean /v1/models?");
  EXPECT_EQ(message("/v1/chat/completions/"),
            "there is nothing at /v1/chat/completions/; did you mean /v1/chat/completions?");
  EXPECT_EQ(message("/v1/tokenize"), "there is nothing at /v1/tokenize; did you mean /tokenize?");
  EXPECT_EQ(message("/v1/responses"),
            "there is nothing at /v1/responses: this server does not have the Responses interface; use "
            "/v1/chat/completions");
  EXPECT_EQ(message("/v1/embeddings"), "there is nothing at /v1/embeddings");
  EXPECT_EQ(message("//"), "there is nothing at //");
}

}  // namespace
}  // namespace quire
