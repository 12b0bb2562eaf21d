// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_ENGINE_STEP_LOOP_HARNESS_H_
#define QUIRE_TESTS_KV_MANAGER_ENGINE_STEP_LOOP_HARNESS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/step_loop.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"

namespace quire {

inline constexpr int64_t kMillisecond = 1000;
inline constexpr int64_t kSecond = 1'000'000;

// A loop without a thread, with a clock that does not advance by itself, and a worker of 16 blocks of 4 tokens.
class StepLoopTest : public ::testing::Test {
 protected:
  static StepLoopOptions Options() {
    StepLoopOptions options;
    options.address = "worker:1";
    options.scheduler.max_plans_in_flight = 1;
    options.scheduler.watermark = 0;
    options.link.first_epoch = 100;
    return options;
  }

  void Make(const StepLoopOptions& options = Options()) {
    loop_ = std::make_unique<StepLoop>(
        options, worker_.NewClient(),
        StepLoopHooks{.admit_worker = [this](const WorkerDescription&) { return admission_; },
                      .on_change =
                          [this] {
                            ++num_changes_;
                            if (on_change_) on_change_();
                          }},
        &clock_);
  }
  void Join(const StepLoopOptions& options = Options()) {
    Make(options);
    Run();
    ASSERT_TRUE(loop_->status()->is_ready);
  }

  // Runs rounds until nothing is left to do now. Returns the time at which the loop wants to wake up.
  int64_t Run() {
    int64_t wake_us = loop_->RunOnce();
    for (int i = 0; i < 300; ++i) wake_us = loop_->RunOnce();
    return wake_us;
  }
  int64_t Advance(int64_t us) {
    clock_.Advance(us);
    return Run();
  }

  Request MakeRequest(int prompt_length, int max_tokens) {
    Request request;
    request.id = RequestId{++last_id_};
    for (int i = 1; i <= prompt_length; ++i) request.prompt.push_back(i);
    request.max_tokens = max_tokens;
    request.sampling.seed = last_id_;
    request.arrival_us = clock_.NowMicros();
    return request;
  }
  std::shared_ptr<RecordingSink> Submit(const Request& request) {
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(Submit(request, sink).ok());
    return sink;
  }
  absl::Status Submit(const Request& request, std::shared_ptr<RequestSink> sink) {
    PromptHashes hashes(request.cache_salt, request.prompt);
    return loop_->Submit(request, std::move(sink), &hashes);
  }
  int used_blocks() const { return loop_->status()->blocks.used; }

  ManualClock clock_;
  FakeWorker worker_;
  absl::StatusOr<GenerationId> admission_ = GenerationId{0};
  int num_changes_ = 0;
  std::function<void()> on_change_;
  uint64_t last_id_ = 0;
  std::unique_ptr<StepLoop> loop_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_ENGINE_STEP_LOOP_HARNESS_H_
