// SPDX-License-Identifier: Apache-2.0

// A worker whose pool has taken the rest of the device's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/worker_protocol.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/plan_builder.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/model.h"
#include "worker/warm_up.h"

namespace quire {
namespace {

// A device that gives no memory of its own while `is_full`.
class FullDevice : public cuda::EmulatedDevice {
 public:
  void* Allocate(size_t bytes) override {
    if (is_full) return nullptr;
    allocated_bytes_ += bytes;
    return EmulatedDevice::Allocate(bytes);
  }
  void* AllocateHost(size_t bytes) override { return EmulatedDevice::Allocate(bytes); }

  size_t FreeBytes() const override { return EmulatedDevice::FreeBytes() - allocated_bytes_; }

  bool is_full = false;

 private:
  size_t allocated_bytes_ = 0;  // What was freed counts, too.
};

class DeviceMemoryTest : public testing::TestWithParam<bool> {};

TEST_P(DeviceMemoryTest, AfterTheStartNoRequestNeedsMore) {
  auto owned_device = std::make_unique<FullDevice>();
  FullDevice& device = *owned_device;
  cuda::CudaBackend backend(std::move(owned_device), {.exact = GetParam()});
  const auto model = LoadModel(GoldenModel("yarn"), &backend, /*progress=*/nullptr, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelConfig& config = (*model)->config;
  const KvLayout layout{.num_layers = config.num_layers,
                        .num_kv_heads = config.num_kv_heads,
                        .head_dim = config.head_dim,
                        .block_size = 4,
                        .type = KvTypeOf(backend.ActivationType())};
  const WorkerLimits limits{.max_sequences = 2,
                            .max_tokens_per_step = 8,
                            .max_context_tokens = config.max_position_embeddings,
                            .vocab_size = config.vocab_size,
                            .block_size = layout.block_size,
                            .num_blocks = 128};
  testing::internal::CaptureStderr();
  const auto available = WarmUp(&backend, **model, layout, limits);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::ContainsRegex("steps of up to 8 tokens in contexts of up to 256 tokens keep [1-9][0-9.]* MiB"));
  ASSERT_TRUE(available.ok()) << available.status();
  const auto storage = BlockStorage::Create(&backend, layout, limits.num_blocks, /*num_host_blocks=*/0, false);
  ASSERT_TRUE(storage.ok());
  const auto executor = Executor::Create(&backend, model->get(), storage->get(), limits, LogitRowsFor(limits));
  ASSERT_TRUE(executor.ok());
  device.is_full = true;

  uint64_t step = 0;
  const auto run = [&](const PlanBuilder& plan) {
    v1::StepResult result;
    const absl::Status status = (*executor)->Run(plan.plan(), &result);
    EXPECT_TRUE(status.ok()) << "step " << step << ": " << status;
  };
  const int longest = limits.max_context_tokens, blocks = limits.NumBlocksFor(longest);
  const auto start_and_decode = [&](const v1::RowSampling& sampling) {
    const std::vector<TokenId> prompt = Tokens(0, 8);
    run(PlanBuilder(++step).Start(0, prompt, sampling).Slice(0, 0, 8, true, Blocks(0, blocks)));
    for (int token = 8; token < 10; ++token) run(PlanBuilder(++step).Slice(0, token, 1, true));
  };
  start_and_decode(Greedy());
  v1::RowSampling sampling = Greedy();
  sampling.set_frequency_penalty(0.5);
  sampling.set_repetition_penalty(1.5);
  start_and_decode(sampling);
  for (int token = 0; token < config.vocab_size; ++token) {
    sampling.add_bias_token_ids(token);
    sampling.add_biases(1);
    sampling.add_allowed_token_ids(token);
  }
  start_and_decode(sampling);
  sampling = Greedy();
  sampling.set_num_logprobs_plus_one(1 + kMaxTopLogprobs);
  sampling.set_num_prompt_logprobs_plus_one(1 + kMaxTopLogprobs);
  start_and_decode(sampling);
  // Two sequences of the whole context, as a step of a prompt and then as one of decodes. The pool contains zeros for
  // the tokens before.
  std::vector<TokenId> tokens(longest - 1);
  for (int i = 0; i < longest - 1; ++i) tokens[i] = i % config.vocab_size;
  PlanBuilder prompts(++step);
  for (const int row : {0, 1}) {
    prompts.Start(row, tokens).Slice(row, longest - 5, 4, true, Blocks(64 * row, blocks));
  }
  run(prompts.Copy(0, 127));
  for (int i = 0; i < 2; ++i) {
    run(PlanBuilder(++step)
            .Start(0, tokens)
            .Slice(0, longest - 2, 1, true, Blocks(0, blocks))
            .Start(1, tokens)
            .Slice(1, longest - 2, 1, true, Blocks(64, blocks)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceMemoryTest, testing::Bool(), [](const testing::TestParamInfo<bool>& exact) {
  return std::string(exact.param ? "Exact" : "Tuned");
});

}  // namespace
}  // namespace quire
