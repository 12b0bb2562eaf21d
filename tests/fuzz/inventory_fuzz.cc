// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/inventory_check.h"
#include "kv_manager/engine/revival.h"
#include "kv_manager/worker_link/inventory_reader.h"
#include "quire/fuzz/fuzz.pb.h"
#include "scheduler/scheduler.h"
#include "tests/fuzz/message_input.h"

namespace quire {
namespace {

WorkerDescription Worker() {
  WorkerDescription worker;
  worker.vocab_size = 100;
  worker.max_context_tokens = 32;
  worker.block_size = 2;
  worker.num_blocks = 8;
  worker.num_host_blocks = 4;
  worker.max_sequences = 4;
  worker.max_tokens_per_step = 16;
  worker.numerics_fingerprint = "f";
  return worker;
}

SchedulerOptions OptionsFor(const WorkerDescription& worker) {
  SchedulerOptions options;
  options.max_tokens_per_step = worker.max_tokens_per_step;
  options.max_chunk_tokens = worker.max_tokens_per_step;
  options.max_sequences = worker.max_sequences;
  options.max_context_tokens = worker.max_context_tokens;
  options.keeps_rows = true;
  return options;
}

// A request to which the rows may belong. Empty when no request has such a prompt.
std::optional<Request> RequestOf(const RowsOfRequest& rows, uint64_t id, const WorkerDescription& worker) {
  Request request;
  request.id = RequestId{id};
  request.prompt.assign(rows.first->tokens.begin(), rows.first->tokens.begin() + rows.first->prompt_length);
  request.max_tokens = worker.max_context_tokens - rows.first->prompt_length;
  if (request.max_tokens < 1) return std::nullopt;
  request.num_samples = std::max<int>(1, static_cast<int>(rows.rows.size()));
  request.record = std::make_shared<const std::string>(rows.record.request);
  request.sampling.num_logprobs = rows.first->num_logprobs;
  request.sampling.num_prompt_logprobs = rows.first->num_prompt_logprobs;
  if (!rows.search.empty()) {
    request.beam = BeamParams{.width = request.num_samples, .num_return = 1};
    request.num_samples = 1;
  }
  return request;
}

// The scheduler continues with what it has taken over.
void RunSteps(Scheduler* scheduler) {
  for (int i = 0; i < 6; ++i) {
    const StepPlan plan = scheduler->Plan();
    if (plan.empty() && !scheduler->RestartStuck()) return;
    if (plan.empty()) continue;
    StepResult result{.step = plan.step, .slices = {}};
    for (const SequenceSlice& slice : plan.slices) {
      SliceResult& answer = result.slices.emplace_back();
      answer.sampled = slice.sample;
      if (slice.sample) answer.token.token = 7;
    }
    // Where rows report logprobs or candidates, this is the answer of a wrong worker.
    if (scheduler->CheckResult(result).ok()) {
      scheduler->Commit(std::move(result));
    } else {
      scheduler->AbandonAll();
    }
  }
}

// What the manager makes of an inventory is consistent: requests, tables and the prefix cache. The scheduler takes it
// over, see AdoptInventory.
void Adopt(const WorkerInventory& inventory, const WorkerDescription& worker) {
  const InventoryCheck check(inventory, worker.num_blocks, worker.block_size);
  std::vector<const WorkerInventory::Row*> others;
  const std::vector<RowsOfRequest> requests = FindRequests(inventory, &others);
  PagedBlockManager manager({.num_blocks = worker.num_blocks, .block_size = worker.block_size});
  Scheduler scheduler(OptionsFor(worker), &manager);
  size_t num_rows = others.size();
  uint64_t num_requests = 0;
  std::vector<RowId> end_rows;
  for (const WorkerInventory::Row* row : others) end_rows.push_back(row->row);
  RestoredBlocks blocks;
  absl::flat_hash_set<BlockId> next_blocks;
  std::vector<RestoredRequest> restored;
  for (const RowsOfRequest& rows : requests) {
    num_rows += rows.rows.size();
    std::optional<Request> request = RequestOf(rows, num_requests++, worker);
    if (!request.has_value()) {
      for (const WorkerInventory::Row* row : rows.rows) end_rows.push_back(row->row);
      continue;
    }
    const RequestId id = request->id;
    const bool is_over = IsOver(*request, rows, /*stop_strings=*/nullptr);
    Revival revival = Revive(*std::move(request), worker.vocab_size, rows, check, is_over);
    end_rows.insert(end_rows.end(), revival.end_rows.begin(), revival.end_rows.end());
    if (revival.is_lost) continue;
    if (revival.is_over) {
      scheduler.KeepRows(id, revival.request.ended_rows);
      continue;
    }
    for (const RestoredRequest::Sample& sample : revival.request.samples) {
      QUIRE_CHECK(sample.num_stored >= 0 && sample.num_stored < static_cast<int>(sample.tokens.size()));
    }
    next_blocks.insert(revival.next_blocks.begin(), revival.next_blocks.end());
    std::move(revival.tables.begin(), revival.tables.end(), std::back_inserter(blocks.tables));
    restored.push_back(std::move(revival.request));
  }
  QUIRE_CHECK_EQ(num_rows, inventory.rows.size());
  blocks.cached = check.CachedBlocks(blocks.tables, std::move(next_blocks));
  scheduler.SkipTo(LastSequence(inventory));
  manager.Restore(blocks);
  absl::Status status = manager.CheckIntegrity();
  QUIRE_CHECK(status.ok()) << status;
  scheduler.Restore(std::move(restored));
  scheduler.EndRows(end_rows);
  RunSteps(&scheduler);
  status = manager.CheckIntegrity();
  QUIRE_CHECK(status.ok()) << status;
}

// An inventory is refused, or its rows and labels have ids in their ranges.
void Read(const fuzz::Inventory& chunks) {
  static const WorkerDescription worker = Worker();
  InventoryReader reader(worker);
  for (const v1::InventoryChunk& chunk : chunks.chunks()) {
    const absl::Status status = reader.Add(chunk);
    if (status.ok()) continue;
    QUIRE_CHECK(!status.message().empty());
    return;
  }
  if (!reader.is_complete()) return;
  const WorkerInventory inventory = reader.Take();
  QUIRE_CHECK(inventory.rows.size() <= 4u);
  for (const WorkerInventory::Row& row : inventory.rows) {
    // A row may have drawn one token beyond the context.
    QUIRE_CHECK(Value(row.row) < 4u && row.tokens.size() <= 33u &&
                row.num_computed <= static_cast<int>(row.tokens.size()));
    for (const TokenId token : row.tokens) QUIRE_CHECK(token >= 0 && token < 100) << token;
    for (const BlockId block : row.blocks) QUIRE_CHECK(Value(block) < 8u) << Value(block);
  }
  Adopt(inventory, worker);
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::fuzz::Inventory, quire::Read);
