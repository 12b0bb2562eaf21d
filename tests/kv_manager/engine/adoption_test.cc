// A loop in whose first session the worker has rows of another manager.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/worker_link/row_record.h"
#include "kv_manager/worker_link/worker_inventory.h"
#include "scheduler/scheduler.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

constexpr RequestId kRequest{5};

// Calls a function of the test for each token.
class HookedSink : public RequestSink {
 public:
  void OnStarted(int /*num_cached_tokens*/) override {}
  void OnPromptLogprobs(int /*first_position*/, std::vector<ScoredToken> /*tokens*/) override {}
  void OnToken(int sample_index, int /*position*/, ScoredToken /*token*/) override {
    if (on_token != nullptr) on_token(sample_index);
  }
  void OnNumericsChanged(int /*sample_index*/, int /*position*/) override {}
  void OnFinished(const Finished& /*finished*/) override {}
  void OnFailed(absl::Status /*status*/) override {}

  std::function<void(int)> on_token;
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
  void Describe(uint64_t epoch) override { kept_->listener->OnDescribed(epoch, SmallWorker()); }
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
    SequenceStart start{};
    start.record = std::make_shared<const std::string>("record");
    for (uint32_t i = 0; i < 2; ++i) {
      WorkerInventory::Row row;
      row.row = RowId{i};
      row.sequence = SequenceId{i + 1};
      row.sample_index = i;
      row.prompt_length = 3;
      row.tokens = {1, 2, 3, static_cast<TokenId>(4 + i)};
      row.record = RowRecordOf(start);
      kept_.inventory.rows.push_back(row);
    }
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
                      .restore_request = [this](const RequestToRestore& found) { return Restore(found); }},
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

// The text thread of a stream may find a stop string before the loop has adopted the request.
TEST_F(AdoptionTest, ASampleThatItsStreamEndsWhileItIsToldEnds) {
  sink_->on_token = [this](int sample_index) {
    if (sample_index == 0) loop_->CancelSample(kRequest, 0);
  };
  MakeAdopting();
  Run();
  EXPECT_EQ(NumSamples(), 1);
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

}  // namespace
}  // namespace quire
