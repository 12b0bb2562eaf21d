// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/gateway.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gateway/web_client.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A gateway whose manager is not there, and which does not wait for it, so a request that passes all checks gets 503.
class GatewayTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--listen=127.0.0.1:0", "--manager=unix:/does/not/exist", "--manager-wait=0"});
    std::vector<const char*> arguments;
    for (const std::string& flag : flags) arguments.push_back(flag.c_str());
    const auto line = ParseGatewayCommandLine(arguments);
    ASSERT_TRUE(line.ok()) << line.status();
    auto gateway = Gateway::Start(line->options);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    const std::string summary = gateway_->Summary();
    absl::string_view address = absl::StripAsciiWhitespace(summary);
    absl::ConsumePrefix(&address, "listening on ");
    address_ = std::string(address);
  }

  std::string Ask(const std::string& line, const std::string& headers = "", const std::string& body = "") {
    TestClient client(address_);
    client.Send(absl::StrCat(line, " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", headers,
                             body.empty() ? "" : absl::StrCat("Content-Length: ", body.size(), "\r\n"), "\r\n", body));
    return client.ReadAll();
  }
  std::string Complete(const std::string& headers) {
    return Ask("POST /v1/completions", headers, R"({"prompt": "x", "max_tokens": 1})");
  }

  std::unique_ptr<Gateway> gateway_;
  std::string address_;
};

// The beginning of a request with a body that has not come.
constexpr char kDeclared[] = "Content-Length: 1000000\r\nExpect: 100-continue\r\n";

TEST_F(GatewayTest, PathMethodTokenAndTypeAreCheckedBeforeTheBody) {
  Start({"--require-tokens"});
  EXPECT_THAT(Ask("POST /v1/nothing", kDeclared), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("DELETE /v1/completions", "Content-Length: 10\r\n"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: POST\r\n")));
  EXPECT_THAT(Ask("POST /metrics", kDeclared), AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD\r\n")));
  EXPECT_THAT(Ask("POST /v1/completions", kDeclared),
              AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer")));
  for (const char* wrong : {"Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "Bearerx", "Bearer \xC3\xA4", "token"}) {
    EXPECT_THAT(Ask("POST /v1/completions", absl::StrCat("Authorization: ", wrong, "\r\n", kDeclared)),
                StartsWith("HTTP/1.1 401"))
        << wrong;
  }
  const std::string token = "Authorization: bearer  some-token \r\n";
  EXPECT_THAT(Ask("POST /tokenize", token + "Content-Type: application/xml\r\n" + kDeclared),
              AllOf(StartsWith("HTTP/1.1 415"), HasSubstr("it must be application/json")));
  EXPECT_THAT(Ask("GET /version", "Authorization: Basic x\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Complete(token), StartsWith("HTTP/1.1 503"));
}

TEST_F(GatewayTest, NobodyLooksAtATokenThatNobodyHasAskedFor) {
  Start();
  for (const char* value : {"Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "Bearer \xC3\xA4", "Negotiate abc"}) {
    EXPECT_THAT(Complete(absl::StrCat("Authorization: ", value, "\r\n")),
                AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("no_manager")))
        << value;
  }
}

TEST_F(GatewayTest, ATokenThatIsTooLongIsRefusedAndNotSent) {
  for (const bool requires_tokens : {true, false}) {
    Start(requires_tokens ? std::vector<std::string>{"--require-tokens"} : std::vector<std::string>{});
    const std::string longest = "Authorization: Bearer " + std::string(4096, 'a');
    EXPECT_THAT(Complete(longest + "\r\n"), HasSubstr("no_manager"));
    for (const char* line : {"POST /v1/completions", "POST /tokenize", "GET /v1/models", "GET /v1/models/x"}) {
      EXPECT_THAT(Ask(line, longest + "a\r\n"),
                  AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("invalid_api_key"),
                        HasSubstr("the token has 4097 bytes, and at most 4096 are allowed")))
          << line;
    }
    EXPECT_THAT(Ask("GET /version", longest + "a\r\n"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(Complete("Authorization: Negotiate " + std::string(8000, 'a') + "\r\n"), HasSubstr("no_manager"));
}

TEST_F(GatewayTest, ATokenMayComeAsTheKeyOfAnthropicsClients) {
  Start({"--require-tokens"});
  EXPECT_THAT(Complete("x-api-key: some-token\r\n"), HasSubstr("no_manager"));
  EXPECT_THAT(Complete("X-Api-Key: some-token\r\nAuthorization: Basic dXNlcjpwYXNz\r\n"), HasSubstr("no_manager"));
  EXPECT_THAT(Complete("x-api-key: \r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Complete("x-api-key: \xC3\xA4\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Complete("x-api-key: some-token\r\nAuthorization: Bearer \r\n"),
              AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("the bearer token in the header Authorization is empty")));
  Start();
  EXPECT_THAT(Complete("x-api-key: " + std::string(4096, 'a') + "\r\n"), HasSubstr("no_manager"));
  EXPECT_THAT(Complete("x-api-key: " + std::string(4097, 'a') + "\r\n"),
              HasSubstr("the token has 4097 bytes, and at most 4096 are allowed"));
}

TEST_F(GatewayTest, ErrorsOfMessagesHaveTheFormOfAnthropic) {
  Start({"--require-tokens", "--max-body-bytes=1024"});
  const auto error = [](const std::string& type) {
    return HasSubstr(R"({"type":"error","error":{"type":")" + type + "\",");
  };
  const std::string token = "x-api-key: some-token\r\nX-Request-Id: req-1\r\n";
  const std::string body = R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})";
  for (const char* line : {"POST /v1/messages", "POST /v1/messages/count_tokens"}) {
    EXPECT_THAT(Ask(line, kDeclared), AllOf(StartsWith("HTTP/1.1 413"), error("request_too_large"))) << line;
    EXPECT_THAT(Ask(line, "", body), AllOf(StartsWith("HTTP/1.1 401"), error("authentication_error"))) << line;
    EXPECT_THAT(Ask(line, token, "{"), AllOf(StartsWith("HTTP/1.1 400"), error("invalid_request_error"))) << line;
    EXPECT_THAT(Ask(line, token + "Content-Type: text/html\r\n", body),
                AllOf(StartsWith("HTTP/1.1 415"), error("invalid_request_error")))
        << line;
    EXPECT_THAT(Ask(line, token, body), AllOf(StartsWith("HTTP/1.1 529"), error("overloaded_error"),
                                              HasSubstr("Retry-After: 1\r\n"), HasSubstr(R"("request_id":"req-1"})")))
        << line;
  }
  EXPECT_THAT(Ask("GET /v1/messages"), AllOf(StartsWith("HTTP/1.1 405"), error("invalid_request_error")));
  EXPECT_THAT(Ask("POST /v1/messages/batches"), AllOf(StartsWith("HTTP/1.1 404"), error("not_found_error")));
  EXPECT_THAT(Ask("POST /v1/completions", kDeclared),
              AllOf(StartsWith("HTTP/1.1 413"), HasSubstr(R"("param":null,"code":null)")));
  EXPECT_THAT(Ask("GET /metrics"), HasSubstr(R"(quire_openai_answers_total{path="/v1/messages",code="529"} 1)"));
}

TEST_F(GatewayTest, ABodyIsJsonIfItsTypeSaysSoOrIfNoPageSendsIt) {
  Start();
  const auto with = [&](const std::string& type, const std::string& more = "") {
    return Complete((type.empty() ? "" : "Content-Type: " + type + "\r\n") + more);
  };
  const std::string page = "Sec-Fetch-Site: same-origin\r\n";
  for (const std::string& type :
       std::vector<std::string>{"", "application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json",
                                "text/plain", "application/x-www-form-urlencoded"}) {
    EXPECT_THAT(with(type), StartsWith("HTTP/1.1 503")) << type;
  }
  for (const std::string& type :
       std::vector<std::string>{"multipart/form-data; boundary=x", "text/html", "application/xml"}) {
    EXPECT_THAT(with(type), StartsWith("HTTP/1.1 415")) << type;
  }
  EXPECT_THAT(with("application/json", page), StartsWith("HTTP/1.1 503"));
  for (const std::string& type : std::vector<std::string>{"", "text/plain", "application/x-www-form-urlencoded"}) {
    EXPECT_THAT(with(type, page), StartsWith("HTTP/1.1 415")) << type;
  }
}

TEST_F(GatewayTest, TheLogNamesTheFieldAndTheCodeOfAnError) {
  Start();
  testing::internal::CaptureStderr();
  Ask("POST /v1/completions", "", R"({"prompt": 5})");
  Ask("POST /v1/completions", "", absl::StrCat(R"({"prompt": "x", "a\nb)", std::string(1000, 'c'), "\": 1}"));
  Ask("POST /v1/completions", "", R"({"prompt": "x", "a\", client \"me": 1})");
  Complete("");
  Ask("GET /nowhere");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(" for /v1/completions got 400, param \"prompt\"\n"));
  EXPECT_THAT(log, HasSubstr(absl::StrCat(" got 400, error unknown_parameter, param \"a\\nb", std::string(57, 'c'),
                                          "...\"\n")));
  EXPECT_THAT(log, HasSubstr(R"( got 400, error unknown_parameter, param "a\", client \"me")"))
      << "not a field of its own";
  EXPECT_THAT(log, HasSubstr(" for /v1/completions got 503, error no_manager\n"));
  EXPECT_THAT(log, HasSubstr(" for other got 404, error "));
}

TEST_F(GatewayTest, AllRequestsForTheModelWaitForAManager) {
  Start({"--manager-wait=300ms"});
  const std::pair<const char*, const char*> requests[] = {
      {"GET /v1/models", ""},
      {"GET /v1/models/x", ""},
      {"POST /tokenize", R"({"prompt": "x"})"},
      {"POST /detokenize", R"({"tokens": []})"},
      {"POST /v1/completions", R"({"prompt": "x"})"},
      {"POST /v1/chat/completions", R"({"messages": []})"},
      {"POST /v1/responses", R"({"input": "x"})"},
  };
  for (const auto& [line, body] : requests) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(Ask(line, "", body), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("no_manager"))) << line;
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300)) << line;
  }
  EXPECT_THAT(Ask("GET /health"), StartsWith("HTTP/1.1 503"));
}

TEST_F(GatewayTest, UnknownFieldsAreIgnoredCountedAndLoggedIfTheyMayBe) {
  Start({"--unknown-fields=warn"});
  testing::internal::CaptureStderr();
  const auto post = [&](const char* path, const std::string& body) {
    return Ask(absl::StrCat("POST ", path), "", body);
  };
  EXPECT_THAT(post("/v1/completions", R"({"prompt": "x", "new": 1, "newer": 2})"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(post("/v1/chat/completions", R"({"messages": [], "new": 1})"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(post("/v1/responses", R"({"input": "x", "new": 1})"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(post("/tokenize", R"({"prompt": "x", "new": 1})"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(post("/detokenize", R"({"tokens": [], "new": 1})"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Ask("GET /metrics"),
              AllOf(HasSubstr("quire_openai_ignored_fields_total{path=\"/v1/completions\"} 2\n"),
                    HasSubstr("quire_openai_ignored_fields_total{path=\"/v1/chat/completions\"} 1\n"),
                    HasSubstr("quire_openai_ignored_fields_total{path=\"/v1/responses\"} 1\n"),
                    HasSubstr("quire_openai_ignored_fields_total{path=\"/tokenize\"} 1\n"),
                    HasSubstr("quire_openai_ignored_fields_total{path=\"/detokenize\"} 1\n")));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(" for /v1/completions has 2 unknown fields, which were ignored: \"new, newer\"\n"));
  EXPECT_THAT(log, Not(HasSubstr("/v1/chat/completions has"))) << "at most one line per second";
}

TEST_F(GatewayTest, LargeBodiesAreReadAsSmallOnes) {
  Start();
  // They are read at once, by the thread for bodies of some size, and by the one for large bodies.
  for (const size_t num_bytes : {size_t{10}, size_t{100} << 10, size_t{2} << 20}) {
    const std::string text(num_bytes, 'x');
    const std::string last = "Connection: close\r\n";
    EXPECT_THAT(Ask("POST /v1/completions", "", absl::StrCat("{\"prompt\": \"", text, "\", \"max_tokens\": 1}")),
                HasSubstr("no_manager"));
    EXPECT_THAT(Ask("POST /v1/chat/completions", "", absl::StrCat("{\"no_such_field\": \"", text, "\"}")),
                AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("messages")));
    EXPECT_THAT(Ask("POST /tokenize", "", absl::StrCat("{\"prompt\": \"", text)),
                AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("it ends too early")));
  }
}

TEST_F(GatewayTest, AClientMayLeaveWhileItsBodyWaitsToBeRead) {
  Start();
  const std::string body = absl::StrCat("{\"prompt\": \"", std::string(2 << 20, 'x'), "\"}");
  for (int i = 0; i < 5; ++i) {
    TestClient client(address_);
    client.Send(absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    client.Close();
  }
  EXPECT_THAT(Ask("POST /tokenize", "", body), HasSubstr("no_manager"));
}

TEST_F(GatewayTest, ACertificateMustHaveANameThatMayUseTheModel) {
  const TemporaryDirectory directory;
  TestAuthority authority(directory, "ca");
  const TlsFiles files = authority.Issue("quire-gateway");
  Start({absl::StrCat("--tls-cert=", files.certificate), absl::StrCat("--tls-key=", files.key),
         absl::StrCat("--tls-ca=", files.authority)});
  const auto ask = [&](const std::string& name, const std::string& line) {
    TlsClient client(address_, authority.Issue(name), /*shows_certificate=*/true);
    EXPECT_TRUE(client.Send(line + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    return client.ReadAll();
  };
  EXPECT_THAT(ask("quire-client", "GET /v1/models"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ask("quire-admin", "GET /v1/models"), StartsWith("HTTP/1.1 503"));
  for (const char* other : {"quire-worker", "quire-manager", "somebody", "quire-client.example"}) {
    EXPECT_THAT(ask(other, "GET /v1/models"), AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("--client-names"))) << other;
    EXPECT_THAT(ask(other, "POST /v1/chat/completions"), StartsWith("HTTP/1.1 403")) << other;
    EXPECT_THAT(ask(other, "GET /version"), StartsWith("HTTP/1.1 200")) << other;
  }
}

}  // namespace
}  // namespace quire
