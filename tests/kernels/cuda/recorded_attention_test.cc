// SPDX-License-Identifier: Apache-2.0

// Attention of decode steps that are recorded and repeated.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cuda/attention.h"
#include "tests/kernels/attention_steps.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/grids_device.h"

namespace quire::cuda {
namespace {

constexpr int kMostTokens = 24, kMostContext = 1400;

class RecordedAttentionTest : public ::testing::Test {
 protected:
  // Begins a step of decodes in contexts of these lengths, all of which read the same blocks.
  void BeginStep(const std::vector<int>& context_lens) {
    batch_ = {};
    for (const int context_len : context_lens) batch_.Add(table_, context_len - 1, context_len, shape_.block_size);
    const BatchView view = batch_.View();
    positions_.Upload({view.positions, view.positions + view.num_tokens});
    table_starts_.Upload({view.table_starts, view.table_starts + view.num_sequences + 1});
    block_tables_.Upload({view.block_tables, view.block_tables + view.table_starts[view.num_sequences]});
    on_device_ = view;
    on_device_.positions = positions_.data();
    on_device_.table_starts = table_starts_.data();
    on_device_.block_tables = block_tables_.data();
    attention_.BeginStep(view);
  }

  // Queues or records the attention of the step. Returns the sizes of the grids.
  std::vector<int> Run() {
    device_.grids.clear();
    attention_.Run({.batch = &on_device_,
                    .q = q_.data(),
                    .q_stride = row_size_,
                    .out = out_.data(),
                    .num_heads = shape_.num_heads,
                    .scale = 0.2f,
                    .window = 0,
                    .layout = &layout_,
                    .kv_pool = pool_.data(),
                    .out_type = shape_.type},
                   *device_.FindKernels(shape_.type, shape_.head_dim, shape_.block_size));
    std::vector<int> sizes;
    for (const auto& [entry, num_blocks] : device_.grids) sizes.push_back(num_blocks);
    return sizes;
  }

  std::vector<int> Record() {
    attention_.set_is_recording(true);
    device_.BeginRecording();
    const std::vector<int> sizes = Run();
    graph_ = device_.EndRecording();
    attention_.set_is_recording(false);
    return sizes;
  }

  static std::vector<uint16_t> Values(size_t count) {
    Random random(3);
    std::vector<uint16_t> bits(count);
    for (uint16_t& value : bits) value = ToBFloat16(random.Normal()).bits;
    return bits;
  }
  static std::vector<uint32_t> Table() {
    std::vector<uint32_t> table;
    for (uint32_t i = 0; i <= kMostContext / 16; ++i) table.push_back(i);
    return table;
  }

  // The device has two multiprocessors, so a recorded grid has at most 16 blocks, and attention should fill 4.
  const Shape shape_ = {2, 2, 32, 16, DataType::kBFloat16};
  const KvLayout layout_ = LayoutOf(shape_);
  const int row_size_ = shape_.num_heads * shape_.head_dim;
  const std::vector<uint32_t> table_ = Table();
  GridsDevice device_;
  PagedBatch batch_;
  BatchView on_device_ = {};
  DeviceArray<int32_t> positions_{&device_, kMostTokens}, table_starts_{&device_, kMostTokens + 1};
  DeviceArray<uint32_t> block_tables_{&device_, kMostTokens* Table().size()};
  DeviceArray<uint16_t> q_{&device_, Values(size_t(kMostTokens) * row_size_)};
  DeviceArray<uint16_t> pool_{&device_, Values(Table().size() * layout_.block_elements())};
  DeviceArray<uint16_t> out_{&device_, size_t(kMostTokens) * row_size_};
  CudaAttention attention_{&device_, /*exact=*/false};
  std::unique_ptr<Graph> graph_;
};

TEST_F(RecordedAttentionTest, TheGridFitsTheNumberOfItemsAndIsPartOfTheName) {
  BeginStep({20});
  EXPECT_EQ(Run(), std::vector<int>{2}) << "one item for each KV head";
  EXPECT_EQ(attention_.PlanForRecording(), "d2 ");
  EXPECT_EQ(Record(), std::vector<int>{2});
  BeginStep({20, 21, 22});
  EXPECT_EQ(attention_.PlanForRecording(), "d8 ");
  EXPECT_EQ(Record(), std::vector<int>{8}) << "as for four items";
  BeginStep({20, 21, 22, 23});
  EXPECT_EQ(attention_.PlanForRecording(), "d8 ");
  BeginStep(std::vector<int>(20, 30));
  EXPECT_EQ(attention_.PlanForRecording(), "d16 ");
  EXPECT_EQ(Record(), std::vector<int>{16}) << "no more than the device can use";
}

TEST_F(RecordedAttentionTest, AStepMayBeRecordedWithAKernelThatNoStepNeededBefore) {
  BeginStep({20});
  Run();
  BeginStep({600});
  EXPECT_EQ(attention_.PlanForRecording(), "d4m2 ");
  Record();  // The device would end the process if the code of the merge were not loaded.
}

TEST_F(RecordedAttentionTest, ARecordingServesEveryStepOfItsName) {
  BeginStep({20});
  Run();
  using Lengths = std::vector<int>;
  for (const auto& [recorded, repeated] :
       {std::pair(Lengths{600}, Lengths{520}), std::pair(Lengths{20, 21, 22}, Lengths{100, 90, 80, 70})}) {
    BeginStep(recorded);
    const std::string name = attention_.PlanForRecording();
    Record();
    BeginStep(repeated);
    ASSERT_EQ(attention_.PlanForRecording(), name);
    out_.Upload({0});
    device_.Replay(*graph_);
    const std::vector<uint16_t> replayed = out_.Download();
    out_.Upload({0});
    Run();
    EXPECT_EQ(out_.Download(), replayed);
  }
}

TEST_F(RecordedAttentionTest, ALongContextIsCutIntoAsManyPartsAsFillTheDevice) {
  BeginStep({1400});  // It has six splits.
  EXPECT_EQ(Run(), (std::vector<int>{2 * 2, 2})) << "two parts for each of two KV heads, and their merges";
  const std::vector<uint16_t> in_parts = out_.Download();
  CudaAttention exact(&device_, /*exact=*/true);
  exact.BeginStep(batch_.View());
  device_.grids.clear();
  exact.Run({.batch = &on_device_,
             .q = q_.data(),
             .q_stride = row_size_,
             .out = out_.data(),
             .num_heads = shape_.num_heads,
             .scale = 0.2f,
             .window = 0,
             .layout = &layout_,
             .kv_pool = pool_.data(),
             .out_type = shape_.type},
            *device_.FindKernels(shape_.type, shape_.head_dim, shape_.block_size));
  EXPECT_EQ(device_.grids[0].second, 6 * 2) << "every split is a part";
  const std::vector<uint16_t> in_splits = out_.Download();
  for (int i = 0; i < row_size_; ++i) {
    const float a = ToFloat(BFloat16{in_parts[i]}), b = ToFloat(BFloat16{in_splits[i]});
    EXPECT_NEAR(a, b, 0.01 * std::abs(b) + 1e-3) << i;
  }
}

}  // namespace
}  // namespace quire::cuda
