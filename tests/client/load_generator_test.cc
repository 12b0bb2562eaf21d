#include "client/load/load_generator.h"

#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "base/check.h"
#include "client/load/progress_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Serves one request at a time: a call takes `kServiceMs`, and half its tokens come at its end. Every third call is
// refused when told so. With `hangs` no call ends before it is cancelled.
class SlowService : public v1::InferenceService::Service {
 public:
  static constexpr int kServiceMs = 20;

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    while (hangs && !context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (refuses_third && ++num_calls_ % 3 == 0) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    const std::lock_guard lock(mutex_);
    v1::GenerateResponse response;
    response.add_token_ids(1);
    writer->Write(response);
    std::this_thread::sleep_for(std::chrono::milliseconds(kServiceMs));
    response.mutable_usage()->set_prompt_tokens(request->token_ids().ids_size());
    response.mutable_usage()->set_cached_tokens(3);
    writer->Write(response);
    return grpc::Status::OK;
  }

  std::atomic<bool> refuses_third = false;
  std::atomic<bool> hangs = false;

 private:
  std::mutex mutex_;
  std::atomic<int> num_calls_ = 0;
};

class LoadGeneratorTest : public testing::Test {
 protected:
  LoadGeneratorTest() {
    char directory[] = "/tmp/quire-load.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + directory_ + "/socket", grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    client_ = std::make_unique<Client>(ClientOptions{.endpoint = "unix:" + directory_ + "/socket"});
  }
  ~LoadGeneratorTest() override {
    server_->Shutdown();
    std::filesystem::remove_all(directory_);
  }

  LoadReport Run(const LoadOptions& options, const LoadShape& shape = {.input = *ParseLengths("10")}) {
    absl::StatusOr<LoadPlan> plan = LoadPlan::Make(shape, 100, 1000);
    QUIRE_CHECK(plan.ok()) << plan.status();
    return LoadGenerator(client_.get(), options).Run(&*plan);
  }

  SlowService service_;
  std::string directory_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(LoadGeneratorTest, TokensAndTimesOfEveryRequestAreCounted) {
  LoadOptions options = {.max_requests = 5};
  options.service_level = *ParseServiceLevel("ttft:1h,itl:1ms");
  const LoadReport report = Run(options);
  EXPECT_EQ(report.num_completed, 5);
  EXPECT_EQ(report.input_tokens, 50);
  EXPECT_EQ(report.output_tokens, 10);
  EXPECT_EQ(report.cached_tokens, 15);
  EXPECT_EQ(report.max_in_flight, 5);
  EXPECT_EQ(report.itl_ms.size(), 5);
  EXPECT_GE(report.itl_ms.Quantile(0), 0.8 * SlowService::kServiceMs);
  EXPECT_EQ(report.num_good, 0) << "every gap is longer";
  // One after the other: the last one has waited for all.
  EXPECT_GE(report.e2el_ms.Max(), 5 * SlowService::kServiceMs);
  EXPECT_EQ(report.lag_ms.size(), 5);
  EXPECT_EQ(report.held_ms.size(), 0);
}

// The server does nothing else, and yet a request which may not be sent before others have ended has waited for them.
TEST_F(LoadGeneratorTest, WhatMaxInFlightHoldsBackHasWaited) {
  const LoadReport report = Run({.max_requests = 5, .max_in_flight = 1});
  EXPECT_EQ(report.max_in_flight, 1);
  EXPECT_EQ(report.held_ms.size(), 4);
  EXPECT_GE(report.ttft_ms.Max(), 4 * SlowService::kServiceMs);
  EXPECT_THAT(ToText(report), HasSubstr("--max-in-flight held 4 requests back"));
}

TEST_F(LoadGeneratorTest, CallersOfAClosedLoopWaitForTheirOwnAnswerAlone) {
  const LoadReport report = Run({.max_requests = 6, .concurrency = 2});
  EXPECT_EQ(report.num_completed, 6);
  EXPECT_EQ(report.max_in_flight, 2);
  EXPECT_EQ(report.held_ms.size(), 0);
  EXPECT_GE(report.duration_s, 6 * SlowService::kServiceMs / 1000.0);
}

TEST_F(LoadGeneratorTest, FailuresAreCountedByTheirCode) {
  service_.refuses_third = true;
  const LoadReport report = Run({.max_requests = 9, .concurrency = 3});
  EXPECT_EQ(report.num_completed, 6);
  EXPECT_EQ(report.num_failed(), 3);
  EXPECT_EQ(report.failures.at(absl::StatusCode::kResourceExhausted), 3);
  EXPECT_EQ(report.first_error.message(), "full");
  EXPECT_EQ(ToJson(report)["failed_by_code"]["resource_exhausted"], 3);
  EXPECT_THAT(ToText(report), HasSubstr("  resource_exhausted:  "));
}

TEST_F(LoadGeneratorTest, AStopCancelsWhatRunsAndKeepsWhatWasMeasured) {
  service_.hangs = true;
  absl::StatusOr<LoadPlan> plan = LoadPlan::Make({.rate = 100}, 100, 1000);
  ASSERT_TRUE(plan.ok());
  LoadGenerator* running = nullptr;
  LoadOptions options;
  options.progress_interval = absl::Milliseconds(1);
  options.on_progress = [&](const LoadProgress& now) {
    if (now.num_sent >= 3) running->Stop();
  };
  LoadGenerator generator(client_.get(), options);
  running = &generator;
  const LoadReport report = generator.Run(&*plan);
  EXPECT_GE(report.num_sent, 3);
  EXPECT_EQ(report.num_cancelled, report.num_sent);
  EXPECT_EQ(report.num_failed(), 0);
}

TEST_F(LoadGeneratorTest, NothingIsSentAfterItsDuration) {
  const LoadReport report = Run({.duration = absl::Milliseconds(50), .concurrency = 1});
  EXPECT_GE(report.num_completed, 1);
  EXPECT_LE(report.num_completed, 50 / SlowService::kServiceMs + 1);
}

TEST(ServiceLevelTest, TimesHaveUnits) {
  const absl::StatusOr<ServiceLevel> level = ParseServiceLevel("ttft:500ms,e2el:2s,tpot:40");
  ASSERT_TRUE(level.ok());
  EXPECT_EQ(level->ttft_ms, 500);
  EXPECT_EQ(level->e2el_ms, 2000);
  EXPECT_EQ(level->tpot_ms, 40);
  EXPECT_FALSE(level->itl_ms.has_value());
  for (const char* wrong : {"", "ttft", "ttft:", "ttft:-5ms", "latency:5ms", "ttft:5 apples"}) {
    EXPECT_FALSE(ParseServiceLevel(wrong).ok()) << wrong;
  }
}

TEST(ProgressLineTest, ABarShowsWhatIsNearerToItsEnd) {
  const LoadProgress before = {.elapsed_s = 9, .output_tokens = 100};
  const LoadProgress now = {.elapsed_s = 10, .num_sent = 30, .num_ended = 25, .output_tokens = 400, .num_in_flight = 5};
  EXPECT_EQ(DescribeProgress(before, now, {.num_requests = 100}),
            "25 of 100 requests, 5 in flight, 300 tokens/s, 10 s");
  EXPECT_EQ(DrawProgress(before, now, {.num_requests = 100, .duration_s = 20}, 46),
            "[############------------]  50 % 25 of 100 req");
}

TEST(LoadReportTest, ALateGeneratorSaysSo) {
  LoadReport report;
  for (int i = 0; i < 98; ++i) report.lag_ms.Add(1);
  report.lag_ms.Add(200);
  EXPECT_FALSE(LoadReport().could_not_keep_up());
  EXPECT_TRUE(report.could_not_keep_up());
  EXPECT_THAT(ToText(report), HasSubstr("could not keep up"));
}

}  // namespace
}  // namespace quire
