// SPDX-License-Identifier: Apache-2.0

// Runs a scheduler on a shadow worker, takes the scheduler away at drawn moments, and makes another one from what the
// worker has.

#include "kv_manager/engine/revival.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kv_manager/worker_link/cache_root.h"
#include "kv_manager/worker_link/row_record.h"
#include "scheduler/scheduler.h"
#include "tests/random.h"
#include "tests/sim/shadow_worker.h"

namespace quire {
namespace {

constexpr int kBlockSize = 4;
constexpr int kNumRows = 6;
constexpr int kMaxContext = 60;
// No request is preempted.
constexpr int kManyBlocks = 2 * kNumRows * kMaxContext / kBlockSize;

// What the clients of all managers know about one request.
struct Client {
  Request request;  // With the id of the first manager.
  SoloOutput expected;
  std::vector<std::vector<TokenId>> received;  // By sample or hypothesis.
  int num_ended = 0;
};

struct Counts {
  int revived = 0;
  int begun_again = 0;
  int over = 0;
  int lost = 0;
  int stored = 0;      // Tokens of running samples that were adopted.
  int recomputed = 0;  // Tokens that running samples have lost.
  int finished = 0;
  int searched = 0;  // Searches that continue behind their first step.
  int scored = 0;    // Tokens whose logprobs were taken over.
};

class Managers {
 public:
  Managers(uint64_t seed, int num_blocks, Counts* counts)
      : random_(seed),
        num_blocks_(num_blocks),
        counts_(counts),
        model_{.vocab_size = 50, .stop_percent = 2},
        worker_(model_, num_blocks, kBlockSize, kNumRows) {
    StartManager();
  }

  void Run(int num_rounds, bool is_damaged) {
    for (int round = 0; round < num_rounds; ++round) {
      if (clients_.size() < 12 && random_.OneIn(2)) Submit();
      if (random_.OneIn(12)) CancelOne();
      PlanAndAnswer();
      if (random_.OneIn(10)) Restart(is_damaged);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
    for (int round = 0; round < 2000 && !clients_.empty(); ++round) PlanAndAnswer();
    EXPECT_EQ(clients_.size(), 0u) << "requests do not end";
  }

 private:
  void StartManager() {
    blocks_ = std::make_unique<PagedBlockManager>(
        PagedBlockManagerOptions{.num_blocks = num_blocks_, .block_size = kBlockSize});
    SchedulerOptions options;
    options.max_tokens_per_step = 24;
    options.max_chunk_tokens = 10;
    options.max_sequences = kNumRows;
    options.max_context_tokens = kMaxContext;
    options.keeps_rows = true;
    scheduler_ = std::make_unique<Scheduler>(options, blocks_.get());
    plans_.clear();
  }

  void Submit() {
    Request request;
    request.id = RequestId{next_id_++};
    const int num_shared = random_.Below(20);
    for (int i = 0; i < num_shared; ++i) request.prompt.push_back(i + 1);
    for (int i = random_.Between(1, 8); i > 0; --i) request.prompt.push_back(random_.Between(1, 49));
    request.max_tokens = random_.Between(1, 30);
    request.stop_token_ids = {ShadowModel::kStopToken};
    request.num_samples = random_.OneIn(3) ? random_.Between(2, 3) : 1;
    request.sampling.seed = random_.Next();
    request.cache_salt = random_.OneIn(4) ? "b" : "a";
    request.bypass_prefix_cache = random_.OneIn(6);
    if (random_.OneIn(8)) request.sampling.num_prompt_logprobs = 0;
    if (random_.OneIn(4)) {
      request.num_samples = 1;
      request.beam = BeamParams{.width = random_.Between(2, 4), .num_return = random_.Between(1, 2)};
      // A search that ends with its first step looks like one that has not begun, so a block that it had is not cached.
      request.max_tokens = std::max(request.max_tokens, 2);
    }
    if (random_.OneIn(3)) request.sampling.num_logprobs = 0;
    const std::string name = absl::StrCat("record of ", Value(request.id));
    request.record = std::make_shared<const std::string>(name);
    if (!scheduler_->Submit(request).ok()) return;
    ids_[request.id] = name;
    SoloOutput expected = SoloRun(model_, request);
    const size_t expected_size = expected.samples.size();
    clients_[name] = {request, std::move(expected), std::vector<std::vector<TokenId>>(expected_size), 0};
  }

  void CancelOne() {
    if (clients_.empty()) return;
    const auto victim = std::next(clients_.begin(), random_.Below(static_cast<int>(clients_.size())));
    for (const auto& [id, name] : ids_) {
      if (name == victim->first) scheduler_->Cancel(id);
    }
    cancelled_[victim->first] = num_executed_ + plans_.size() + 1;
    clients_.erase(victim);
  }

  void PlanAndAnswer() {
    while (scheduler_->num_plans_in_flight() < 2) {
      StepPlan plan = scheduler_->Plan();
      if (plan.empty()) break;
      plans_.push_back(std::move(plan));
      if (random_.OneIn(2)) break;
    }
    if (plans_.empty()) return;
    absl::StatusOr<StepResult> result = worker_.Execute(plans_.front());
    ASSERT_EQ(result.status(), absl::OkStatus());
    plans_.pop_front();
    ++num_executed_;
    Read(scheduler_->Commit(*std::move(result)));
    ASSERT_EQ(blocks_->CheckIntegrity(), absl::OkStatus());
  }

  void Read(const StepOutput& output) {
    for (const Emission& emission : output.emissions) {
      const auto client = clients_.find(ids_.at(emission.request));
      if (client == clients_.end()) continue;
      std::vector<TokenId>& received = client->second.received[emission.sample_index];
      const size_t index = emission.position - client->second.request.prompt.size();
      ASSERT_LE(index, received.size()) << client->first << " has lost a token";
      if (index == received.size()) received.push_back(emission.token.token);  // Otherwise it has begun again.
      ASSERT_EQ(received[index], emission.token.token);
      const std::vector<ScoredToken>& scores = client->second.expected.samples[emission.sample_index].scores;
      if (!scores.empty()) {
        ASSERT_EQ(emission.token, scores[index]);
      }
    }
    for (const Finished& finished : output.finished) {
      const auto client = clients_.find(ids_.at(finished.request));
      if (client == clients_.end()) continue;
      ExpectEnded(client->second, finished.sample_index, finished.reason);
      if (!finished.ends_request) continue;
      ++counts_->finished;
      clients_.erase(client);
    }
  }

  static void ExpectEnded(const Client& client, int sample_index, FinishReason reason) {
    EXPECT_EQ(client.received[sample_index], client.expected.samples[sample_index].tokens);
    EXPECT_EQ(reason, client.expected.samples[sample_index].reason);
  }

  // The manager dies. The worker executes the plans that it has begun, and their results are lost.
  void Restart(bool is_damaged) {
    for (int i = random_.Below(static_cast<int>(plans_.size()) + 1); i > 0; --i) {
      ASSERT_EQ(worker_.Execute(plans_.front()).status(), absl::OkStatus());
      plans_.pop_front();
      ++num_executed_;
    }
    // Nobody knows any more of what the worker was not told.
    std::erase_if(cancelled_, [&](const auto& cancelled) { return cancelled.second > num_executed_; });
    std::map<std::string, int> hits;
    // Plans that the worker has not begun have filled no blocks.
    const bool is_cache_filled = plans_.empty() && !is_damaged && num_blocks_ == kManyBlocks;
    for (const auto& [name, client] : clients_) hits[name] = NumCached(client.request);
    std::map<RowId, SequenceId> running;
    for (uint32_t row = 0; row < kNumRows; ++row) {
      if (const auto occupant = scheduler_->OccupantOf(RowId{row}); occupant.sequence != nullptr) {
        running[RowId{row}] = occupant.sequence->id();
      }
    }
    scheduler_ = nullptr;
    blocks_ = nullptr;
    ids_.clear();
    WorkerInventory inventory = worker_.MakeInventory();
    if (is_damaged) Damage(&inventory);
    worker_.BeginSession();
    StartManager();
    Adopt(inventory, running, is_damaged);
    ASSERT_EQ(blocks_->CheckIntegrity(), absl::OkStatus());
    if (!is_cache_filled) return;
    for (const auto& [name, client] : clients_) {
      EXPECT_GE(NumCached(client.request), hits[name]) << "the prefix cache is colder than before";
    }
  }

  int NumCached(const Request& request) const {
    return blocks_->FindPrefix(request.cache_salt, request.prompt).num_block_tokens;
  }

  void Adopt(const WorkerInventory& inventory, const std::map<RowId, SequenceId>& running, bool is_damaged) {
    const InventoryCheck check(inventory, num_blocks_, kBlockSize);
    std::vector<const WorkerInventory::Row*> others;
    RestoredBlocks restored;
    absl::flat_hash_set<BlockId> next_blocks;
    std::vector<RestoredRequest> requests;
    std::vector<RowId> end_rows;
    std::map<std::string, bool> found;
    for (const RowsOfRequest& rows : FindRequests(inventory, &others)) {
      const std::string name(rows.record.request);
      const auto client = clients_.find(name);
      if (client == clients_.end()) {
        EXPECT_FALSE(cancelled_.contains(name)) << name << " was cancelled";
        for (const WorkerInventory::Row* row : rows.rows) end_rows.push_back(row->row);
        continue;
      }
      found[name] = true;
      Request request = client->second.request;
      request.id = RequestId{next_id_++};
      ids_[request.id] = name;
      Revival revival = Revive(request, model_.vocab_size, rows, check);
      CheckTokens(&client->second, revival);
      for (const RestoredRequest::Sample& sample : revival.request.samples) {
        const auto row = running.find(sample.row);
        if (row == running.end() || row->second != sample.sequence) continue;
        counts_->stored += sample.num_stored;
        if (!is_damaged) counts_->recomputed += sample.num_computed - sample.num_stored;
      }
      ++counts_->revived;
      counts_->begun_again += revival.samples.empty();
      counts_->searched += revival.request.search.has_value();
      if (!revival.request.prompt_scores.empty()) {
        const std::vector<ScoredToken>& expected = client->second.expected.prompt_logprobs;
        ASSERT_LE(revival.request.prompt_scores.size(), expected.size());
        EXPECT_TRUE(
            std::equal(revival.request.prompt_scores.begin(), revival.request.prompt_scores.end(), expected.begin()));
      }
      next_blocks.insert(revival.next_blocks.begin(), revival.next_blocks.end());
      restored.tables.insert(restored.tables.end(), revival.tables.begin(), revival.tables.end());
      end_rows.insert(end_rows.end(), revival.end_rows.begin(), revival.end_rows.end());
      if (revival.is_over) {
        scheduler_->KeepRows(request.id, revival.request.ended_rows);
        ++counts_->over;
        clients_.erase(client);
      } else {
        requests.push_back(std::move(revival.request));
      }
    }
    for (const RestoredBlocks::Table& table : restored.tables) {
      const std::vector<TokenId> stored(table.tokens.begin(), table.tokens.begin() + table.num_stored);
      ASSERT_EQ(worker_.CheckSlots(table.blocks, stored), absl::OkStatus());
    }
    restored.cached = check.CachedBlocks(restored.tables, std::move(next_blocks));
    scheduler_->SkipTo(LastSequence(inventory));
    blocks_->Restore(restored);
    ASSERT_EQ(blocks_->CheckIntegrity(), absl::OkStatus());
    for (const WorkerInventory::Row* row : others) end_rows.push_back(row->row);
    EXPECT_EQ(scheduler_->Restore(std::move(requests)).size(), 0u);
    scheduler_->EndRows(end_rows);
    // Clients start requests again of which no worker has anything.
    for (auto& [name, client] : clients_) {
      if (found.contains(name)) continue;
      ++counts_->lost;
      Request request = client.request;
      request.id = RequestId{next_id_++};
      ids_[request.id] = name;
      ASSERT_EQ(scheduler_->Submit(request), absl::OkStatus());
    }
  }

  void CheckTokens(Client* client, const Revival& revival) {
    for (const Revival::Sample& sample : revival.samples) {
      std::vector<TokenId>& received = client->received[sample.index];
      const std::vector<TokenId>& expected = client->expected.samples[sample.index].tokens;
      ASSERT_LE(sample.generated.size(), expected.size());
      std::vector<TokenId> generated;
      for (const ScoredToken& token : sample.generated) generated.push_back(token.token);
      EXPECT_TRUE(std::equal(generated.begin(), generated.end(), expected.begin()));
      const std::vector<ScoredToken>& scores = client->expected.samples[sample.index].scores;
      if (!scores.empty()) {
        EXPECT_TRUE(std::equal(sample.generated.begin(), sample.generated.end(), scores.begin()));
        counts_->scored += static_cast<int>(generated.size());
      }
      if (generated.size() > received.size()) received = generated;
      if (sample.end.has_value()) ExpectEnded(*client, sample.index, *sample.end);
    }
  }

  // What the rows say about their blocks becomes wrong, and labels are lost.
  void Damage(WorkerInventory* inventory) {
    for (WorkerInventory::Row& row : inventory->rows) {
      switch (random_.Below(8)) {
        case 0:
          if (row.blocks.empty()) break;
          row.blocks[random_.Below(static_cast<int>(row.blocks.size()))] =
              BlockId{static_cast<uint32_t>(random_.Below(num_blocks_))};
          break;
        case 1:
          row.num_computed = random_.Below(row.num_computed + 1);
          break;
        case 2:
          row.root = std::nullopt;
          break;
        case 3:
          row.root = random_.Below(static_cast<int>(inventory->roots.size()));
          break;
        case 4:
          if (row.blocks.size() < 2) break;
          std::swap(row.blocks[0], row.blocks[1]);
          break;
        default:
          break;
      }
    }
    for (size_t i = 0; i < inventory->labels.size(); ++i) {
      if (!random_.OneIn(10)) continue;
      std::vector<TokenId>& tokens = inventory->labels[i].tokens;
      const bool is_parent = std::any_of(inventory->labels.begin(), inventory->labels.end(),
                                         [&](const auto& label) { return label.parent == static_cast<int>(i); });
      if (!is_parent && tokens.size() > 1) tokens.pop_back();
    }
  }

  Random random_;
  const int num_blocks_;
  Counts* const counts_;
  const ShadowModel model_;
  ShadowWorker worker_;
  std::unique_ptr<PagedBlockManager> blocks_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<StepPlan> plans_;
  std::map<std::string, Client> clients_;      // By record.
  std::map<RequestId, std::string> ids_;       // Of this manager.
  uint64_t num_executed_ = 0;                  // Plans.
  std::map<std::string, uint64_t> cancelled_;  // With the number of the plan that tells the worker.
  uint64_t next_id_ = 1;
};

// No worker of ours says so.
TEST(RevivalTest, ARequestWhoseSequencesAreThoseOfAnotherBeginsAgain) {
  WorkerInventory inventory;
  for (const char* name : {"a", "b"}) {
    SequenceStart start{};
    start.record = std::make_shared<const std::string>(name);
    WorkerInventory::Row& row = inventory.rows.emplace_back();
    row.row = RowId{static_cast<uint32_t>(inventory.rows.size())};
    row.sequence = SequenceId{1};
    row.prompt_length = 2;
    row.tokens = {1, 2};
    row.record = RowRecordOf(start);
  }
  std::vector<const WorkerInventory::Row*> others;
  const std::vector<RowsOfRequest> found = FindRequests(inventory, &others);
  ASSERT_EQ(found.size(), 2u);
  ASSERT_EQ(found[1].rows.size(), 0u);
  Request request;
  request.prompt = {1, 2};
  request.sampling.num_prompt_logprobs = 0;
  const Revival revival = Revive(request, /*vocab_size=*/50, found[1], InventoryCheck(inventory, 4, kBlockSize));
  EXPECT_EQ(revival.samples.size(), 0u);
  EXPECT_FALSE(revival.is_over);
}

// No worker of ours says so. Requests of another salt may find the blocks in the cache.
TEST(RevivalTest, BlocksUnderAnotherRootThanThatOfTheRequestAreNotTakenOver) {
  WorkerInventory inventory;
  inventory.roots = {NameOf({.is_private = false, .salt = "b"})};
  inventory.labels = {
      {.block = BlockId{0}, .is_host = false, .parent = std::nullopt, .root = 0, .tokens = {1, 2, 3, 4}}};
  SequenceStart start{};
  start.record = std::make_shared<const std::string>("a");
  WorkerInventory::Row row;
  row.sequence = SequenceId{1};
  row.prompt_length = 5;
  row.tokens = {1, 2, 3, 4, 5};
  row.num_computed = 4;
  row.blocks = {BlockId{0}};
  row.record = RowRecordOf(start);
  row.root = 0;
  inventory.rows = {row};
  std::vector<const WorkerInventory::Row*> others;
  const std::vector<RowsOfRequest> found = FindRequests(inventory, &others);
  Request request;
  request.prompt = row.tokens;
  const InventoryCheck check(inventory, 4, kBlockSize);
  for (const char* salt : {"a", "b"}) {
    request.cache_salt = salt;
    const Revival revival = Revive(request, /*vocab_size=*/50, found.at(0), check);
    EXPECT_EQ(revival.tables.at(0).num_stored, salt[0] == 'b' ? 4 : 0);
  }
  request.bypass_prefix_cache = true;
  EXPECT_EQ(Revive(request, /*vocab_size=*/50, found.at(0), check).tables.at(0).num_stored, 0);
}

TEST(RevivalTest, NextManagerGoesOnWithTheSameTokensAndRecomputesNothing) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Managers(seed, kManyBlocks, &counts).Run(/*num_rounds=*/80, /*is_damaged=*/false);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(counts.revived, 2000);
  EXPECT_GT(counts.searched, 50);
  EXPECT_GT(counts.scored, 1000);
  EXPECT_GT(counts.over, 50);
  EXPECT_GT(counts.stored, 20000);
  EXPECT_EQ(counts.recomputed, 0);
}

// Blocks are so short that requests are preempted.
TEST(RevivalTest, RequestsThatWerePreemptedGoOnOrAreLost) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Managers(seed, /*num_blocks=*/24, &counts).Run(/*num_rounds=*/80, /*is_damaged=*/false);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(counts.revived, 2000);
  EXPECT_GT(counts.lost, 50);
  EXPECT_GT(counts.searched, 50);
  EXPECT_GT(counts.scored, 1000);
}

TEST(RevivalTest, WhatLabelsDoNotConfirmIsComputedAgain) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Managers(seed, /*num_blocks=*/40, &counts).Run(/*num_rounds=*/80, /*is_damaged=*/true);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(counts.revived, 2000);
  EXPECT_GT(counts.stored, 10000);
}

}  // namespace
}  // namespace quire
