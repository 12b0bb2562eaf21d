// SPDX-License-Identifier: Apache-2.0

#include <cstdlib>

#include "base/check.h"
#include "kv_manager/worker_link/inventory_reader.h"
#include "quire/fuzz/fuzz.pb.h"
#include "tests/fuzz/message_input.h"
#include "tests/worker/test_worker.h"
#include "worker/inventory.h"

namespace quire {
namespace {

// A worker that computes nothing, with all that executes plans.
TestWorker& Worker() {
  static TestWorker* const worker = [] {
    setenv("QUIRE_TEST_DEVICE", "simulated", /*overwrite=*/1);
    auto* const simulated = new TestWorker({.num_host_blocks = 64, .max_logit_rows = 3});
    simulated->executor().KeepLabels();
    return simulated;
  }();
  return *worker;
}

WorkerDescription Describe(const WorkerLimits& limits) {
  WorkerDescription description;
  description.vocab_size = limits.vocab_size;
  description.max_context_tokens = limits.max_context_tokens;
  description.block_size = limits.block_size;
  description.num_blocks = static_cast<int>(limits.num_blocks);
  description.num_host_blocks = static_cast<int>(limits.num_host_blocks);
  description.max_sequences = limits.max_sequences;
  description.max_tokens_per_step = limits.max_tokens_per_step;
  description.numerics_fingerprint = "fingerprint";
  return description;
}

// The manager can read the inventory of every session.
void CheckInventory(const TestWorker& worker, const std::vector<v1::InventoryChunk>& chunks) {
  InventoryReader reader(Describe(worker.limits()));
  for (const v1::InventoryChunk& chunk : chunks) {
    const absl::Status status = reader.Add(chunk);
    QUIRE_CHECK(status.ok()) << status;
  }
  QUIRE_CHECK(reader.is_complete());
}

// The worker executes each plan or refuses it with a message.
void Execute(const fuzz::Session& session) {
  TestWorker& worker = Worker();
  worker.executor().Reset();
  for (const v1::StepPlan& plan : session.plans()) {
    const absl::Status status = worker.Run(plan).status();
    if (status.ok()) continue;
    QUIRE_CHECK(status.code() == absl::StatusCode::kInvalidArgument && !status.message().empty()) << status;
    return;
  }
  CheckInventory(worker, MakeInventory(worker.executor(), LastSteps(), "fingerprint/block-4"));
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::fuzz::Session, quire::Execute);
