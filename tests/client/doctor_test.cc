#include "client/doctor.h"

#include <string>
#include <vector>

#include "base/version.h"
#include "client/probe.h"
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
  EXPECT_EQ(last_of([](auto* status) { status->mutable_workers(0)->set_is_draining(true); }).result, Result::kWarn);
  EXPECT_EQ(last_of([](auto* status) { status->mutable_workers(0)->set_preemptions(200); }).result, Result::kWarn);
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
      "# HELP quire_requests Requests\nquire_request_rejections_total{reason=\"QUEUE_FULL\"} 3\n"
      "quire_requests{worker=\"a\",state=\"running\"} 2\nquire_requests{worker=\"b\",state=\"running\"} 0\n"
      "quire_worker_last_step_age_seconds{worker=\"a\"} 99\nquire_worker_last_step_age_seconds{worker=\"b\"} 500\n";
  const std::vector<Finding> findings = JudgeMetrics(text);
  ASSERT_EQ(findings.size(), 4u);
  EXPECT_EQ(findings[1].result, Result::kWarn);
  EXPECT_THAT(findings[1].message, HasSubstr("3 valid requests"));
  EXPECT_EQ(findings[2].result, Result::kWarn) << "it runs requests, and takes no step";
  EXPECT_EQ(findings[3].result, Result::kOk) << "it has nothing to do";
  EXPECT_EQ(JudgeMetrics("hello").front().result, Result::kFail);
}

TEST(DoctorTest, CertificatesAreToBeRenewedBeforeTheyEnd) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(JudgeCertificate("our own", now + absl::Hours(24 * 90), now).result, Result::kOk);
  EXPECT_EQ(JudgeCertificate("our own", now + absl::Hours(24 * 3), now).result, Result::kWarn);
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

}  // namespace
}  // namespace quire
