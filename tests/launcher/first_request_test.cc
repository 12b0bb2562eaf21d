// SPDX-License-Identifier: Apache-2.0

#include "launcher/first_request.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

TEST(FirstRequestTest, BodiesAreJsonThatAShellCanQuote) {
  for (const FirstRequest& request : FirstRequests()) {
    const std::string body = BodyOf(request, 7);
    EXPECT_EQ(nlohmann::json::parse(body).value("max_tokens", 0), request.has_text ? 7 : 0) << body;
    EXPECT_EQ(body.find('\''), std::string::npos);
  }
}

TEST(FirstRequestTest, TheCommandHasWhatTheGatewayAsksFor) {
  EXPECT_STREQ(UsualRequest().path, "/v1/chat/completions");
  const FirstRequest& text = FirstRequests()[2];
  EXPECT_EQ(
      CurlCommand(text, {.url = "http://127.0.0.1:8000"}),
      "curl -s http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 100}'");
  EXPECT_EQ(CurlCommand(text, {.url = "https://h:1", .has_tls = true, .needs_token = true, .needs_certificate = true}),
            "curl -s -k --cert CERTIFICATE --key KEY -H \"Authorization: Bearer $TOKEN\" https://h:1/v1/completions "
            "-d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 100}'");
}

TEST(FirstRequestTest, AllAddressesOfAMachineAreReachedAtItsOwn) {
  EXPECT_EQ(LocalUrl("http", "0.0.0.0:8000"), "http://127.0.0.1:8000");
  EXPECT_EQ(LocalUrl("https", "[::]:1"), "https://[::1]:1");
  EXPECT_EQ(LocalUrl("http", "10.0.0.1:80"), "http://10.0.0.1:80");
  EXPECT_EQ(LocalUrl("http", "unix:/a"), "");
}

}  // namespace
}  // namespace quire
