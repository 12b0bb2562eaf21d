// SPDX-License-Identifier: Apache-2.0

#include "serving/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "serving/http_connection.h"
#include "serving/http_head.h"
#include "serving/http_page.h"
#include "tests/serving/framing_cases.h"
#include "tests/serving/sockets.h"

namespace quire {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class OneMetric : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    prometheus::ClientMetric metric;
    metric.gauge.value = 7;
    return {{"some_metric", "Seven.", prometheus::MetricType::Gauge, {metric}}};
  }
};

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() : server_(*MetricsServer::Start("127.0.0.1:0")) {
    server_->Add(std::make_shared<OneMetric>());
    server_->AddPage("/", [](const HttpRequest&) {
      return HttpResponse{.content_type = "text/html", .body = "the page", .headers = {{"X-Own", "1"}}};
    });
    server_->AddPage("/who", [](const HttpRequest& request) {
      std::string text = request.is_local_user ? "local" : "remote";
      for (const auto& [name, value] : request.parameters) absl::StrAppend(&text, " ", name, "=", value);
      return HttpResponse{.body = text};
    });
    server_->AddPage("/long", [](const HttpRequest&) { return HttpResponse{.body = std::string(100'000, 'a')}; });
  }

  // Returns the whole response of the server. Each of `headers` ends with "\r\n".
  std::string Ask(const std::string& method, const std::string& path, std::string headers = "") {
    if (headers.find("Host:") == std::string::npos) absl::StrAppend(&headers, "Host: localhost\r\n");
    const std::string request = absl::StrCat(method, " ", path, " HTTP/1.1\r\n", headers, "\r\n");
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(server_->port())),
                        .sin_addr = {htonl(INADDR_LOOPBACK)},
                        .sin_zero = {}};
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t size; (size = recv(fd, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, size);
    close(fd);
    return answer;
  }

  const std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ShowsMetricsAndPages) {
  EXPECT_THAT(Ask("GET", "/metrics"), HasSubstr("\nsome_metric 7\n"));
  const std::string page = Ask("GET", "/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, EndsWith("\r\n\r\nthe page"));
  EXPECT_THAT(page, HasSubstr("\r\nContent-Type: text/html\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nX-Own: 1\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(Ask("GET", "/other"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("GET", "/who/is"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(MetricsServerTest, HeadHasTheLengthAndNoBody) {
  const std::string head = Ask("HEAD", "/");
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 8\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
}

TEST_F(MetricsServerTest, OtherMethodsAreNotAllowed) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    for (const char* path : {"/", "/metrics", "/none"}) {
      const std::string answer = Ask(method, path, "Content-Length: 0\r\n");
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method << " " << path;
      EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
    }
  }
}

TEST_F(MetricsServerTest, WhatIsLongIsPackedForWhoTakesIt) {
  EXPECT_GT(Ask("GET", "/long").size(), 100'000u);
  const std::string packed = Ask("GET", "/long", "Accept-Encoding: gzip, deflate\r\n");
  EXPECT_THAT(packed, HasSubstr("\r\nContent-Encoding: gzip\r\n"));
  EXPECT_THAT(packed, HasSubstr("\r\n\r\n\x1f\x8b"));
  EXPECT_LT(packed.size(), 2000u);
}

TEST_F(MetricsServerTest, ParametersAreDecoded) {
  EXPECT_THAT(Ask("GET", "/who?worker=unix%3A%2Ftmp%2Fa&block=7&empty"),
              EndsWith("local block=7 empty= worker=unix:/tmp/a"));
}

TEST_F(MetricsServerTest, AUserIsLocalByALocalNameAndWithoutAProxy) {
  EXPECT_THAT(Ask("GET", "/who"), EndsWith("local"));
  EXPECT_THAT(Ask("GET", "/who", "Host: other-machine:9460\r\n"), EndsWith("remote"));
  EXPECT_THAT(Ask("GET", "/who", "X-Forwarded-For: 10.0.0.1\r\n"), EndsWith("remote"));
}

TEST_F(MetricsServerTest, SlowClientsKeepNobodyOut) {
  std::vector<TestSocket> slow(15);  // One less than an address may have.
  for (TestSocket& socket : slow) {
    ASSERT_TRUE(socket.Connect(server_->port()));
    ASSERT_TRUE(socket.Send('G'));
  }
  EXPECT_THAT(Ask("GET", "/metrics"), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(slow.front().IsSilent()) << "the answer came only after a slow client was cut off";
  std::vector<TestSocket> more(40);
  for (TestSocket& socket : more) socket.Connect(server_->port());
  EXPECT_TRUE(more.back().IsClosed());
  TestSocket other;
  ASSERT_TRUE(other.Connect(server_->port(), 2));
  for (const char c : std::string("GET /metrics HTTP/1.0\r\n\r\n")) other.Send(c);
  EXPECT_FALSE(other.IsClosed());
}

// Sends the bytes and returns all that comes back.
std::string Exchange(int port, const std::string& bytes) {
  TestSocket socket;
  EXPECT_TRUE(socket.Connect(port));
  EXPECT_EQ(send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t size; (size = recv(socket.fd(), buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, size);
  return answer;
}

TEST_F(MetricsServerTest, HeadsWithoutASingleMeaningAreRefused) {
  for (const FramingCase& framing : FramingCases()) {
    const std::string answer = Exchange(server_->port(), framing.request);
    const std::string code = framing.code < 100 ? "200" : absl::StrCat(framing.code);
    EXPECT_THAT(answer, StartsWith(absl::StrCat("HTTP/1.1 ", code, " "))) << framing.request;
  }
}

TEST_F(MetricsServerTest, ARefusalOfHeadHasNoBody) {
  for (const char* request : {"HEAD * HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD / HTTP/1.1\r\n\r\n"}) {
    const std::string answer = Exchange(server_->port(), request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n"));
  }
}

TEST_F(MetricsServerTest, WebPagesOfOtherSitesReadNothing) {
  for (const char* path : {"/metrics", "/", "/who"}) {
    EXPECT_THAT(Ask("GET", path, "Host: evil.example\r\n"), StartsWith("HTTP/1.1 403 ")) << path;
    EXPECT_THAT(Ask("GET", path, "Sec-Fetch-Site: cross-site\r\n"), StartsWith("HTTP/1.1 403 ")) << path;
    EXPECT_THAT(Ask("GET", path, "Sec-Fetch-Site: same-origin\r\n"), StartsWith("HTTP/1.1 200 ")) << path;
  }
  const auto open = MetricsServer::Start("127.0.0.1:0", {.host_names = {"llm.example"}, .allowed_origins = {}});
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_THAT(Exchange((*open)->port(), "GET /metrics HTTP/1.1\r\nHost: llm.example\r\n\r\n"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsServerTest, WhatIsNotARequestIsRefused) {
  EXPECT_THAT(Ask("GET", "no-path"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET", "/", "A: " + std::string(17'000, 'a') + "\r\n"), StartsWith("HTTP/1.1 431 "));
}

class HttpConnectionTest : public ::testing::Test {
 protected:
  HttpConnectionTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds_), 0);
    connection_ = std::make_unique<HttpConnection>(fds_[0]);
  }
  ~HttpConnectionTest() override {
    for (const int fd : fds_) close(fd);
  }

  int fds_[2];  // [1] is the client's.
  std::unique_ptr<HttpConnection> connection_;
};

TEST_F(HttpConnectionTest, EachByteOfASlowClientDoesNotBeginTheTimeAnew) {
  std::atomic<bool> has_ended = false;
  std::thread client([&] {
    for (int i = 0; i < 2000 && !has_ended; ++i) {
      send(fds_[1], "a", 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    shutdown(fds_[1], SHUT_RDWR);
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(connection_->ReadHead(std::chrono::milliseconds(100)).status()));
  has_ended = true;
  client.join();
}

TEST_F(HttpConnectionTest, AClientThatReadsNothingIsGivenUp) {
  std::promise<void> end;
  std::thread client([&, has_ended = end.get_future()] {
    EXPECT_EQ(has_ended.wait_for(std::chrono::seconds(30)), std::future_status::ready) << "the server waits in vain";
    shutdown(fds_[1], SHUT_RDWR);
  });
  connection_->Write(std::string(10'000'000, 'a'), std::chrono::milliseconds(50));
  connection_->Finish(std::chrono::milliseconds(50));
  end.set_value();
  client.join();
}

TEST(HttpHeadTest, HasItsPartsAndHeadersInLowerCase) {
  const auto read = ReadHttpHead("GET /a%20b+c?x=1+2%26&y HTTP/1.1\r\nHost: here:1 \r\nACCEPT:x\r\n\r\n");
  ASSERT_TRUE(std::holds_alternative<HttpHead>(read)) << std::get<HttpRefusal>(read).message;
  const auto& head = std::get<HttpHead>(read);
  EXPECT_EQ(head.method, "GET");
  EXPECT_EQ(DecodedPath(head.path), "/a b+c");
  EXPECT_THAT(QueryParameters(head.query), ::testing::ElementsAre(std::pair("x", "1 2&"), std::pair("y", "")));
  EXPECT_EQ(head.host, "here:1");
  EXPECT_EQ(head.Header("accept"), "x");
  EXPECT_EQ(head.Header("none"), "");
  EXPECT_FALSE(head.Has("none"));
}

TEST(HttpHeadTest, AHostInTheTargetReplacesTheHeader) {
  const auto read = ReadHttpHead("GET http://a:1?x HTTP/1.1\r\nHost: b\r\n\r\n");
  const auto& head = std::get<HttpHead>(read);
  EXPECT_EQ(head.host, "a:1");
  EXPECT_EQ(head.path, "/");
  EXPECT_EQ(head.query, "x");
}

TEST(HttpHeadTest, ARefusalNamesTheHeaderAndItsValue) {
  const auto message = [](const std::string& headers) {
    return std::get<HttpRefusal>(ReadHttpHead("GET / HTTP/1.1\r\n" + headers + "\r\n")).message;
  };
  const std::string prefix = "this is not a request of HTTP/1: ";
  EXPECT_EQ(message(""), prefix + "the header Host is missing");
  EXPECT_EQ(message("Host: h\r\nHost: h\r\n"), prefix + "the header host is there twice");
  EXPECT_EQ(message("Host: h\r\nContent-Length: +1\r\n"), prefix + "Content-Length is \"+1\"");
  EXPECT_EQ(message("Host: h\r\nTransfer-Encoding: gzip\r\n"),
            "the header Transfer-Encoding is \"gzip\", it must be chunked");
}

TEST(HttpHeadTest, TheEndIsFoundInWhateverPartsItComes) {
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  for (size_t cut = 0; cut < head.size(); ++cut) {
    const auto part = FindHeadEnd(head.substr(0, cut), 0);
    EXPECT_EQ(std::get<std::optional<size_t>>(part), std::nullopt) << cut;
    EXPECT_EQ(std::get<std::optional<size_t>>(FindHeadEnd(head + "next", cut)), head.size()) << cut;
  }
  const std::string cut_after_cr = "GET / HTTP/1.1\r";
  EXPECT_TRUE(std::holds_alternative<HttpRefusal>(FindHeadEnd(cut_after_cr + "x", cut_after_cr.size())));
}

TEST(LocalUserTest, NeedsALocalPeerALocalNameAndNoProxy) {
  EXPECT_TRUE(IsLocalUser("127.0.0.1", "127.0.0.1:9460", false));
  EXPECT_TRUE(IsLocalUser("127.0.0.1", "LocalHost", false));
  EXPECT_TRUE(IsLocalUser("::1", "[::1]:9460", false));
  EXPECT_FALSE(IsLocalUser("127.0.0.1", "localhost", true));
  EXPECT_FALSE(IsLocalUser("10.0.0.1", "localhost", false));
  EXPECT_FALSE(IsLocalUser("127.0.0.6", "localhost", false)) << "a proxy of a service mesh";
  for (const char* host : {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "::1", "[::1"}) {
    EXPECT_FALSE(IsLocalUser("127.0.0.1", host, false)) << host;
  }
}

TEST(MetricsServerAddressTest, AnAddressInUseAndABadAddressAreToldApart) {
  const auto first = MetricsServer::Start("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = absl::StrCat("127.0.0.1:", (*first)->port());
  const absl::Status in_use = MetricsServer::Start(address).status();
  EXPECT_EQ(in_use.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(in_use.message(), absl::StrCat("cannot serve metrics on ", address, ": it is in use"));
  EXPECT_EQ(MetricsServer::Start("192.0.2.1:9460").status().message(),
            "cannot serve metrics on 192.0.2.1:9460: 192.0.2.1 is not an address of this machine");
}

}  // namespace
}  // namespace quire
