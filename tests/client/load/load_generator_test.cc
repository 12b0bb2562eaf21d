// SPDX-License-Identifier: Apache-2.0

#include "client/load/load_generator.h"

#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "client/load/free_places.h"
#include "client/load/progress_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Answers every call with two responses of one token each, after a given number of calls have come. A cancelled call
// ends. Refuses every third call if it is told to.
class GatedService : public v1::InferenceService::Service {
 public:
  static constexpr int kNever = 1 << 30;

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    const int number = ++num_calls_;
    while (num_calls_ < opens_at && !context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (refuses_third && number % 3 == 0) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    v1::GenerateResponse response;
    response.add_token_ids(1);
    response.set_index(index);
    writer->Write(response);
    response.set_position(1);
    response.mutable_usage()->set_prompt_tokens(request->token_ids().ids_size());
    response.mutable_usage()->set_cached_tokens(3);
    writer->Write(response);
    return grpc::Status::OK;
  }

  std::atomic<int> opens_at = 0;
  std::atomic<bool> refuses_third = false;
  std::atomic<uint32_t> index = 0;

 private:
  std::atomic<int> num_calls_ = 0;
};

// A clock that advances by a millisecond at every look.
class TickingClock {
 public:
  std::chrono::steady_clock::time_point Now() { return begin_ + std::chrono::milliseconds(++num_looks_); }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::atomic<int> num_looks_ = 0;
};

class LoadGeneratorTest : public testing::Test {
 protected:
  LoadGeneratorTest() {
    char directory[] = "/tmp/quire-load.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + directory_ + "/socket", grpc::InsecureServerCredentials());
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    for (int i = 0; i < 2; ++i) {
      clients_.push_back(std::make_unique<Client>(ClientOptions{.endpoint = "unix:" + directory_ + "/socket"}));
      borrowed_.push_back(clients_.back().get());
    }
  }
  ~LoadGeneratorTest() override {
    server_->Shutdown();
    std::filesystem::remove_all(directory_);
  }

  LoadReport Run(const LoadOptions& options, const LoadShape& shape = {.input = *ParseLengths("10")}) {
    absl::StatusOr<LoadPlan> plan = LoadPlan::Make(shape, 100, 1000);
    QUIRE_CHECK(plan.ok()) << plan.status();
    return LoadGenerator(borrowed_, options).Run(&*plan);
  }

  static constexpr int kMaxStreams = 5;  // The server's limit of calls on a connection.

  GatedService service_;
  TickingClock clock_;
  std::string directory_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Client*> borrowed_;
};

TEST_F(LoadGeneratorTest, TokensAndTimesOfEveryRequestAreCounted) {
  service_.opens_at = 5;
  LoadOptions options = {.max_requests = 5};
  options.service_level = *ParseServiceLevel("ttft:1h,itl:0.5ms");
  options.now = [&] { return clock_.Now(); };
  const LoadReport report = Run(options);
  EXPECT_EQ(report.num_completed, 5);
  EXPECT_EQ(report.input_tokens, 50);
  EXPECT_EQ(report.output_tokens, 10);
  EXPECT_EQ(report.cached_tokens, 15);
  EXPECT_EQ(report.max_in_flight, 5);
  EXPECT_EQ(report.itl_ms.size(), 5);
  EXPECT_GE(report.itl_ms.Quantile(0), 1);
  EXPECT_EQ(report.num_good, 0) << "every gap is longer";
  EXPECT_GE(report.ttft_ms.Quantile(0), 5) << "all were sent before";
  EXPECT_GE(report.e2el_ms.Quantile(0), report.ttft_ms.Quantile(0) + 1);
  EXPECT_EQ(report.lag_ms.size(), 5);
  EXPECT_EQ(report.held_ms.size(), 0);
}

// The server is idle, but a request that must not be sent before others have ended waits for them, and that wait
// counts.
TEST_F(LoadGeneratorTest, WhatMaxInFlightHoldsBackHasWaited) {
  LoadOptions options = {.max_requests = 5, .max_in_flight = 1};
  options.now = [&] { return clock_.Now(); };
  const LoadReport report = Run(options);
  EXPECT_EQ(report.max_in_flight, 1);
  EXPECT_EQ(report.held_ms.size(), 4);
  EXPECT_GE(report.held_ms.Max(), 4 * 4) << "each of those before was sent, had two tokens and ended";
  EXPECT_GT(report.ttft_ms.Max(), report.held_ms.Max());
  EXPECT_THAT(ToText(report), HasSubstr("--max-in-flight held 4 requests back"));
}

TEST_F(LoadGeneratorTest, CallersOfAClosedLoopWaitForTheirOwnAnswerAlone) {
  service_.opens_at = 2;
  const LoadReport report = Run({.max_requests = 6, .concurrency = 2});
  EXPECT_EQ(report.num_completed, 6);
  EXPECT_EQ(report.max_in_flight, 2);
  EXPECT_EQ(report.held_ms.size(), 0);
}

TEST_F(LoadGeneratorTest, CallersBeyondAConnectionsLimitHaveAnotherOne) {
  service_.opens_at = 2 * kMaxStreams;
  LoadOptions options = {.max_requests = 2 * kMaxStreams, .concurrency = 2 * kMaxStreams};
  options.timeout = absl::Seconds(30);
  options.max_calls_per_client = kMaxStreams;
  EXPECT_EQ(options.num_clients(), 2);
  EXPECT_EQ(Run(options).num_completed, 2 * kMaxStreams) << "all have come before the first one was answered";
}

TEST_F(LoadGeneratorTest, ASampleBeyondTheRequestsOwnIsAnError) {
  service_.index = 4'000'000'000;
  const LoadReport report = Run({.max_requests = 1});
  EXPECT_EQ(report.failures.at(absl::StatusCode::kInternal), 1);
  EXPECT_EQ(report.first_error.message(), "a response is of sample 4000000000, the request has 1");
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
  service_.opens_at = GatedService::kNever;
  absl::StatusOr<LoadPlan> plan = LoadPlan::Make({.rate = 100}, 100, 1000);
  ASSERT_TRUE(plan.ok());
  LoadGenerator* running = nullptr;
  LoadOptions options;
  options.progress_interval = absl::Milliseconds(1);
  options.on_progress = [&](const LoadTestProgress& now) {
    if (now.num_sent >= 3) running->Stop();
  };
  LoadGenerator generator(borrowed_, options);
  running = &generator;
  const LoadReport report = generator.Run(&*plan);
  EXPECT_GE(report.num_sent, 3);
  EXPECT_EQ(report.num_cancelled, report.num_sent);
  EXPECT_EQ(report.num_failed(), 0);
}

TEST_F(LoadGeneratorTest, NothingIsSentAfterItsDuration) {
  LoadOptions options = {.duration = absl::Milliseconds(50), .concurrency = 1};
  options.now = [&] { return clock_.Now(); };
  const LoadReport report = Run(options);
  EXPECT_GE(report.num_completed, 1);
  EXPECT_LE(report.num_completed, 10) << "each has to be sent, have two tokens and end";
  EXPECT_EQ(report.num_unsent, 0);
}

TEST_F(LoadGeneratorTest, NothingIsSentAfterTheDurationOfAnOpenLoopThatIsHeldBack) {
  service_.opens_at = GatedService::kNever;
  LoadOptions options = {.max_requests = 5, .duration = absl::Milliseconds(50), .max_in_flight = 1};
  options.progress_interval = absl::Milliseconds(1);
  options.on_progress = [&](const LoadTestProgress& now) {
    if (now.elapsed_s > 0.05) service_.opens_at = 0;
  };
  const LoadReport report = Run(options);
  EXPECT_LE(report.num_sent, 1);
  EXPECT_EQ(report.num_sent + report.num_unsent, 5);
  EXPECT_EQ(ToJson(report)["unsent"], report.num_unsent);
  EXPECT_THAT(ToText(report), HasSubstr("not sent before --duration was over"));
}

TEST(FreePlacesTest, ARequestTakesTheOneThatHasBeenFreeForTheLongest) {
  const auto at = [](int ms) { return FreePlaces::TimePoint(std::chrono::milliseconds(ms)); };
  FreePlaces places(2, at(0));
  EXPECT_EQ(places.Take(), at(0));
  EXPECT_EQ(places.Take(), at(0));
  EXPECT_FALSE(places.any());
  places.Return(at(10));
  places.Return(at(30));
  EXPECT_EQ(places.Take(), at(10)) << "not when another caller's request has ended";
  EXPECT_EQ(places.Take(), at(30));
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
  const LoadTestProgress before = {.elapsed_s = 9, .output_tokens = 100};
  const LoadTestProgress now = {
      .elapsed_s = 10, .num_sent = 30, .num_ended = 25, .output_tokens = 400, .num_in_flight = 5};
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
