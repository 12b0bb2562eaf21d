// SPDX-License-Identifier: Apache-2.0

#include "serving/web_rules.h"

#include <unistd.h>

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// Returns the code with which a request with these headers is refused, or 0.
int CodeOf(const std::string& headers, const WebAccess& access = {}, bool has_tls = false,
           const std::string& method = "POST") {
  const auto head = ReadHttpHead(absl::StrCat(method, " / HTTP/1.1\r\n", headers, "\r\n"));
  if (std::holds_alternative<HttpRefusal>(head)) ADD_FAILURE() << std::get<HttpRefusal>(head).message;
  const auto refusal = CheckWebRules(std::get<HttpHead>(head), access, has_tls);
  return refusal.has_value() ? refusal->code : 0;
}

TEST(WebRulesTest, AServiceKnowsItsHostsByNamesThatNoSiteCanHave) {
  char machine[256] = "";
  ASSERT_EQ(gethostname(machine, sizeof(machine) - 1), 0);
  for (const std::string host :
       {"127.0.0.1:8000", "10.1.2.3", "[::1]:8000", "[fd00::1]", "localhost", "LocalHost:8000", "quire-gateway", "h.",
        "a.localhost", "host.docker.internal", "quire-gateway.quire.svc", "quire-gateway.quire.svc.cluster.local:8000",
        "", static_cast<const char*>(machine)}) {
    EXPECT_TRUE(IsHostOfService(host, {})) << host;
  }
  for (const std::string host :
       {"evil.example", "evil.example:8000", "evil.example.", "localhost.evil.example", "127.0.0.1.evil.example",
        "1.2.3", "256.1.1.1", "[::1]evil.example", "svc.evil", "quire-gateway.dev", "evil.local"}) {
    EXPECT_FALSE(IsHostOfService(host, {"llm.example"})) << host;
  }
  EXPECT_TRUE(IsHostOfService("LLM.example:443", {"x.example", "llm.example."}));
  EXPECT_TRUE(IsHostOfService("evil.example", {"*"}));
}

TEST(WebRulesTest, ARequestForAnotherHostIsRefusedUnlessACertificateHasNamedTheService) {
  EXPECT_EQ(CodeOf("Host: evil.example:8000\r\nOrigin: http://evil.example:8000\r\n"), 403);
  EXPECT_EQ(CodeOf("Host: evil.example\r\n"), 403);
  EXPECT_EQ(CodeOf("Host: evil.example\r\n", {.host_names = {"evil.example"}}), 0);
  EXPECT_EQ(CodeOf("Host: service.example\r\n", {}, /*has_tls=*/true), 0);
  const auto head = ReadHttpHead("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(CheckWebRules(std::get<HttpHead>(head), {}, false).has_value()) << "the host in the target counts";
}

TEST(WebRulesTest, PagesOfOtherSitesMaySendNothing) {
  const std::string host = "Host: localhost:8000\r\n";
  const std::string origin = "Origin: https://evil.example\r\n";
  const std::string site = "Sec-Fetch-Site: ";
  for (const std::string& headers :
       {host + origin, host + site + "cross-site\r\n", host + origin + site + "cross-site\r\n",
        host + "Origin: null\r\n", host + "Origin: http://localhost:3000\r\n" + site + "same-site\r\n",
        host + "Origin: http://localhost:3000\r\n", host + "Origin: \r\n", host + site + "new-word\r\n",
        host + "Origin: http://localhost:8000.evil.example\r\n", host + origin + "Sec-Fetch-Site:\r\n"}) {
    EXPECT_EQ(CodeOf(headers), 403) << headers;
    EXPECT_EQ(CodeOf(headers, {}, true), 403) << headers;
    EXPECT_EQ(CodeOf(headers, {}, false, "GET"), 403) << headers;
    EXPECT_EQ(CodeOf(headers, {.allowed_origins = {"*"}}), 0) << headers;
  }
  for (const std::string& headers :
       {host, host + site + "same-origin\r\n" + origin, host + site + "none\r\n",
        host + "Origin: http://LOCALHOST:8000\r\n", std::string("Host: h\r\nOrigin: http://h:80\r\n"),
        std::string("Host: h:443\r\nOrigin: https://h\r\n")}) {
    EXPECT_EQ(CodeOf(headers), 0) << headers;
  }
  EXPECT_EQ(CodeOf(host + origin, {.allowed_origins = {"https://evil.example"}}), 0);
  EXPECT_EQ(CodeOf(host + origin, {.allowed_origins = {"https://evil"}}), 403);
}

TEST(WebRulesTest, APersonMayFollowALinkButNoPageMayFrameTheService) {
  const std::string visit = "Host: h\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
  EXPECT_EQ(CodeOf(visit + "Sec-Fetch-Dest: document\r\n", {}, false, "GET"), 0);
  EXPECT_EQ(CodeOf(visit + "Sec-Fetch-Dest: document\r\n", {}, false, "POST"), 403);
  EXPECT_EQ(CodeOf(visit + "Sec-Fetch-Dest: iframe\r\n", {}, false, "GET"), 403);
}

}  // namespace
}  // namespace quire
