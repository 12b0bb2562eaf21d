// SPDX-License-Identifier: Apache-2.0

// A loop in whose first session the worker has rows of another manager.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_reason.h"
#include "kv_manager/worker_link/row_record.h"
#include "kv_manager/worker_link/worker_inventory.h"
#include "scheduler/scheduler.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

constexpr RequestId kRequest{5};
constexpr TokenId kEndToken = 11;

// Calls a function of the test for each token.
class HookedSink : public RequestSink {
 public:
  void OnStarted(int /*num_cached_tokens*/) override {}
  void OnPromptLogprobs(int /*first_position*/, std::vector<ScoredToken> /*tokens*/) override {}
  void OnToken(int sample_index, int /*position*/, ScoredToken /*token*/) override {
    if (on_token != nullptr) on_token(sample_index);
  }
  void OnPinned(std::vector<int> num_tokens) override { pinned_tokens = std::move(num_tokens); }
  void OnNumericsChanged(int sample_index, int position) override { changes.emplace_back(sample_index, position); }
  void OnFinished(const Finished& /*finished*/) override { ++num_finished; }
  void OnFailed(absl::Status status) override { failure = std::move(status); }

  std::function<void(int)> on_token;
  std::vector<std::pair<int, int>> changes;  // What OnNumericsChanged was told.
  std::vector<int> pinned_tokens;
  absl::Status failure;
  int num_finished = 0;
};

class StopAtToken : public StopCondition {
 public:
  explicit StopAtToken(TokenId token) : token_(token) {}
  int num_tokens_needed() const override { return 1; }
  bool IsMet(absl::Span<const TokenId> last_tokens, int /*num_tokens*/) const override {
    return last_tokens.back() == token_;
  }

 private:
  const TokenId token_;
};

// What the client of a worker with rows does. Plans are answered by Answer().
struct KeptRows {
  WorkerInventory inventory;
  std::deque<absl::Status> failures;  // Of the next attempts to open a session.
  std::vector<bool> adopts;           // Of each attempt.
  std::vector<StepPlan> plans;
  WorkerClient::Listener* listener = nullptr;
  uint64_t epoch = 0;

  void Answer(const StepPlan& plan) {
    StepResult result{.step = plan.step, .slices = {}};
    for (const SequenceSlice& slice : plan.slices) {
      SliceResult& answer = result.slices.emplace_back();
      answer.sampled = slice.sample;
      answer.token.token = slice.sample ? 7 : 0;
    }
    listener->OnResult(epoch, result, /*duration_us=*/1);
  }
};

class KeepingClient : public WorkerClient {
 public:
  explicit KeepingClient(KeptRows* kept) : kept_(kept) {}

  void SetListener(Listener* listener) override { kept_->listener = listener; }
  void Describe(uint64_t epoch) override {
    WorkerDescription worker = SmallWorker();
    worker.keeps_rows = true;
    kept_->listener->OnDescribed(epoch, std::move(worker));
  }
  void Open(uint64_t epoch, bool adopts) override {
    kept_->adopts.push_back(adopts);
    kept_->epoch = epoch;
    if (kept_->failures.empty()) {
      kept_->listener->OnOpened(epoch, adopts ? std::make_unique<WorkerInventory>(kept_->inventory) : nullptr);
      return;
    }
    kept_->listener->OnLost(epoch, kept_->failures.front());
    kept_->failures.pop_front();
  }
  void Refuse(const std::string& /*reason*/) override {}
  void Send(const StepPlan& plan) override { kept_->plans.push_back(plan); }
  void Probe(uint64_t epoch) override { kept_->listener->OnProbed(epoch); }
  void Close() override {}

 private:
  KeptRows* const kept_;
};

class AdoptionTest : public StepLoopTest {
 protected:
  // Two samples of one request, with one token each.
  AdoptionTest() {
    for (uint32_t i = 0; i < 2; ++i) {
      WorkerInventory::Row row;
      row.row = RowId{i};
      row.sequence = SequenceId{i + 1};
      row.sample_index = i;
      row.prompt_length = 3;
      row.tokens = {1, 2, 3, static_cast<TokenId>(4 + i)};
      kept_.inventory.rows.push_back(row);
      SetChange(i, std::nullopt);
    }
  }

  // What the record of a row tells.
  void SetChange(int row, std::optional<NumericsChange> change) {
    SequenceStart start{};
    start.record = std::make_shared<const std::string>("record");
    start.numerics_change = change;
    kept_.inventory.rows[row].record = RowRecordOf(start);
  }

  // What becomes of the request when the worker has lost the row of its second sample.
  void AdoptWithoutTheSecondRow() {
    kept_.inventory.rows.pop_back();
    MakeAdopting();
    Run();
  }

  void MakeAdopting() {
    StepLoopOptions options = Options();
    options.scheduler.keeps_rows = true;
    options.scheduler.max_plans_in_flight = 2;
    options.link.adopts = true;
    loop_ = std::make_unique<StepLoop>(
        options, std::make_unique<KeepingClient>(&kept_),
        StepLoopHooks{.admit_worker = [](const WorkerDescription&) { return GenerationId{0}; },
                      .on_change = [] {},
                      .restore_request = [this](const RequestToRestore& found) -> absl::StatusOr<RequestRestored> {
                        return restore_ == nullptr ? Restore(found) : restore_(found);
                      }},
        &clock_);
  }

  RequestRestored Restore(const RequestToRestore& found) {
    RequestRestored restored{.request = {}, .sink = sink_, .has_ended = nullptr};
    restored.request.id = kRequest;
    restored.request.prompt.assign(found.prompt.begin(), found.prompt.end());
    restored.request.max_tokens = 9;
    restored.request.num_samples = 2;
    restored.keep = keep_;
    return restored;
  }

  int NumSamples() {
    int num_samples = 0;
    EXPECT_TRUE(loop_
                    ->Ask([&](const LoopView& view) {
                      const SequenceGroup* const group = view.scheduler->FindGroup(kRequest);
                      num_samples = group == nullptr ? 0 : group->num_sequences();
                    })
                    .ok());
    loop_->RunOnce();
    return num_samples;
  }

  KeptRows kept_;
  RestoreRequestHook restore_;  // Called instead of Restore, if it is set.
  std::function<absl::Status(const RestoredCopy&)> keep_;
  std::shared_ptr<HookedSink> sink_ = std::make_shared<HookedSink>();
};

TEST_F(AdoptionTest, TheRowsOfAllSamplesCountAsLoad) {
  MakeAdopting();
  Run();
  EXPECT_EQ(NumSamples(), 2);
  EXPECT_EQ(loop_->load().num_rows, 2);
}

TEST_F(AdoptionTest, TheStreamIsToldHowFarItsWorkerHasComeBeforeItsTokens) {
  SequenceStart start{};
  start.record = std::make_shared<const std::string>("record");
  start.num_moves = 3;
  kept_.inventory.rows[1].record = RowRecordOf(start);
  kept_.inventory.rows[1].tokens = {1, 2, 3, 5, 6};
  std::optional<RestoredCopy> copy;
  bool has_token = false;
  sink_->on_token = [&](int) { has_token = true; };
  keep_ = [&](const RestoredCopy& told) {
    EXPECT_FALSE(has_token);
    copy = told;
    return absl::OkStatus();
  };
  MakeAdopting();
  Run();
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->num_moves, 3);
  EXPECT_EQ(copy->num_tokens, std::vector<int>({1, 2}));
  EXPECT_FALSE(copy->is_over);
  EXPECT_EQ(NumSamples(), 2);
}

// Another worker has come farther with the request.
TEST_F(AdoptionTest, TheRowsOfACopyThatIsNotKeptEnd) {
  keep_ = [](const RestoredCopy&) { return absl::AlreadyExistsError("another worker has the request"); };
  MakeAdopting();
  Run();
  EXPECT_EQ(NumSamples(), 0);
  Request request;
  request.id = RequestId{99};
  request.prompt = {1};
  request.max_tokens = 2;
  Submit(request);
  Run();
  EXPECT_EQ(kept_.plans.at(0).end_rows, std::vector<RowId>({RowId{0}, RowId{1}}));
}

TEST_F(AdoptionTest, ARestoredRequestCountsLikeOneThatWasSubmitted) {
  SequenceStart start{};
  start.record = std::make_shared<const std::string>("record");
  start.num_cached_tokens = 2;
  kept_.inventory.rows.pop_back();
  kept_.inventory.rows[0].record = RowRecordOf(start);
  kept_.inventory.rows[0].tokens = {1, 2, 3};
  restore_ = [this](const RequestToRestore& found) {
    RequestRestored restored = Restore(found);
    restored.request.num_samples = 1;
    restored.request.max_tokens = 1;
    restored.request.is_prompt_only = true;
    return restored;
  };
  MakeAdopting();
  Run();
  ASSERT_EQ(kept_.plans.size(), 1u);
  kept_.Answer(kept_.plans[0]);
  Run();
  const StepLoopStats& stats = loop_->status()->stats;
  EXPECT_EQ(stats.finished[static_cast<int>(FinishReason::kLength)], 1);
  EXPECT_EQ(stats.generated_tokens, 0) << "only the prompt was wanted";
  EXPECT_DOUBLE_EQ(stats.request_computed_tokens.sum(), 1) << "two of three tokens were in the cache";
}

TEST_F(AdoptionTest, TheNextTokenMakesThePinsAgain) {
  kept_.inventory.rows.pop_back();
  kept_.inventory.rows[0].prompt_length = 9;
  kept_.inventory.rows[0].tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 4};
  restore_ = [this](const RequestToRestore& found) {
    RequestRestored restored = Restore(found);
    restored.request.num_samples = 1;
    restored.request.pins = {{.num_tokens = 8, .ttl_us = kSecond}};
    return restored;
  };
  MakeAdopting();
  Run();
  EXPECT_EQ(loop_->status()->blocks.pinned, 0);
  kept_.Answer(kept_.plans.at(0));
  Run();
  EXPECT_EQ(sink_->pinned_tokens, std::vector<int>({8}));
  EXPECT_EQ(loop_->status()->blocks.pinned, 2);
}

// The text thread of a stream may find a stop string before the loop has adopted the request.
TEST_F(AdoptionTest, ASampleThatItsStreamEndsWhileItIsToldEnds) {
  sink_->on_token = [this](int sample_index) {
    if (sample_index == 0) loop_->CancelSample(kRequest, 0);
  };
  MakeAdopting();
  Run();
  EXPECT_EQ(NumSamples(), 1);
}

// The hook says so of a request whose stream nobody can resume any more.
TEST_F(AdoptionTest, TheRowsOfARequestThatIsForgottenEndAndItIsNoRestoredOne) {
  for (WorkerInventory::Row& row : kept_.inventory.rows) {
    row.tokens.push_back(kEndToken);
    row.idle_us = Value(row.row) == 0 ? 7 : 5;
  }
  restore_ = [](const RequestToRestore& found) -> absl::StatusOr<RequestRestored> {
    EXPECT_EQ(found.idle_us, 5) << "the time since the last sample has ended";
    Request request;
    request.num_samples = 2;
    request.max_tokens = 9;
    EXPECT_FALSE(found.is_over(request, nullptr));
    request.stop_token_ids = {kEndToken};
    EXPECT_TRUE(found.is_over(request, nullptr));
    request.stop_token_ids = {4};
    EXPECT_FALSE(found.is_over(request, nullptr)) << "only one sample has ended";
    const StopAtToken stop(kEndToken);
    EXPECT_TRUE(found.is_over(request, &stop));
    return absl::DeadlineExceededError("too old");
  };
  MakeAdopting();
  Run();
  EXPECT_EQ(NumSamples(), 0);
  EXPECT_EQ(kept_.plans.at(0).end_rows, std::vector<RowId>({RowId{0}, RowId{1}}));
  EXPECT_EQ(loop_->status()->stats.restored_requests, 0);
}

TEST_F(AdoptionTest, ARequestThatHadEndedByAStopStringKeepsItsRowsAndRunsNoMore) {
  restore_ = [this](const RequestToRestore& found) -> absl::StatusOr<RequestRestored> {
    RequestRestored restored = Restore(found);
    restored.is_over = true;
    return restored;
  };
  MakeAdopting();
  Run();
  EXPECT_EQ(NumSamples(), 0);
  EXPECT_EQ(sink_->num_finished, 2);
  EXPECT_TRUE(kept_.plans.empty());
  EXPECT_EQ(loop_->status()->stats.restored_requests, 0) << "it does not continue";

  sink_->num_finished = 0;
  restore_ = nullptr;
  MakeAdopting();
  Run();
  EXPECT_EQ(sink_->num_finished, 0);
  EXPECT_EQ(loop_->status()->stats.restored_requests, 1);
}

// After a stop string, the client may still have to hear of the end from the next manager.
TEST_F(AdoptionTest, OnlyARequestThatWasCancelledLosesItsRows) {
  const auto end_rows_after = [this](const std::function<void()>& end) {
    kept_.plans.clear();
    MakeAdopting();
    Run();
    end();
    Run();
    EXPECT_EQ(NumSamples(), 0);
    // This makes room for another plan.
    kept_.Answer(kept_.plans.at(0));
    Run();
    std::vector<RowId> end_rows;
    for (const StepPlan& plan : kept_.plans)
      end_rows.insert(end_rows.end(), plan.end_rows.begin(), plan.end_rows.end());
    return end_rows;
  };
  EXPECT_EQ(end_rows_after([this] { loop_->Cancel(kRequest, FinishReason::kCancelled); }),
            std::vector<RowId>({RowId{0}, RowId{1}}));
  EXPECT_EQ(end_rows_after([this] { loop_->Cancel(kRequest, FinishReason::kStopToken); }), std::vector<RowId>());
  EXPECT_EQ(end_rows_after([this] {
              for (const int sample : {0, 1}) loop_->CancelSample(kRequest, sample);
            }),
            std::vector<RowId>());
}

TEST_F(AdoptionTest, AConnectionThatBreaksBeforeTheSessionIsOpenDoesNotCostTheRows) {
  kept_.failures = {absl::UnavailableError("the connection is broken"), absl::DeadlineExceededError("too slow")};
  MakeAdopting();
  Run();
  EXPECT_FALSE(loop_->load().has_tried) << "clients wait for the rows";
  Advance(10 * kSecond);
  Advance(10 * kSecond);
  EXPECT_EQ(kept_.adopts, std::vector<bool>({true, true, true}));
  EXPECT_EQ(NumSamples(), 2);
}

// Another manager has opened a session with the epoch of this one, and the worker has kept everything.
TEST_F(AdoptionTest, ASessionThatTheWorkerRefusesDoesNotCostTheRows) {
  kept_.failures.assign(4, absl::FailedPreconditionError("epoch is 100, it must be greater than the last one seen"));
  MakeAdopting();
  Run();
  EXPECT_FALSE(loop_->load().has_tried);
  for (int i = 0; i < 2; ++i) Advance(10 * kSecond);
  EXPECT_TRUE(loop_->load().has_tried) << "clients do not wait for it for ever";
  for (int i = 0; i < 2; ++i) Advance(10 * kSecond);
  EXPECT_EQ(kept_.adopts, std::vector<bool>({true, true, true, true, true}));
  EXPECT_EQ(NumSamples(), 2);
}

TEST_F(AdoptionTest, AnInventoryThatWasWrongOrNeverComesIsNotAskedForAgain) {
  kept_.failures = {absl::InternalError("the worker's inventory is wrong")};
  MakeAdopting();
  Run();
  EXPECT_TRUE(loop_->load().has_tried);
  Advance(10 * kSecond);
  EXPECT_EQ(kept_.adopts, std::vector<bool>({true, false}));

  kept_.adopts.clear();
  kept_.failures.assign(3, absl::UnavailableError("the connection is broken"));
  MakeAdopting();
  for (int i = 0; i < 4; ++i) Advance(10 * kSecond);
  EXPECT_EQ(kept_.adopts, std::vector<bool>({true, true, true, false}));
}

TEST_F(AdoptionTest, TheStreamIsToldAgainWhereTheNumericsHaveChanged) {
  SetChange(0, NumericsChange{.first = 3, .last = 4});
  SetChange(1, NumericsChange{.first = 4, .last = 4});
  sink_->on_token = [this](int sample_index) {
    EXPECT_EQ(sink_->changes.size(), static_cast<size_t>(sample_index) + 1) << "it must come before the token";
  };
  MakeAdopting();
  Run();
  EXPECT_EQ(sink_->changes, (std::vector<std::pair<int, int>>{{0, 3}, {1, 4}}));
  EXPECT_EQ(NumSamples(), 2);
}

// Otherwise the manager after the next one could not tell it.
TEST_F(AdoptionTest, ARestoredRequestTakesAlongWhereItsNumericsHaveChanged) {
  const NumericsChange change{.first = 3, .last = 4};
  for (const int row : {0, 1}) SetChange(row, change);
  MakeAdopting();
  Run();
  kept_.listener->OnLost(kept_.epoch, absl::UnavailableError("the connection is broken"));
  kept_.plans.clear();
  Run();
  Advance(10 * kSecond);
  ASSERT_GE(kept_.plans.size(), 1u);
  ASSERT_EQ(kept_.plans[0].starts.size(), 2u);
  for (const SequenceStart& start : kept_.plans[0].starts) EXPECT_EQ(start.numerics_change, change);
}

// The client may have the token at position 3, which this worker cannot compute.
TEST_F(AdoptionTest, ARequestWhoseFirstTokensHadOtherNumericsDoesNotBeginAgain) {
  SetChange(0, NumericsChange{.first = 3, .last = 4});
  keep_ = [](const RestoredCopy&) {
    ADD_FAILURE() << "what another worker has may be of use";
    return absl::OkStatus();
  };
  AdoptWithoutTheSecondRow();
  EXPECT_EQ(NumSamples(), 0);
  ASSERT_TRUE(ReasonOf(sink_->failure).has_value()) << sink_->failure;
  EXPECT_EQ(ReasonOf(sink_->failure)->word, "REQUEST_UNKNOWN") << "so the client continues with the tokens that it has";
  ASSERT_EQ(kept_.plans.size(), 1u);
  EXPECT_EQ(kept_.plans[0].end_rows, std::vector<RowId>{RowId{0}});
}

TEST_F(AdoptionTest, ARequestThatGotOtherNumericsBeforeItsFirstTokenBeginsAgainAndItsStreamIsTold) {
  SetChange(0, NumericsChange{.first = 3, .last = 3});
  AdoptWithoutTheSecondRow();
  EXPECT_EQ(sink_->failure, absl::OkStatus());
  EXPECT_EQ(sink_->changes, (std::vector<std::pair<int, int>>{{0, 3}, {1, 3}}));
  ASSERT_GE(kept_.plans.size(), 1u);
  ASSERT_EQ(kept_.plans[0].starts.size(), 1u) << "the second sample is going to be forked";
  EXPECT_EQ(kept_.plans[0].starts[0].numerics_change, (NumericsChange{.first = 3, .last = 3}));
}

TEST_F(AdoptionTest, ARowWithoutAllTokensThatItHadWhenItsNumericsChangedDoesNotCount) {
  SetChange(0, NumericsChange{.first = 5, .last = 5});
  MakeAdopting();
  Run();
  EXPECT_EQ(NumSamples(), 0);
  EXPECT_FALSE(sink_->failure.ok());
  EXPECT_EQ(sink_->changes.size(), 0u);
}

TEST_F(AdoptionTest, ARequestWithSuchARowIsNotOver) {
  int num_asked = 0;
  restore_ = [&](const RequestToRestore& found) -> absl::StatusOr<RequestRestored> {
    Request request;
    request.num_samples = 2;
    request.max_tokens = 1;
    EXPECT_EQ(found.is_over(request, nullptr), num_asked++ == 0);
    return absl::UnavailableError("this is no matter here");
  };
  for (const int last : {4, 5}) {
    for (const int row : {0, 1}) SetChange(row, NumericsChange{.first = 3, .last = last});
    MakeAdopting();
    Run();
  }
  EXPECT_EQ(num_asked, 2);
}

}  // namespace
}  // namespace quire
