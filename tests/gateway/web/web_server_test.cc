// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/web_server.h"

#include <algorithm>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gateway/web_client.h"
#include "tests/security/certificates.h"
#include "tests/serving/framing_cases.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::chrono::seconds kLong(60);

std::string Post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: h\r\n", headers, "Content-Length: ", body.size(), "\r\n\r\n",
                      body);
}

// A server that answers with the body of the request. /stream sends it as a stream, /wait waits for Release, and the
// first /block keeps the thread of the server until go_on_ has its value.
class WebServerTest : public testing::Test {
 protected:
  void Start(WebServerOptions options = {}) {
    options.address = "127.0.0.1:0";
    server_ = WebServer::Create(std::move(options));
    const absl::Status status = server_->Listen([this](std::shared_ptr<WebExchange> exchange) { Handle(exchange); });
    ASSERT_TRUE(status.ok()) << status;
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Stop(std::chrono::milliseconds(0));
    waiting_ = nullptr;
    kept_.clear();
  }

  void Handle(const std::shared_ptr<WebExchange>& exchange) {
    const WebRequest& request = exchange->request();
    handled_.push_back(request.address);
    if (request.path == "/block") {
      if (handled_.size() == 1) {
        is_waiting_.set_value();
        go_on_.get_future().wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // Nobody else has a turn within this one.
      }
      exchange->Respond({.body = "blocked"});
    } else if (request.path == "/stream") {
      exchange->BeginEvents();
      for (absl::string_view part : absl::StrSplit(request.body, ',')) exchange->Send(std::string(part));
      exchange->EndEvents();
    } else if (request.path == "/timeout") {
      exchange->Respond({.body = absl::StrCat("timeout ", request.timeout.value_or("none"), "!")});
    } else if (request.path == "/keep") {
      kept_.push_back(exchange->TakeBody());
      exchange->Respond({.body = "kept"});
    } else if (request.path == "/wait") {
      exchange->OnGone([this] { gone_.set_value(); });
      waiting_ = exchange;
      is_waiting_.set_value();
    } else {
      exchange->Respond({.body = absl::StrCat(request.method, " ", request.path, " ", request.authorization, " ",
                                              request.last_event_id, " ", request.body)});
    }
  }

  // Keeps the thread of the server busy until `release` gets its value.
  void Block(std::promise<void>* release) {
    std::promise<void> is_blocked;
    server_->Post([&is_blocked, release] {
      is_blocked.set_value();
      release->get_future().wait();
    });
    is_blocked.get_future().wait();
  }

  std::unique_ptr<WebServer> server_;
  std::vector<std::string> handled_;  // The addresses of the requests, on the server's thread.
  std::shared_ptr<WebExchange> waiting_;
  std::vector<std::shared_ptr<const std::string>> kept_;
  std::promise<void> is_waiting_;
  std::promise<void> go_on_;
  std::promise<void> gone_;
};

TEST_F(WebServerTest, AResponseToHeadHasTheLengthOfItsBodyButNoBody) {
  Start();
  TestClient client(server_->address());
  client.Send("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\nHEAD /b HTTP/1.1\r\nHost: h\r\n\r\n" + Post("/c", "three"));
  for (int i = 0; i < 2; ++i) {
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(head, HasSubstr("Content-Length: 10\r\n"));
  }
  EXPECT_THAT(client.ReadUntil("three"), StartsWith("HTTP/1.1 200 OK\r\n")) << "a body is before this response";
}

TEST_F(WebServerTest, ARefusalOfHeadHasNoBodyEither) {
  Start();
  for (const std::string& request :
       {std::string("HEAD * HTTP/1.1\r\nHost: h\r\n\r\n"), std::string("\r\nHEAD /#a HTTP/1.1\r\nHost: h\r\n\r\n"),
        std::string("HEAD / HTTP/1.1\r\n\r\n"), std::string("HEAD / HTTP/1.1\n"),
        "HEAD / HTTP/1.1\r\nA: " + std::string(17'000, 'a') + "\r\n\r\n"}) {
    TestClient client(server_->address());
    client.Send(request);
    EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 4")) << request.substr(0, 40);
    EXPECT_EQ(client.ReadAll(), "") << request.substr(0, 40);
  }
  TestClient client(server_->address());
  client.Send("HEADER * HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("the target * is for OPTIONS, not HEADER"));
}

TEST_F(WebServerTest, ARefusalNamesTheCharacterThatATargetMustNotHave) {
  Start();
  TestClient client(server_->address());
  client.Send("GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("has the character #, for which it must have %23"));
}

TEST_F(WebServerTest, AConnectionServesSeveralRequests) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/a?x=1", "one", "Authorization: Bearer t\r\nLast-Event-ID: 7\r\n"));
  const std::string first = client.ReadUntil("one");
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(first, HasSubstr("POST /a Bearer t 7 one"));
  EXPECT_THAT(first, Not(HasSubstr("Connection: close")));
  client.Send("GET /b HTTP/1.1\r\nHost: h\r\n\r\n" + Post("/c", "three"));
  EXPECT_THAT(client.ReadUntil("/b   "), HasSubstr("GET /b"));
  EXPECT_THAT(client.ReadUntil("three"), HasSubstr("POST /c"));
}

TEST_F(WebServerTest, EveryAnswerHasTheNameOfItsRequest) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/a", "one", "X-Request-Id: mine-1_2.3:4/5\r\n"));
  EXPECT_THAT(client.ReadUntil("one"), HasSubstr("\r\nX-Request-Id: mine-1_2.3:4/5\r\n"));
  std::set<std::string> names;
  for (const std::string& name : {std::string(), std::string(129, 'x'), std::string("a b"), std::string("a\"b")}) {
    client.Send(Post("/stream", "two", name.empty() ? "" : absl::StrCat("X-Request-Id: ", name, "\r\n")));
    const std::string text = client.ReadUntil("0\r\n\r\n");
    const size_t begin = text.find("X-Request-Id: ") + 14;
    ASSERT_EQ(text.find("\r\n", begin), begin + 32) << text;
    names.insert(text.substr(begin, 32));
  }
  EXPECT_EQ(names.size(), 4U) << "these are new names";
  client.Send("nonsense\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("}}"), AllOf(HasSubstr("HTTP/1.1 400"), HasSubstr("\r\nX-Request-Id: ")));
}

TEST_F(WebServerTest, ATimeoutThatIsGivenTwiceIsAListOfTwo) {
  Start();
  TestClient client(server_->address());
  for (const auto& [headers, timeout] : {std::pair("", "none"),
                                         {"X-Request-Timeout: 2\r\n", "2"},
                                         {"X-Request-Timeout:\r\n", ""},
                                         {"X-Request-Timeout: 2\r\nA: b\r\nx-request-timeout: 5\r\n", "2, 5"}}) {
    client.Send(Post("/timeout", "x", headers));
    EXPECT_THAT(client.ReadUntil("!"), testing::EndsWith(absl::StrCat("timeout ", timeout, "!"))) << headers;
  }
}

TEST_F(WebServerTest, AStreamIsChunked) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/stream", "ab,cde"));
  const std::string text = client.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(text, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(text, HasSubstr("\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"));
  client.Send(Post("/a", "again"));
  EXPECT_THAT(client.ReadUntil("again"), HasSubstr("200 OK")) << "the connection stays open";
}

TEST_F(WebServerTest, ABodyMayComeInChunks) {
  Start();
  TestClient client(server_->address());
  client.Send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("3\r\none\r\n4;an=extension\r\n tw");
  client.Send("o\r\n0\r\nTrailer: x\r\n\r\n" + Post("/b", "next"));
  EXPECT_THAT(client.ReadUntil("one two"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(client.ReadUntil("next"), HasSubstr("POST /b"));
}

TEST_F(WebServerTest, TheOwnerMayMakeTheAnswersOfRefusals) {
  Start({.max_body_bytes = 100, .refusal = [](const WebRequest& head, int code, absl::string_view message) {
           return WebResponse{.code = code + 1, .body = absl::StrCat("<", head.path, "> ", head.id, ": ", message)};
         }});
  const auto answer = [this](const std::string& request) {
    TestClient client(server_->address());
    client.Send(request);
    return client.ReadAll();
  };
  EXPECT_THAT(answer(Post("/a", std::string(101, 'x'), "X-Request-Id: r1\r\n")),
              AllOf(StartsWith("HTTP/1.1 414"), HasSubstr("</a> r1: the body of the request has more than 100 bytes")));
  EXPECT_THAT(answer("POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'x')),
              AllOf(StartsWith("HTTP/1.1 414"), HasSubstr("</b> ")));
  EXPECT_THAT(answer("nonsense\r\n\r\n"), AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("<> : ")));
  TestClient client(server_->address());
  client.Send(Post("/c", "one"));
  client.ReadUntil("one");
  client.Send("nonsense\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("<> : ")) << "the request before it is over";
}

TEST_F(WebServerTest, ABodyInChunksMustArriveInTime) {
  Start({.body_timeout = std::chrono::milliseconds(300)});
  TestClient client(server_->address());
  client.Send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408"));
}

TEST_F(WebServerTest, AStreamForHttp10EndsWithTheConnection) {
  Start();
  TestClient client(server_->address());
  client.Send("POST /stream HTTP/1.0\r\nContent-Length: 6\r\n\r\nab,cde");
  const std::string text = client.ReadAll();
  EXPECT_THAT(text, HasSubstr("Connection: close"));
  EXPECT_THAT(text, HasSubstr("\r\n\r\nabcde"));
}

TEST_F(WebServerTest, AClientThatExpectsContinueGetsIt) {
  Start();
  TestClient client(server_->address());
  client.Send("POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 100 Continue"));
  client.Send("one");
  EXPECT_THAT(client.ReadUntil("one"), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, RequestsBeyondALimitAreRefused) {
  Start({.max_body_bytes = 100});
  const auto answer = [this](const std::string& request) {
    TestClient client(server_->address());
    client.Send(request);
    return client.ReadAll();
  };
  EXPECT_THAT(answer("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  const std::string too_large = answer(Post("/a", std::string(101, 'x')));
  EXPECT_THAT(too_large, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(too_large, HasSubstr("{\"error\":{\"message\":\"the body of the request has more than 100 bytes\""));
  EXPECT_THAT(too_large, HasSubstr("Connection: close"));
  EXPECT_THAT(answer("GET /a HTTP/1.1\r\nX: " + std::string(17'000, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 431"));
  const std::string chunked = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = "33\r\n" + std::string(51, 'x') + "\r\n";
  EXPECT_THAT(answer(chunked + chunk + chunk), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(answer(chunked + "no number\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(answer(Post("/a", "x", "Connection: close\r\n")), StartsWith("HTTP/1.1 200"));
}

// Returns the codes of all answers in the text.
std::vector<std::string> CodesIn(const std::string& text) {
  std::vector<std::string> codes;
  const std::string status = "HTTP/1.1 ";
  for (size_t i = text.find(status); i != text.npos; i = text.find(status, i + 1)) {
    const std::string code = text.substr(i + status.size(), 3);
    if (code.find_first_not_of("0123456789") == code.npos) codes.push_back(code);  // Messages may name HTTP/1.1 too.
  }
  return codes;
}

TEST_F(WebServerTest, RequestsWithoutASingleMeaningAreRefusedAndTheConnectionEnds) {
  Start();
  const std::string next = "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
  std::vector<FramingCase> cases = FramingCases();
  for (const FramingCase& body : BodyCases()) cases.push_back(body);
  for (const FramingCase& framing : cases) {
    std::vector<std::string> expected = {framing.code < 100 ? "200" : absl::StrCat(framing.code)};
    if (framing.code == kServed) expected.push_back("200");
    TestClient client(server_->address());
    client.Send(framing.request + next);
    EXPECT_EQ(CodesIn(client.ReadAll()), expected) << framing.request;
    // The same, byte by byte. The server may close the connection before the end.
    TestClient slow(server_->address());
    for (const char c : framing.request + next) slow.TrySend(c);
    EXPECT_EQ(CodesIn(slow.ReadAll()), expected) << "byte by byte: " << framing.request;
  }
}

TEST_F(WebServerTest, AnAddressDoesNotWaitForTheManyRequestsOfAnother) {
  constexpr int kNumConnections = 100;
  Start();
  std::vector<std::unique_ptr<TestClient>> many;
  for (int i = 0; i < kNumConnections; ++i) many.push_back(std::make_unique<TestClient>(server_->address(), 2));
  TestClient one(server_->address(), 3);
  while (server_->stats().connections < kNumConnections + 1) std::this_thread::yield();
  for (const bool is_pipelined : {false, true}) {
    handled_.clear();
    std::promise<void> release;
    Block(&release);
    for (int i = 0; i < kNumConnections; ++i) many[is_pipelined ? 0 : i]->Send(Post("/a", "x"));
    one.Send(Post("/b", "one"));
    release.set_value();
    EXPECT_THAT(one.ReadUntil("one"), StartsWith("HTTP/1.1 200"));
    for (int i = 0; i < kNumConnections; ++i) many[is_pipelined ? 0 : i]->ReadUntil("/a   x");
    const auto place = std::find(handled_.begin(), handled_.end(), "127.0.0.3") - handled_.begin();
    EXPECT_LT(place, kNumConnections / 2) << (is_pipelined ? "on one connection" : "on many connections");
    EXPECT_EQ(handled_.size(), kNumConnections + 1);
  }
}

TEST_F(WebServerTest, RequestsThatWaitForTheirTurnMakeRoomForAnotherAddress) {
  constexpr int kNumConnections = 30;
  Start({.max_connections = kNumConnections + 2});
  std::vector<std::unique_ptr<TestClient>> many;
  for (int i = 0; i < kNumConnections; ++i) many.push_back(std::make_unique<TestClient>(server_->address(), 2));
  const auto wait_for = [this](int count) {
    while (server_->stats().connections < count) std::this_thread::yield();
  };
  wait_for(kNumConnections);
  std::promise<void> release;
  Block(&release);
  for (const auto& client : many) client->Send(Post("/block", "x"));
  release.set_value();
  is_waiting_.get_future().wait();  // The first request is handled, and the others wait for their turns.
  TestClient one(server_->address(), 3);
  TestClient next(server_->address(), 3);
  wait_for(kNumConnections + 2);
  go_on_.set_value();
  one.Send(Post("/b", "one"));
  EXPECT_THAT(one.ReadUntil("one"), StartsWith("HTTP/1.1 200"));
}

TEST_F(WebServerTest, PagesOfOtherSitesAreRefused) {
  Start({.access = {.host_names = {"llm.example"}, .allowed_origins = {}}});
  const auto answer = [this](const std::string& headers) {
    TestClient client(server_->address());
    client.Send("GET /a HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
    return client.ReadAll();
  };
  EXPECT_THAT(answer("Host: evil.example\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(answer("Host: h\r\nSec-Fetch-Site: cross-site\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(answer("Host: llm.example\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(WebServerTest, AHeadIsCheckedBeforeItsBodyComes) {
  Start({.check_head = [](const WebRequest& head) {
    return head.path == "/a" ? std::nullopt : std::optional(WebResponse{.code = 404, .body = "no " + head.path});
  }});
  TestClient client(server_->address());
  client.Send("POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n");
  const std::string refused = client.ReadAll();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(refused, HasSubstr("Connection: close"));
  EXPECT_THAT(refused, HasSubstr("no /b"));
  TestClient other(server_->address());
  other.Send("GET /b HTTP/1.1\r\nHost: h\r\n\r\n" + Post("/a", "one"));
  EXPECT_THAT(other.ReadUntil("no /b"), Not(HasSubstr("Connection: close")));
  EXPECT_THAT(other.ReadUntil("one"), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, BodiesThatAreOnlyDeclaredKeepNobodyOut) {
  constexpr size_t kBytes = 200 << 10;
  Start({.max_body_bytes = kBytes, .max_receiving_bytes = kBytes});
  std::vector<std::unique_ptr<TestClient>> idle;
  for (int i = 0; i < 16; ++i) {
    idle.push_back(std::make_unique<TestClient>(server_->address()));
    idle.back()->Send(
        absl::StrCat("POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: ", kBytes, "\r\n\r\n"));
    idle.back()->ReadUntil("100 Continue\r\n\r\n");
  }
  TestClient client(server_->address());
  client.Send(Post("/a", std::string(kBytes - 1, 'x') + "!"));
  EXPECT_THAT(client.ReadUntil("!"), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, ABodyThatStallsGivesWayToALargeOneAndSmallOnesNeedNoRoom) {
  constexpr size_t kBytes = 200 << 10;
  Start({.max_body_bytes = kBytes, .max_receiving_bytes = kBytes + 1000});
  TestClient stalled(server_->address());
  const std::string part(kBytes - 1000, 'x');
  stalled.Send(absl::StrCat("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: ", kBytes, "\r\n\r\n", part));
  TestClient small(server_->address());
  small.Send(Post("/a", "small"));
  EXPECT_THAT(small.ReadUntil("small"), HasSubstr("200 OK"));
  TestClient large(server_->address());
  large.Send(Post("/keep", std::string(kBytes, 'y')));
  EXPECT_THAT(large.ReadUntil("kept"), HasSubstr("200 OK"));
  const std::string dropped = stalled.ReadAll();
  EXPECT_THAT(dropped, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(dropped, HasSubstr("Retry-After: 1"));
  // A body that was taken over keeps its memory, until its last user ends.
  TestClient refused(server_->address());
  refused.Send(Post("/a", std::string(kBytes, 'z')));
  EXPECT_THAT(refused.ReadAll(), StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(kept_.at(0)->size(), kBytes);
  kept_.clear();
  TestClient again(server_->address());
  again.Send(Post("/a", std::string(kBytes - 1, 'z') + "!"));
  EXPECT_THAT(again.ReadUntil("!"), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, ABodyThatTricklesIsRefused) {
  Start({.body_start = std::chrono::milliseconds(100)});
  TestClient client(server_->address());
  client.Send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408"));
}

TEST_F(WebServerTest, IdleConnectionsGiveWayToNewOnes) {
  Start({.max_connections = 16});
  std::vector<std::unique_ptr<TestClient>> idle;
  for (int i = 0; i < 15; ++i) {
    idle.push_back(std::make_unique<TestClient>(server_->address()));
    idle.back()->Send(Post("/a", "one"));
    idle.back()->ReadUntil("one");
  }
  for (int i = 0; i < 5; ++i) {
    TestClient client(server_->address());
    client.Send(Post("/a", "new"));
    EXPECT_THAT(client.ReadUntil("new"), HasSubstr("200 OK"));
    client.Close();
  }
  EXPECT_EQ(idle[0]->ReadAll(), "");
  idle[14]->Send(Post("/a", "last"));
  EXPECT_THAT(idle[14]->ReadUntil("last"), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, AnAddressHasFewerConnectionsThanThePort) {
  Start({.max_connections = 3, .max_connections_per_address = 2});
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<TestClient>(server_->address()));
    clients.back()->Send(Post("/a", "one"));
    clients.back()->ReadUntil("one");
  }
  TestClient third(server_->address());
  EXPECT_EQ(third.ReadAll(), "");
  TestClient neighbour(server_->address(), 2);
  neighbour.Send(Post("/a", "one"));
  EXPECT_THAT(neighbour.ReadUntil("one"), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, AConnectionOfHttp10StaysOpenIfTheClientAsksForThat) {
  Start();
  TestClient client(server_->address());
  client.Send("POST /a HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 3\r\n\r\none");
  EXPECT_THAT(client.ReadUntil("one"), HasSubstr("Connection: keep-alive\r\n"));
  client.Send(Post("/a", "two"));
  EXPECT_THAT(client.ReadUntil("two"), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, ACompressedBodyIsRefusedByTheNameOfTheHeader) {
  Start();
  const auto answer = [&](const std::string& headers) {
    TestClient client(server_->address());
    client.Send(Post("/a", "ab", "Connection: close\r\n" + headers));
    return client.ReadAll();
  };
  const std::string refused = answer("Content-Encoding: gzip\r\n");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 415 Unsupported Media Type\r\n"));
  EXPECT_THAT(refused, HasSubstr("the header Content-Encoding is \\\"gzip\\\", and this server reads bodies without"));
  EXPECT_THAT(answer("content-encoding: identity, br\r\n"), StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(answer("Content-Encoding: identity\r\nContent-Encoding: deflate\r\n"), StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(answer("Content-Encoding: gzip\r\nExpect: 100-continue\r\n"), StartsWith("HTTP/1.1 415"));
  for (const char* header : {"", "Content-Encoding: identity\r\n", "Content-Encoding: Identity\r\n"}) {
    EXPECT_THAT(answer(header), StartsWith("HTTP/1.1 200")) << header;
  }
}

TEST_F(WebServerTest, ARequestThatDoesNotArriveInTimeIsRefused) {
  Start({.head_timeout = std::chrono::milliseconds(300), .body_timeout = std::chrono::milliseconds(300)});
  TestClient head(server_->address());
  head.Send("GET /a HT");
  EXPECT_THAT(head.ReadAll(), StartsWith("HTTP/1.1 408"));
  TestClient body(server_->address());
  body.Send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
  EXPECT_THAT(body.ReadAll(), StartsWith("HTTP/1.1 408"));
}

TEST_F(WebServerTest, AConnectionWithoutRequestsIsClosed) {
  Start({.head_timeout = std::chrono::milliseconds(300), .idle_timeout = std::chrono::milliseconds(300)});
  TestClient silent(server_->address());
  EXPECT_EQ(silent.ReadAll(), "");
  TestClient idle(server_->address());
  idle.Send(Post("/a", "one"));
  idle.ReadUntil("one");
  EXPECT_EQ(idle.ReadAll(), "");
}

TEST_F(WebServerTest, AClientThatLeavesIsNoticed) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  client.Close();
  EXPECT_EQ(gone_.get_future().wait_for(kLong), std::future_status::ready);
}

TEST_F(WebServerTest, AClientThatLeavesIsNoticedAlsoIfItHasSentAnotherRequest) {
  for (const bool is_at_once : {true, false}) {
    is_waiting_ = {};
    gone_ = {};
    Start();
    TestClient client(server_->address());
    client.Send(Post("/wait", "x") + (is_at_once ? Post("/next", "y") : ""));
    is_waiting_.get_future().wait();
    if (!is_at_once) client.Send(Post("/next", "y"));
    client.Close();
    EXPECT_EQ(gone_.get_future().wait_for(kLong), std::future_status::ready);
    TearDown();
  }
}

TEST_F(WebServerTest, RefusalsAreTold) {
  std::promise<int> told;
  Start({.max_body_bytes = 10, .on_refusal = [&told](int code) { told.set_value(code); }});
  TestClient client(server_->address());
  client.Send(Post("/a", "much too long"));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 413"));
  EXPECT_EQ(told.get_future().get(), 413);
}

TEST_F(WebServerTest, AResponseThatGoesOnHoldsNoBody) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  client.Close();
  ASSERT_EQ(gone_.get_future().wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(waiting_->request().body, "");
}

TEST_F(WebServerTest, AClientThatDoesNotReadIsDisconnected) {
  Start({.max_unsent_bytes = 100'000});
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  // More than the buffers of the sockets hold.
  server_->Post([this] {
    waiting_->BeginEvents();
    for (int i = 0; i < 10'000; ++i) waiting_->Send(std::string(10'000, 'x'));
  });
  EXPECT_EQ(gone_.get_future().wait_for(kLong), std::future_status::ready);
}

TEST_F(WebServerTest, AnEventThatIsLargerThanWhatMayWaitIsSent) {
  Start({.max_unsent_bytes = 1000});
  TestClient client(server_->address());
  client.Send(Post("/stream", std::string(5000, 'x')));
  EXPECT_THAT(client.ReadUntil("\r\n0\r\n\r\n"), HasSubstr(std::string(5000, 'x')));
}

TEST_F(WebServerTest, AWriteWithoutProgressEndsTheConnection) {
  Start({.max_unsent_bytes = 1 << 30, .write_timeout = std::chrono::milliseconds(500)});
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  server_->Post([this] {
    waiting_->BeginEvents();
    waiting_->Send(std::string(50 << 20, 'x'));
  });
  EXPECT_EQ(gone_.get_future().wait_for(kLong), std::future_status::ready);
}

TEST_F(WebServerTest, AClientThatReadsSlowlyButSteadilyGetsTheWholeAnswer) {
  constexpr size_t kBodyBytes = 50 << 20;  // More than the buffers of the sockets hold.
  Start({.write_timeout = std::chrono::seconds(2)});
  TestClient client(server_->address());
  client.Send(Post("/wait", "one", "Connection: close\r\n"));
  is_waiting_.get_future().get();
  server_->Post([this] { waiting_->Respond({.body = std::string(kBodyBytes, 'x')}); });
  size_t num_bytes = 0;  // With the head.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3500);
  while (std::chrono::steady_clock::now() < end) {
    num_bytes += client.ReadSome();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(num_bytes, kBodyBytes / 2) << "the client was too fast for this test";
  while (const size_t more = client.ReadSome()) num_bytes += more;
  EXPECT_GE(num_bytes, kBodyBytes);
}

TEST_F(WebServerTest, AClientThatTakesTooLongForAWholeAnswerIsDisconnected) {
  constexpr size_t kBodyBytes = 50 << 20;  // More than the buffers of the sockets hold.
  Start({.write_timeout = kLong, .send_timeout = std::chrono::milliseconds(500)});
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  std::promise<void> is_freed;
  std::shared_ptr<void> hold(nullptr, [&is_freed](void*) { is_freed.set_value(); });
  server_->Post([this, hold = std::exchange(hold, nullptr)]() mutable {
    waiting_->Keep(std::move(hold));
    waiting_->Respond({.body = std::string(kBodyBytes, 'x')});
  });
  size_t num_bytes = 0;
  auto freed = is_freed.get_future();
  while (freed.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) num_bytes += client.ReadSome();
  while (const size_t more = client.ReadSome()) num_bytes += more;
  EXPECT_LT(num_bytes, kBodyBytes);
}

TEST_F(WebServerTest, AResponseIsHeldUntilItIsSent) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  std::promise<void> is_freed;
  std::shared_ptr<void> hold(nullptr, [&is_freed](void*) { is_freed.set_value(); });
  server_->Post([this, hold = std::exchange(hold, nullptr)]() mutable {
    waiting_->Keep(std::move(hold));
    waiting_->Respond({.body = "two"});
  });
  EXPECT_THAT(client.ReadUntil("two"), HasSubstr("Content-Length: 3\r\n"));
  EXPECT_EQ(is_freed.get_future().wait_for(kLong), std::future_status::ready) << "the connection stays open";
}

TEST_F(WebServerTest, FurtherConnectionsThanTheLimitAreClosed) {
  Start({.max_connections = 1});
  TestClient first(server_->address());
  first.Send(Post("/a", "one"));
  first.ReadUntil("one");
  TestClient second(server_->address());
  EXPECT_EQ(second.ReadAll(), "");
}

TEST_F(WebServerTest, StopWaitsForResponses) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  TestClient idle(server_->address());
  idle.Send(Post("/a", "accepted"));
  idle.ReadUntil("accepted");
  std::future<void> stopped = std::async(std::launch::async, [this] { server_->Stop(kLong); });
  EXPECT_EQ(idle.ReadAll(), "") << "a connection without a request is closed";
  server_->Post([this] { waiting_->Respond({.body = "the end"}); });
  const std::string text = client.ReadAll();
  EXPECT_THAT(text, HasSubstr("the end"));
  EXPECT_THAT(text, HasSubstr("Connection: close"));
  stopped.get();
}

TEST_F(WebServerTest, StopEndsResponsesAfterTheGrace) {
  Start();
  TestClient client(server_->address());
  client.Send(Post("/wait", "one"));
  is_waiting_.get_future().get();
  server_->Stop(std::chrono::milliseconds(10));
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_EQ(gone_.get_future().wait_for(kLong), std::future_status::ready);
}

TEST_F(WebServerTest, StopClosesWhatWasAcceptedJustBefore) {
  constexpr size_t kNumClients = 50;
  Start();
  std::vector<std::unique_ptr<TestClient>> clients;
  for (size_t i = 0; i < kNumClients; ++i) clients.push_back(std::make_unique<TestClient>(server_->address()));
  server_->Stop(std::chrono::milliseconds(0));
  for (const auto& client : clients) EXPECT_TRUE(client->WaitForEnd());
}

// Sends a request through TLS and returns the answer, or "" when the handshake fails.
std::string AskWithTls(const WebServer& server, const TlsFiles& files, bool shows_certificate) {
  TlsClient client(server.address(), files, shows_certificate);
  return client.Send(Post("/a", "one")) ? client.ReadSome() : "";
}

TEST_F(WebServerTest, TlsEndsBeforeItsConnection) {
  const TemporaryDirectory directory;
  TestAuthority authority(directory, "ca");
  const TlsFiles files = authority.Issue("server");
  Start({.tls = {files.certificate, files.key, ""}});
  const std::string whole = Post("/a", "one", "Connection: close\r\n");
  // With nothing behind the request, the server reads on during the response.
  for (const std::string rest : {"", "more"}) {
    TlsClient client(server_->address(), files, false);
    ASSERT_TRUE(client.Send(whole + rest));
    EXPECT_THAT(client.ReadAll(), HasSubstr("one"));
    EXPECT_TRUE(client.has_end());
    EXPECT_TRUE(client.Close());
  }
}

TEST_F(WebServerTest, AClientThatStillSendsThroughTlsGetsTheAnswer) {
  const TemporaryDirectory directory;
  TestAuthority authority(directory, "ca");
  const TlsFiles files = authority.Issue("server");
  Start({.tls = {files.certificate, files.key, ""}, .max_body_bytes = 100});
  TlsClient client(server_->address(), files, false);
  ASSERT_TRUE(client.Send(Post("/a", std::string(1 << 20, 'x'))));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 413"));
  EXPECT_TRUE(client.has_end());
}

TEST_F(WebServerTest, ARequestHasTheNamesInTheCertificateOfItsClient) {
  const TemporaryDirectory directory;
  TestAuthority authority(directory, "ca");
  const TlsFiles files = authority.Issue("server");
  std::vector<std::string> names;
  Start({.tls = files, .check_head = [&](const WebRequest& head) {
           names = head.client_names;
           return std::optional<WebResponse>();
         }});
  TlsFiles own = authority.Issue("some-client");
  EXPECT_THAT(AskWithTls(*server_, own, true), HasSubstr("200 OK"));
  EXPECT_THAT(names, ::testing::ElementsAre("some-client"));
}

TEST_F(WebServerTest, TlsAsksForACertificateIfThereIsAnAuthority) {
  const TemporaryDirectory directory;
  TestAuthority authority(directory, "ca");
  const TlsFiles files = authority.Issue("server");
  Start({.tls = files});
  EXPECT_THAT(AskWithTls(*server_, files, true), HasSubstr("200 OK"));
  EXPECT_EQ(AskWithTls(*server_, files, false), "");
  server_->Stop(std::chrono::milliseconds(0));
  Start({.tls = {files.certificate, files.key, ""}});
  EXPECT_THAT(AskWithTls(*server_, files, false), HasSubstr("200 OK"));
}

TEST_F(WebServerTest, ACertificateThatWasRenewedIsUsed) {
  const TemporaryDirectory directory;
  TestAuthority old_authority(directory, "old");
  TestAuthority new_authority(directory, "new");
  const TlsFiles files = old_authority.Issue("server");
  Start({.tls = {files.certificate, files.key, ""}});
  EXPECT_THAT(AskWithTls(*server_, files, false), HasSubstr("200 OK"));
  const TlsFiles renewed = new_authority.Issue("server");
  const auto end = std::chrono::steady_clock::now() + kLong;
  std::string answer;
  while (answer.empty() && std::chrono::steady_clock::now() < end) answer = AskWithTls(*server_, renewed, false);
  EXPECT_THAT(answer, HasSubstr("200 OK"));
}

TEST(WebServerStartTest, AnAddressThatCannotBeTakenIsAnError) {
  const auto server = WebServer::Create({.address = "unix:/does/not/exist/socket"});
  EXPECT_EQ(server->Listen([](const auto&) {}).message(),
            "cannot listen on unix:/does/not/exist/socket: No such file or directory");
  const auto secured = WebServer::Create({.address = "127.0.0.1:0", .tls = {"/no/cert", "/no/key", ""}});
  EXPECT_EQ(secured->Listen([](const auto&) {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WebServerTest, AnAddressInUseIsNamed) {
  Start();
  const auto second = WebServer::Create({.address = server_->address()});
  EXPECT_EQ(second->Listen([](const auto&) {}).message(),
            absl::StrCat("cannot listen on ", server_->address(), ": it is in use"));
}

}  // namespace
}  // namespace quire
