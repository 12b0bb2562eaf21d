// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/worker_attention.h"

#include <gtest/gtest.h>

#include <utility>

#include "kernels/cuda/backend.h"
#include "tests/kernels/cuda/grids_device.h"

namespace quire::cuda {
namespace {

class WorkerAttentionTest : public ::testing::Test {
 protected:
  // Adds a sequence of which the step computes the last `num_queries` tokens.
  void Add(int context_len, int num_queries) {
    const int blocks = (context_len + shape_.block_size - 1) / shape_.block_size;
    std::vector<uint32_t> table;
    for (int i = 0; i < blocks; ++i) table.push_back(num_blocks_++);
    batch_.Add(table, context_len - num_queries, context_len, shape_.block_size);
  }

  // Attends as the worker's backend does, and returns the output.
  std::vector<uint16_t> OfBackend(bool exact) {
    auto device = std::make_unique<GridsDevice>();
    GridsDevice* const the_device = device.get();
    CudaBackend backend(std::move(device), {.element = shape_.type, .exact = exact, .graphs = false});
    PlacedInputs inputs(the_device, *this);
    const KvLayout layout = LayoutOf(shape_);
    std::vector<int32_t> token_ids(batch_.View().num_tokens);
    BatchView view = batch_.View();
    view.token_ids = token_ids.data();
    const BatchView* const on_device = backend.PrepareBatch(&view, 1, view.num_tokens);
    the_device->grids.clear();
    backend.Attention({.batch = on_device,
                       .q = inputs.q.data(),
                       .q_stride = row_size(),
                       .out = inputs.out.data(),
                       .num_heads = shape_.num_heads,
                       .scale = 1 / std::sqrt(float(shape_.head_dim)),
                       .window = 0,
                       .layout = &layout,
                       .kv_pool = inputs.pool.data(),
                       .out_type = shape_.type});
    the_device->Synchronize();
    grids_ = the_device->grids;
    return inputs.out.Download();
  }

  std::vector<uint16_t> OfWorkerAttention(bool exact, bool is_recorded, bool is_sm90 = false) {
    GridsDevice device(is_sm90);
    kernels_ = device.FindKernels(shape_.type, shape_.head_dim, shape_.block_size);
    PlacedInputs inputs(&device, *this);
    WorkerAttention attention(&device, shape_, batch_.View(), exact, is_recorded);
    attention.Launch(inputs.q.data(), row_size(), inputs.pool.data(), inputs.out.data());
    device.Synchronize();
    grids_ = device.grids;
    return inputs.out.Download();
  }

  int row_size() const { return shape_.num_heads * shape_.head_dim; }

  // Queries, a pool and room for the output on a device. They are the same on every device.
  struct PlacedInputs {
    PlacedInputs(Device* device, const WorkerAttentionTest& test)
        : q(device, Values(test.batch_.View().num_tokens * test.row_size(), 1)),
          pool(device, Values(int(LayoutOf(test.shape_).block_elements()) * test.num_blocks_, 2)),
          out(device, size_t(test.batch_.View().num_tokens) * test.row_size()) {}
    static std::vector<uint16_t> Values(int count, uint64_t seed) {
      Random random(seed);
      std::vector<uint16_t> bits(count);
      for (uint16_t& value : bits) value = ToBFloat16(random.Normal()).bits;
      return bits;
    }
    DeviceArray<uint16_t> q, pool, out;
  };

  Shape shape_ = {4, 2, 32, 16, DataType::kBFloat16};
  PagedBatch batch_;
  uint32_t num_blocks_ = 0;
  std::vector<std::pair<const void*, int>> grids_;  // Of the last attention.
  const KernelTable* kernels_ = nullptr;            // Kernels of OfWorkerAttention's last device.
};

TEST_F(WorkerAttentionTest, ItLaunchesWhatTheBackendLaunches) {
  Add(700, 1);
  Add(30, 1);
  Add(40, 40);
  for (const bool exact : {false, true}) {
    const std::vector<uint16_t> expected = OfBackend(exact);
    const auto expected_grids = grids_;
    EXPECT_EQ(OfWorkerAttention(exact, /*is_recorded=*/false), expected);
    EXPECT_EQ(grids_, expected_grids);
  }
}

TEST_F(WorkerAttentionTest, AFullDeviceCutsNoSequence) {
  for (int i = 0; i < 8; ++i) Add(300, 1);
  OfWorkerAttention(/*exact=*/false, /*is_recorded=*/false);
  EXPECT_EQ(grids_.size(), 1u) << "no merge";
  OfWorkerAttention(/*exact=*/true, /*is_recorded=*/false);
  EXPECT_EQ(grids_.size(), 2u);
}

// The 288 rows of each of two KV heads are items of 192 and 96 rows, and there are two multiprocessors.
TEST_F(WorkerAttentionTest, ComputeCapability90HasItsOwnKernelForLongItems) {
  shape_.head_dim = 64;
  Add(144, 144);
  OfWorkerAttention(/*exact=*/false, /*is_recorded=*/false, /*is_sm90=*/true);
  using Grids = std::vector<std::pair<const void*, int>>;
  EXPECT_EQ(grids_, (Grids{{kernels_->attention_prefill_sm90.entry, 2}})) << "each block processes two items";
  OfWorkerAttention(/*exact=*/false, /*is_recorded=*/true, /*is_sm90=*/true);
  EXPECT_EQ(grids_, (Grids{{kernels_->attention_prefill_sm90.entry, 2}}));
  OfWorkerAttention(/*exact=*/false, /*is_recorded=*/false, /*is_sm90=*/false);
  EXPECT_EQ(grids_, (Grids{{kernels_->attention_prefill.entry, 10}})) << "items of 64 rows and one of 32";
  OfWorkerAttention(/*exact=*/true, /*is_recorded=*/false, /*is_sm90=*/true);
  EXPECT_EQ(grids_, (Grids{{kernels_->attention_decode.entry, 36}})) << "one kernel for all rows";
}

// One item of 128 rows and two splits for each of two KV heads, on two multiprocessors.
TEST_F(WorkerAttentionTest, LongItemsOfComputeCapability90AreCutForOneBlockPerMultiprocessor) {
  shape_.head_dim = 64;
  Add(300, 64);
  OfWorkerAttention(/*exact=*/false, /*is_recorded=*/false, /*is_sm90=*/true);
  using Grids = std::vector<std::pair<const void*, int>>;
  EXPECT_EQ(grids_, (Grids{{kernels_->attention_prefill_sm90.entry, 2}})) << "no merge";
}

// Items of eight tiles, so that the ring of tiles in shared memory goes round several times, and then two shorter ones.
// Each of the two blocks processes three items.
TEST_F(WorkerAttentionTest, LongItemsOfComputeCapability90GiveTheResultsOfTheOtherKernel) {
  shape_.head_dim = 64;
  Add(900, 64);
  Add(192, 192);
  const std::vector<uint16_t> wide = OfWorkerAttention(/*exact=*/false, /*is_recorded=*/false, /*is_sm90=*/true);
  using Grids = std::vector<std::pair<const void*, int>>;
  EXPECT_EQ(grids_, (Grids{{kernels_->attention_prefill_sm90.entry, 2}})) << "no merge";
  const std::vector<uint16_t> narrow = OfWorkerAttention(/*exact=*/false, /*is_recorded=*/false, /*is_sm90=*/false);
  ASSERT_EQ(wide.size(), narrow.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    ASSERT_NEAR(ToFloat(BFloat16{wide[i]}), ToFloat(BFloat16{narrow[i]}), 0.02f) << i;
  }
}

TEST_F(WorkerAttentionTest, RecordedLaunchesComputeTheSame) {
  Add(300, 1);
  Add(30, 1);
  const std::vector<uint16_t> expected = OfWorkerAttention(false, /*is_recorded=*/false);
  EXPECT_EQ(OfWorkerAttention(false, /*is_recorded=*/true), expected);
}

}  // namespace
}  // namespace quire::cuda
