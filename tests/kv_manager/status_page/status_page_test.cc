// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/status_page/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "security/digest.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const HttpRequest kLocal{.is_local_user = true};
const HttpRequest kRemote{.is_local_user = false};

// A clock that advances by `tick_us` whenever somebody reads it, so what takes place between two readings takes a tick.
class TickingClock : public Clock {
 public:
  explicit TickingClock(int64_t tick_us) : tick_us_(tick_us) {}
  int64_t NowMicros() const override { return now_us_ += tick_us_; }
  void Advance(int64_t us) { now_us_ += us; }

 private:
  const int64_t tick_us_;
  mutable std::atomic<int64_t> now_us_{0};
};

// A page over an engine with one worker, "w", of 16 blocks of 4 tokens. Its clock advances only when a test says so.
class StatusPageTest : public ::testing::Test {
 protected:
  StatusPageTest()
      : engine_(
            StepLoopOptions(),
            {.make_client = [this](const std::string&) { return worker_.NewClient(); }, .on_readiness = [](bool) {}},
            &SteadyClock()) {
    engine_.SetWorkers({"w"});
    while (!engine_.status().workers[0]->is_ready) std::this_thread::yield();
    Open();
  }
  ~StatusPageTest() override { engine_.Stop(); }

  void Open(bool has_names = true, bool has_open_calls = true) {
    page_ = std::make_unique<StatusPage>(
        StatusPage::Environment{.engine = &engine_,
                                .request_names =
                                    [] {
                                      return absl::flat_hash_map<RequestId, std::string>{{RequestId{1}, "<b>one"}};
                                    },
                                .has_names = has_names,
                                .has_open_calls = has_open_calls,
                                .clock = &clock_});
  }

  // Starts a request of 10 prompt tokens, three blocks, and waits until it has them.
  void Begin() {
    worker_.HoldBack();
    Request request;
    request.id = RequestId{1};
    request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    request.generation = GenerationId{1};
    request.tenant = "blue";
    ASSERT_TRUE(engine_.Submit(request, std::make_shared<RecordingSink>()).ok());
    while (engine_.status().workers[0]->blocks.used < 3) std::this_thread::yield();
  }

  nlohmann::json Status(const HttpRequest& request = kLocal) {
    const HttpResponse response = page_->Status(request);
    EXPECT_EQ(response.code, 200) << response.body;
    EXPECT_EQ(response.content_type, "application/json");
    return nlohmann::json::parse(response.body);
  }
  HttpResponse Block(const std::string& worker, const std::string& block, bool is_local_user = true) {
    clock_.Advance(StatusPage::kMinBlockIntervalUs);
    return page_->Block({.parameters = {{"worker", worker}, {"block", block}}, .is_local_user = is_local_user});
  }

  FakeWorker worker_;
  ManualClock clock_;
  ManagerEngine engine_;
  std::unique_ptr<StatusPage> page_;
};

TEST_F(StatusPageTest, TheDocumentRunsOnlyItsOwnScriptAndStyle) {
  const HttpResponse page = page_->Page();
  ASSERT_EQ(page.headers.size(), 1u);
  const auto& [name, policy] = page.headers[0];
  EXPECT_EQ(name, "Content-Security-Policy");
  EXPECT_THAT(policy, StartsWith("default-src 'none'; "));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  for (const char* tag : {"script", "style"}) {
    const std::vector<std::string> parts = absl::StrSplit(page.body, absl::StrCat("<", tag, ">"));
    ASSERT_EQ(parts.size(), 2u) << "one " << tag << ", and without attributes";
    const std::string text = parts[1].substr(0, parts[1].find(absl::StrCat("</", tag, ">")));
    ASSERT_GT(text.size(), 1000u) << "the file is in its place";
    const auto digest = Sha256(text);
    const std::string hash = absl::Base64Escape({reinterpret_cast<const char*>(digest.data()), digest.size()});
    EXPECT_THAT(policy, HasSubstr(absl::StrCat(tag, "-src 'sha256-", hash, "';")));
  }
  for (const char* outside : {"http://", "https://", "innerHTML", "eval(", " style=", " onclick="}) {
    EXPECT_THAT(page.body, Not(HasSubstr(outside)));
  }
}

TEST_F(StatusPageTest, ALocalUserSeesSingleRequests) {
  Begin();
  const nlohmann::json status = Status();
  EXPECT_EQ(status["workers"][0]["map"]["counts"], nlohmann::json({13, 0, 3, 0, 0}));
  EXPECT_EQ(status["num_requests"], 1);
  ASSERT_EQ(status["requests"].size(), 1u);
  EXPECT_EQ(status["requests"][0]["id"], "<b>one");
  EXPECT_EQ(status["requests"][0]["tenant"], "blue");
  EXPECT_EQ(status["requests"][0]["blocks"], 3);
}

TEST_F(StatusPageTest, OthersSeeSumsAndTheMap) {
  Begin();
  ASSERT_EQ(Status()["requests"].size(), 1u) << "what was told to a local user is not told to others";
  const HttpResponse response = page_->Status(kRemote);
  EXPECT_THAT(response.body, Not(HasSubstr("one")));
  EXPECT_THAT(response.body, Not(HasSubstr("blue")));
  const auto status = nlohmann::json::parse(response.body);
  EXPECT_EQ(status["workers"][0]["map"]["counts"], nlohmann::json({13, 0, 3, 0, 0}));
  EXPECT_EQ(status["workers"][0]["running"], 1);
  EXPECT_THAT(status["why_no_names"].get<std::string>(), HasSubstr("127.0.0.1"));
  EXPECT_EQ(Block("w", "0", /*is_local_user=*/false).code, 403);
}

TEST_F(StatusPageTest, WhereCallersShowWhoTheyAreNobodySeesSingleRequests) {
  Open(/*has_names=*/true, /*has_open_calls=*/false);
  Begin();
  const HttpResponse response = page_->Status(kLocal);
  EXPECT_THAT(response.body, Not(HasSubstr("one")));
  EXPECT_THAT(response.body, Not(HasSubstr("blue")));
  EXPECT_EQ(nlohmann::json::parse(response.body)["workers"][0]["running"], 1);
  EXPECT_EQ(Block("w", "0").code, 403);
}

TEST_F(StatusPageTest, UnlessAskedForNamesNobodySeesSingleRequests) {
  Open(/*has_names=*/false);
  Begin();
  const HttpResponse response = page_->Status(kLocal);
  EXPECT_THAT(response.body, Not(HasSubstr("one")));
  EXPECT_THAT(response.body, Not(HasSubstr("blue")));
  const auto status = nlohmann::json::parse(response.body);
  EXPECT_EQ(status["workers"][0]["running"], 1);
  EXPECT_THAT(status["why_no_names"].get<std::string>(), HasSubstr("--status-page=names"));
  EXPECT_EQ(Block("w", "0").code, 403);
}

TEST_F(StatusPageTest, ABlockIsDescribedWithItsOwners) {
  Begin();
  const HttpResponse response = Block("w", "0");
  ASSERT_EQ(response.code, 200) << response.body;
  const auto block = nlohmann::json::parse(response.body);
  EXPECT_EQ(block["state"], static_cast<int>(BlockState::kUsed));
  EXPECT_EQ(block["owners"][0]["request"], "<b>one");
}

TEST_F(StatusPageTest, WhatIsNoBlockIsRefusedWithTheValueAndTheLimit) {
  EXPECT_EQ(Block("w", "16").body, "block is 16, the worker has 16 blocks\n");
  EXPECT_EQ(Block("w", "16").code, 404);
  EXPECT_EQ(Block("w", "-1").body, "block is '-1', it must be a number\n");
  EXPECT_EQ(Block("w", "-1").code, 400);
  EXPECT_EQ(Block("other", "0").code, 404);
  EXPECT_EQ(page_->Block(kLocal).body, "worker is missing: it is a worker's address\n");
}

TEST_F(StatusPageTest, BlocksAreNotDescribedFasterThanTheLimit) {
  EXPECT_EQ(Block("w", "0").code, 200);
  EXPECT_EQ(page_->Block({.parameters = {{"worker", "w"}, {"block", "0"}}, .is_local_user = true}).code, 429);
  EXPECT_EQ(Block("w", "0").code, 200);
}

TEST_F(StatusPageTest, HoweverManyLookTheStepLoopsAreAskedOnceInThePause) {
  EXPECT_EQ(page_->num_snapshots(), 0) << "nobody looks";
  page_->Page();
  EXPECT_EQ(page_->num_snapshots(), 0);
  const auto look_by_many = [this] {
    std::vector<std::thread> viewers;
    for (int i = 0; i < 20; ++i) {
      viewers.emplace_back([this, i] {
        const HttpResponse response = page_->Status(i % 2 == 0 ? kLocal : kRemote);
        EXPECT_TRUE(response.code == 200 || response.code == 503) << response.body;
      });
    }
    for (std::thread& viewer : viewers) viewer.join();
  };
  look_by_many();
  look_by_many();
  EXPECT_EQ(page_->num_snapshots(), 1);
  Begin();
  EXPECT_EQ(Status()["requests"].size(), 0u) << "what was seen is shown again";
  clock_.Advance(StatusPage::kMinPauseUs);
  EXPECT_EQ(Status()["requests"].size(), 1u);
  EXPECT_EQ(page_->num_snapshots(), 2);
}

TEST_F(StatusPageTest, APauseFollowsOf500TimesTheDurationOfASnapshotWithinItsBounds) {
  const std::pair<int64_t, int64_t> ticks_and_pauses_us[] = {
      {100, 500'000}, {2'000, 1'000'000}, {15'000, 7'500'000}, {100'000, 10'000'000}};
  for (const auto& [tick_us, pause_us] : ticks_and_pauses_us) {
    TickingClock clock(tick_us);
    StatusPage page({.engine = &engine_, .request_names = nullptr, .clock = &clock});
    page.Status(kLocal);
    EXPECT_EQ(page.num_snapshots(), 1);
    clock.Advance(pause_us - 10 * tick_us);
    page.Status(kLocal);
    EXPECT_EQ(page.num_snapshots(), 1) << tick_us;
    clock.Advance(10 * tick_us);
    page.Status(kLocal);
    EXPECT_EQ(page.num_snapshots(), 2) << tick_us;
  }
}

TEST_F(StatusPageTest, TellsHowOldItIs) {
  const auto age = [this] {
    const HttpResponse response = page_->Status(kLocal);
    for (const auto& [name, value] : response.headers) {
      if (name == "Age") return value;
    }
    return std::string("none");
  };
  EXPECT_EQ(age(), "0");
  // The worker's step loop is blocked, so the page shows the last snapshot.
  std::atomic<bool> is_held_up = true;
  std::atomic<bool> has_gone_on = false;
  engine_.AskWorker(
      "w",
      [&](const LoopView&) {
        while (is_held_up) std::this_thread::yield();
      },
      [&](const absl::Status&) { has_gone_on = true; });
  clock_.Advance(20'000'000);
  EXPECT_EQ(age(), "20");
  is_held_up = false;
  while (!has_gone_on) std::this_thread::yield();
}

TEST_F(StatusPageTest, WithoutWorkersThereIsStillAStatus) {
  ManagerEngine engine(StepLoopOptions(), {.make_client = nullptr, .on_readiness = [](bool) {}}, &SteadyClock());
  StatusPage page({.engine = &engine, .request_names = nullptr, .has_open_calls = false});
  const HttpResponse response = page.Status(kLocal);
  EXPECT_EQ(response.code, 200);
  EXPECT_EQ(nlohmann::json::parse(response.body)["num_workers"], 0);
}

TEST_F(StatusPageTest, AfterTheEndThereIsStillAnAnswer) {
  engine_.Stop();
  EXPECT_EQ(Status()["num_workers"], 0);
  EXPECT_EQ(Block("w", "0").code, 503);
}

}  // namespace
}  // namespace quire
