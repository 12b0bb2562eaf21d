// SPDX-License-Identifier: Apache-2.0

#include "client/views/doctor.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/version.h"
#include "client/library/probe.h"
#include "client/terminal/terminal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::HasSubstr;
using Result = Finding::Result;

v1::GetStatusResponse OneWorker() {
  v1::GetStatusResponse status;
  status.set_version(kVersion);
  v1::WorkerStatus* const worker = status.add_workers();
  worker->set_address("node1:1");
  worker->set_state(v1::WORKER_STATE_READY);
  worker->set_steps(1000);
  worker->mutable_blocks()->set_total(100);
  worker->mutable_blocks()->set_used(50);
  return status;
}

TEST(DoctorTest, AHealthyStatusHasNoAdvice) {
  for (const Finding& finding : JudgeStatus(OneWorker())) {
    EXPECT_EQ(finding.result, Result::kOk) << finding.message;
    EXPECT_EQ(finding.advice, "");
  }
}

TEST(DoctorTest, WhatIsWrongWithAStatusIsNamed) {
  const auto last_of = [](void (*change)(v1::GetStatusResponse*)) {
    v1::GetStatusResponse status = OneWorker();
    change(&status);
    return JudgeStatus(status).back();
  };
  const Finding lost = last_of([](auto* status) {
    status->mutable_workers(0)->set_state(v1::WORKER_STATE_CONNECTING);
    status->mutable_workers(0)->set_last_error("refused");
  });
  EXPECT_EQ(lost.result, Result::kFail);
  EXPECT_THAT(lost.message, HasSubstr("is not connected: refused"));
  EXPECT_THAT(lost.advice, HasSubstr("does quire-worker run there"));
  const Finding without_tls = last_of([](auto* status) {
    status->mutable_workers(0)->set_state(v1::WORKER_STATE_CONNECTING);
    status->mutable_workers(0)->set_last_error(
        "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.1:50061: Socket closed");
  });
  EXPECT_THAT(without_tls.advice, HasSubstr("does it speak TLS (--worker-tls-ca of quire-manager)"));
  EXPECT_EQ(last_of([](auto* status) { status->mutable_workers(0)->set_is_draining(true); }).result, Result::kWarn);
  const Finding refused = last_of([](auto* status) {
    status->mutable_workers(0)->set_state(v1::WORKER_STATE_REFUSED);
    status->mutable_workers(0)->set_last_error("the tokenizer is broken");
  });
  EXPECT_EQ(refused.result, Result::kFail);
  EXPECT_THAT(refused.message, HasSubstr("is refused: the tokenizer is broken"));
  const Finding older = last_of([](auto* status) {
    status->set_generation(2);
    status->mutable_workers(0)->set_generation(1);
  });
  EXPECT_EQ(older.result, Result::kWarn);
  EXPECT_THAT(older.message, HasSubstr("is of generation 1"));
  // Preemptions count from the manager's start, steps from the beginning of the session.
  EXPECT_EQ(last_of([](auto* status) { status->mutable_workers(0)->set_preemptions(200); }).result, Result::kOk);
  EXPECT_EQ(last_of([](auto* status) { status->clear_workers(); }).result, Result::kFail);
  const Finding full = last_of([](auto* status) {
    status->mutable_workers(0)->mutable_blocks()->set_used(99);
    status->mutable_workers(0)->set_waiting_requests(1);
  });
  EXPECT_THAT(full.advice, HasSubstr("memory is full"));
  v1::GetStatusResponse other = OneWorker();
  other.set_version("9.9");
  EXPECT_EQ(JudgeStatus(other).front().result, Result::kWarn);
}

TEST(DoctorTest, MetricsTellRefusalsAndStuckWorkers) {
  const std::string text =
      "# HELP quire_requests Requests\nquire_prompt_tokens_total "
      "7\nquire_request_rejections_total{reason=\"QUEUE_FULL\"} 3\n"
      "quire_worker_last_step_age_seconds{worker=\"b\"} 500\n"
      "quire_worker_step_age_seconds{worker=\"a\"} 21\nquire_worker_step_age_seconds{worker=\"b\"} 0\n";
  const std::vector<Finding> findings = JudgeMetrics(text);
  ASSERT_EQ(findings.size(), 4u);
  EXPECT_EQ(findings[1].result, Result::kWarn);
  EXPECT_EQ(findings[1].message, "valid requests that were refused since the start: 3");
  EXPECT_EQ(findings[2].result, Result::kWarn) << "it owes a step, and does not take it";
  EXPECT_EQ(findings[2].message, "worker a: 21.0 s in the current step");
  EXPECT_EQ(findings[3].result, Result::kOk) << "it has nothing to do";
  EXPECT_EQ(JudgeMetrics("hello").front().result, Result::kFail);
}

TEST(DoctorTest, TheMetricsOfAWorkerAreNotTheManagers) {
  const std::vector<Finding> findings = JudgeMetrics("quire_worker_steps_total 5\nquire_build_info{version=\"1\"} 1\n");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].result, Result::kFail);
  EXPECT_EQ(findings[0].message, "these are not the metrics of a manager; are they a worker's?");
}

TEST(DoctorTest, SamplesWithoutLabelsAreJudged) {
  const std::vector<Finding> findings = JudgeMetrics("quire_prompt_tokens_total 7\nquire_worker_step_age_seconds 21\n");
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings[2].result, Result::kWarn);
  EXPECT_EQ(findings[2].message, "21.0 s in the current step");
}

TEST(DoctorTest, CertificatesAreToBeRenewedBeforeTheyEnd) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(JudgeCertificate("our own", now + absl::Hours(24 * 90), now).result, Result::kOk);
  EXPECT_EQ(JudgeCertificate("our own", now + absl::Hours(24 * 6), now).result, Result::kWarn);
  EXPECT_EQ(JudgeCertificate("our own", now + absl::Hours(24 * 8), now).result, Result::kOk) << "as the alert";
  EXPECT_EQ(JudgeCertificate("our own", now - absl::Hours(1), now).result, Result::kFail);
  EXPECT_EQ(JudgeCertificate("our own", now, now).message, "our own certificate ends 2023-11-14 22:13 UTC");
}

TEST(ProbeTest, HostsAreTakenOutOfEndpoints) {
  EXPECT_EQ(HostOf("node1:50051"), "node1");
  EXPECT_EQ(HostOf("[::1]:50051"), "::1");
  EXPECT_EQ(HostOf("dns:///node1:50051"), "node1");
  EXPECT_EQ(HostOf("ipv4:10.0.0.1:5,10.0.0.2:5"), "10.0.0.1");
  EXPECT_EQ(HostOf("unix:/run/quire"), "");
}

TEST(ProbeTest, TroubleIsNamed) {
  EXPECT_EQ(Resolve("127.0.0.1:1").value_or(""), "127.0.0.1");
  EXPECT_EQ(Resolve("unix:/nonexistent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Connect("unix:/nonexistent", absl::Seconds(5)).status().code(), absl::StatusCode::kUnavailable);
}

// Answers one GET with a head and a number of pieces, with a pause before each, as long as the other side listens.
class PiecewiseServer {
 public:
  PiecewiseServer(std::string piece, int num_pieces, absl::Duration pause) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    QUIRE_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener_, 1) == 0);
    QUIRE_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this, piece = std::move(piece), num_pieces, pause] {
      const Socket connection(accept(listener_, nullptr, nullptr));
      const auto tell = [&](const std::string& text) {
        return send(connection.fd(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
      };
      char request[1000];
      bool is_open = recv(connection.fd(), request, sizeof(request), 0) > 0 && tell("HTTP/1.0 200 OK\r\n\r\n");
      for (int i = 0; is_open && i < num_pieces; ++i) {
        absl::SleepFor(pause);
        is_open = tell(piece);
      }
    });
  }
  ~PiecewiseServer() {
    thread_.join();
    close(listener_);
  }

  absl::StatusOr<std::string> Get(absl::Duration timeout) const { return HttpGet(address_, "/metrics", timeout); }

 private:
  int listener_;
  std::string address_;
  std::thread thread_;
};

TEST(ProbeTest, AnswersAreWholeOrAnError) {
  EXPECT_EQ(PiecewiseServer("ab", 3, absl::ZeroDuration()).Get(absl::Seconds(60)).value_or(""), "ababab");
  const std::string mebibyte(1 << 20, 'a');
  EXPECT_EQ(PiecewiseServer(mebibyte, 17, absl::ZeroDuration()).Get(absl::Seconds(60)).status().code(),
            absl::StatusCode::kResourceExhausted);
  // Each piece comes soon after the last one, but all pieces together take two seconds.
  EXPECT_EQ(PiecewiseServer("a", 100, absl::Milliseconds(20)).Get(absl::Milliseconds(200)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(TerminalTest, WhatOthersHaveNamedDoesNotDriveIt) {
  EXPECT_EQ(Printable("a \"b\" \\ \xc3\xbc\n\x1b[2J"), "a \"b\" \\ \xc3\xbc\\n\\x1b[2J");
}

}  // namespace
}  // namespace quire
