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
#include "tests/worker/model/fp8_model.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/plan_builder.h"
#include "tools/make_model/model_shape.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/model.h"
#include "worker/warm_up.h"

namespace quire {
namespace {

// A device that gives no memory of its own while `is_full`.
class FullDevice : public cuda::EmulatedDevice {
 public:
  using EmulatedDevice::EmulatedDevice;

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

class FullWorkerTest : public testing::Test {
 protected:
  // Loads the model of a directory, warms up, makes the pool and an executor, and leaves no memory.
  void StartWorker(const std::string& directory, std::unique_ptr<FullDevice> device,
                   const cuda::CudaBackendOptions& options, Quantization layers, int max_tokens_per_step) {
    device_ = device.get();
    backend_ = std::make_unique<cuda::CudaBackend>(std::move(device), options);
    auto model = LoadModel(directory, backend_.get(), /*progress=*/nullptr, {.layers = layers});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    const ModelConfig& config = model_->config;
    const KvLayout layout{.num_layers = config.num_layers,
                          .num_kv_heads = config.num_kv_heads,
                          .head_dim = config.head_dim,
                          .block_size = 4,
                          .type = KvTypeOf(backend_->ActivationType())};
    limits_ = {.max_sequences = 2,
               .max_tokens_per_step = max_tokens_per_step,
               .max_context_tokens = config.max_position_embeddings,
               .vocab_size = config.vocab_size,
               .block_size = layout.block_size,
               .num_blocks = 128};
    const auto available = WarmUp(backend_.get(), *model_, layout, limits_);
    ASSERT_TRUE(available.ok()) << available.status();
    auto storage = BlockStorage::Create(backend_.get(), layout, limits_.num_blocks, /*num_host_blocks=*/0, false);
    ASSERT_TRUE(storage.ok());
    storage_ = *std::move(storage);
    auto executor = Executor::Create(backend_.get(), model_.get(), storage_.get(), limits_, LogitRowsFor(limits_));
    ASSERT_TRUE(executor.ok());
    executor_ = *std::move(executor);
    device_->is_full = true;
  }

  PlanBuilder NextStep() { return PlanBuilder(++step_); }
  void Run(const PlanBuilder& plan) {
    v1::StepResult result;
    const absl::Status status = executor_->Run(plan.plan(), &result);
    EXPECT_TRUE(status.ok()) << "step " << step_ << ": " << status;
  }

  FullDevice* device_ = nullptr;
  std::unique_ptr<cuda::CudaBackend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
  WorkerLimits limits_;

 private:
  uint64_t step_ = 0;
};

class DeviceMemoryTest : public FullWorkerTest, public testing::WithParamInterface<bool> {};

TEST_P(DeviceMemoryTest, AfterTheStartNoRequestNeedsMore) {
  testing::internal::CaptureStderr();
  StartWorker(GoldenModel("yarn"), std::make_unique<FullDevice>(), {.exact = GetParam()}, Quantization::kNone,
              /*max_tokens_per_step=*/8);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::ContainsRegex("steps of up to 8 tokens in contexts of up to 256 tokens keep [1-9][0-9.]* MiB"));
  ASSERT_NE(executor_, nullptr);
  const int longest = limits_.max_context_tokens, blocks = limits_.NumBlocksFor(longest);
  const auto start_and_decode = [&](const v1::RowSampling& sampling) {
    const std::vector<TokenId> prompt = Tokens(0, 8);
    Run(NextStep().Start(0, prompt, sampling).Slice(0, 0, 8, true, Blocks(0, blocks)));
    for (int token = 8; token < 10; ++token) Run(NextStep().Slice(0, token, 1, true));
  };
  start_and_decode(Greedy());
  v1::RowSampling sampling = Greedy();
  sampling.set_frequency_penalty(0.5);
  sampling.set_repetition_penalty(1.5);
  start_and_decode(sampling);
  for (int token = 0; token < limits_.vocab_size; ++token) {
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
  for (int i = 0; i < longest - 1; ++i) tokens[i] = i % limits_.vocab_size;
  PlanBuilder prompts = NextStep();
  for (const int row : {0, 1}) {
    prompts.Start(row, tokens).Slice(row, longest - 5, 4, true, Blocks(64 * row, blocks));
  }
  Run(prompts.Copy(0, 127));
  for (int i = 0; i < 2; ++i) {
    Run(NextStep()
            .Start(0, tokens)
            .Slice(0, longest - 2, 1, true, Blocks(0, blocks))
            .Start(1, tokens)
            .Slice(1, longest - 2, 1, true, Blocks(64, blocks)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceMemoryTest, testing::Bool(), [](const testing::TestParamInfo<bool>& exact) {
  return std::string(exact.param ? "Exact" : "Tuned");
});

// How the weights of a model are quantized and multiplied.
struct QuantizedKind {
  const char* name;
  Quantization layers;
  cuda::CudaBackendOptions options;
  int max_tokens_per_step;  // More than our kernels multiply without the library.
  bool is_sm90 = false;
  int fp8_block = 0;  // Of a model in FP8: 128, or 0 for one scale per matrix.
};

class QuantizedDeviceMemoryTest : public FullWorkerTest, public testing::WithParamInterface<QuantizedKind> {
 protected:
  // Writes a model of FP8 whose stacks of matrices consist of whole blocks of 128 x 128.
  void WriteFp8() const {
    make_model::ModelShape shape;
    shape.dim = 128;
    shape.layers = 1;
    shape.heads = 2;
    shape.kv_heads = 1;
    shape.head_dim = 128;
    shape.ffn = 128;
    shape.vocab = 96;
    shape.context = 256;
    ASSERT_EQ(make_model::Complete(&shape), "");
    WriteFp8Model(shape, GetParam().fp8_block, directory_);
  }

  // Runs a step of that many tokens of two prompts.
  void RunStepOf(int num_tokens) {
    SCOPED_TRACE(testing::Message() << num_tokens << " tokens");
    PlanBuilder plan = NextStep();
    for (const int row : {0, 1}) {
      const int length = (num_tokens + 1 - row) / 2;
      if (length == 0) continue;
      plan.Start(row, std::vector<TokenId>(length, 7))
          .Slice(row, 0, length, true, Blocks(64 * row, limits_.NumBlocksFor(length)));
    }
    Run(plan);
  }

  const TestDirectory directory_;
};

TEST_P(QuantizedDeviceMemoryTest, AfterTheStartNoStepNeedsMore) {
  const QuantizedKind& kind = GetParam();
  const bool is_fp8 = kind.layers == Quantization::kFp8;
  if (is_fp8) WriteFp8();
  StartWorker(is_fp8 ? directory_.path() : GoldenModel("yarn"), std::make_unique<FullDevice>(kind.is_sm90),
              kind.options, is_fp8 ? Quantization::kNone : kind.layers, kind.max_tokens_per_step);
  ASSERT_NE(executor_, nullptr);
  EXPECT_EQ(model_->weights.rounding.layers, kind.layers);
  // The products change from one kernel to another between these sizes.
  for (const int num_tokens : {1, 3, 9, 15, 17, 31, 33, 63, 65, 66, 71, 72, 129, 193, 257, 300}) {
    if (num_tokens <= kind.max_tokens_per_step) RunStepOf(num_tokens);
  }
}

const QuantizedKind kKinds[] = {
    {"Int4", Quantization::kInt4, {}, 300},
    {"ExactInt4", Quantization::kInt4, {.exact = true}, 72},
    {"Int8", Quantization::kInt8, {}, 72},
    {"Int8WithInputsOf16Bits", Quantization::kInt8, {.rounds_int8_inputs = false}, 72},
    {"Fp8", Quantization::kFp8, {}, 72, /*is_sm90=*/true},
    {"Fp8InBlocks", Quantization::kFp8, {}, 72, /*is_sm90=*/true, /*fp8_block=*/128},
    {"Fp8WithInputsOf16Bits", Quantization::kFp8, {}, 72},
};
INSTANTIATE_TEST_SUITE_P(All, QuantizedDeviceMemoryTest, testing::ValuesIn(kKinds),
                         [](const testing::TestParamInfo<QuantizedKind>& kind) { return kind.param.name; });

}  // namespace
}  // namespace quire
