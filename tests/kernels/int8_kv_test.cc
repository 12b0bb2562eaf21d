// SPDX-License-Identifier: Apache-2.0

// K and V of int8: the bytes that are stored, and attention over them. All comparisons with the reference are bit for
// bit.

#include <algorithm>
#include <set>

#include "kernels/cpu/kv_unit.h"
#include "kernels/reference/dense.h"
#include "kernels/reference/int8_attention.h"
#include "tests/kernels/attention_steps.h"

namespace quire {
namespace {

using Int8KvTest = CpuBackendTest;

Shape Int8Shape(int num_heads, int num_kv_heads, int head_dim, int block_size) {
  return {.num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .block_size = block_size,
          .type = DataType::kFloat32,
          .int8_kv = true};
}

// The head `head` of token `token` of an array [tokens, num_heads, head_dim].
const float* HeadOf(const std::vector<float>& all, int num_heads, int head, int head_dim, int token) {
  return all.data() + (int64_t{token} * num_heads + head) * head_dim;
}

reference::Int8Head RoundedHead(const Shape& shape, const Sequence& sequence, int kv_head) {
  reference::Int8Head head;
  for (int t = 0; t < sequence.num_tokens; ++t) {
    head.keys.push_back(
        reference::Quantize(HeadOf(sequence.k, shape.num_kv_heads, kv_head, shape.head_dim, t), shape.head_dim));
    head.values.push_back(
        reference::Quantize(HeadOf(sequence.v, shape.num_kv_heads, kv_head, shape.head_dim, t), shape.head_dim));
  }
  return head;
}

float Scale(const Shape& shape) {
  return 1 / std::sqrt(float(shape.head_dim));
}

std::vector<float> Expected(const Shape& shape, const Sequence& sequence, bool is_fused) {
  std::vector<reference::Int8Head> heads;
  for (int head = 0; head < shape.num_kv_heads; ++head) heads.push_back(RoundedHead(shape, sequence, head));
  std::vector<float> out;
  for (int t = 0; t < sequence.num_tokens; ++t) {
    const int begin = shape.window == 0 ? 0 : std::max(0, t + 1 - shape.window);
    for (int h = 0; h < shape.num_heads; ++h) {
      const float* q = HeadOf(sequence.q, shape.num_heads, h, shape.head_dim, t);
      const std::vector<float> row =
          reference::Int8Attend({q, q + shape.head_dim}, heads[h * shape.num_kv_heads / shape.num_heads], begin, t + 1,
                                Scale(shape), is_fused);
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

// The bits of x86 without fused multiply-add.
bool IsFused(cpu::Isa isa) {
  return isa != cpu::Isa::kGeneric;
}

TEST(Int8KvLayoutTest, ABlockHasTheScalesOfItsTokens) {
  KvLayout layout = {.num_layers = 3, .num_kv_heads = 2, .head_dim = 64, .block_size = 32, .type = KvType::kInt8};
  // 16 tokens of 64 numbers and a scale of 4 bytes, for K and for V, in two units for each of two heads.
  EXPECT_EQ(layout.unit_bytes(), 2u * 16 * (64 + 4));
  EXPECT_EQ(layout.block_bytes(), 2u * 32 * 2 * (64 + 4));
  EXPECT_EQ(layout.block_bytes_all_layers(), 3 * layout.block_bytes());
  EXPECT_EQ(layout.unit_start(1, 1, 20), 7 * layout.unit_bytes());
  EXPECT_EQ(layout.value_scales_start() + 16 * sizeof(float), layout.unit_bytes());
  layout.block_size = 1;
  layout.head_dim = 2;
  EXPECT_EQ(layout.unit_bytes(), 2u * (2 + 4));
}

// With heads of 64, int8 takes 68 bytes where bfloat16 takes 128. With heads of 128 it takes 132 of 256.
TEST(Int8KvLayoutTest, BlocksAreLittleMoreThanHalfOfThoseOf16Bits) {
  for (const auto& [head_dim, share] : {std::pair(64, 0.53125), std::pair(128, 0.515625)}) {
    const KvLayout int8 = {
        .num_layers = 2, .num_kv_heads = 4, .head_dim = head_dim, .block_size = 16, .type = KvType::kInt8};
    KvLayout bfloat16 = int8;
    bfloat16.type = KvType::kBFloat16;
    EXPECT_EQ(double(int8.block_bytes_all_layers()) / double(bfloat16.block_bytes_all_layers()), share);
  }
}

TEST_P(Int8KvTest, TheStoredBytesAreThoseOfTheFormula) {
  const auto backend = MakeBackend();
  Random random(1);
  for (const int block_size : {1, 4, 16, 32}) {
    for (const int head_dim : {6, 32, 80}) {
      const Shape shape = Int8Shape(2, 2, head_dim, block_size);
      SCOPED_TRACE(ToString(shape));
      Sequence sequence = MakeSequence(shape, 21, &random);
      const size_t row = size_t(shape.num_kv_heads) * head_dim;
      std::fill_n(sequence.k.begin() + 3 * int64_t(row), row, 0.0f);       // Token 3.
      std::fill_n(sequence.v.begin() + 4 * int64_t(row), row, 0x1p-120f);  // So small that it counts as zero.
      std::fill_n(sequence.v.begin() + 5 * int64_t(row), row, 1e38f);
      sequence.k[6 * row + 1] = INFINITY;  // In head 0 only.
      sequence.v[7 * row + 1] = NAN;
      PagedPool pool(LayoutOf(shape), 30, &random);
      const std::vector<uint32_t> table = pool.MakeTable(sequence.num_tokens);
      for (int begin = 0; const int end : {2, 9, 12, 21}) {
        RunStep(backend.get(), shape, &pool, {{&sequence, table, begin, end}});
        begin = end;
      }
      const KvLayout& layout = pool.layout();
      for (int t = 0; t < sequence.num_tokens; ++t) {
        for (int h = 0; h < shape.num_kv_heads; ++h) {
          const int in_unit = t % block_size % layout.unit_tokens();
          const auto* unit =
              static_cast<const int8_t*>(pool.data()) + layout.unit_start(table[t / block_size], h, t % block_size);
          const auto check = [&](const std::vector<float>& all, const cpu::UnitStrides& strides, size_t scales) {
            const reference::QuantizedRow expected =
                reference::Quantize(HeadOf(all, shape.num_kv_heads, h, head_dim, t), head_dim);
            for (int d = 0; d < head_dim; ++d) {
              ASSERT_EQ(int(unit[strides.At(d)]), expected.values[d]) << "token " << t << " dimension " << d;
            }
            float scale;
            memcpy(&scale, unit + scales + in_unit * sizeof(float), sizeof(scale));
            if (std::isnan(expected.scale)) {
              EXPECT_TRUE(std::isnan(scale)) << "token " << t << " head " << h;
            } else {
              EXPECT_EQ(scale, expected.scale) << "token " << t << " head " << h;
            }
          };
          check(sequence.k, cpu::KeyStrides(layout, in_unit), layout.key_scales_start());
          check(sequence.v, cpu::ValueStrides(layout, in_unit), layout.value_scales_start());
        }
      }
    }
  }
}

// A copy-on-write fork copies a block that other tokens have been appended to, and a preempted request writes its
// tokens again. Neither may change what is stored for the others.
TEST_P(Int8KvTest, AppendingWritesNothingButTheSlotsOfTheBatch) {
  const auto backend = MakeBackend();
  Random random(2);
  for (const int block_size : {2, 16}) {
    const Shape shape = Int8Shape(2, 2, 16, block_size);
    const Sequence sequence = MakeSequence(shape, 20, &random);
    PagedPool pool(LayoutOf(shape), 20, &random);
    const auto* bytes = static_cast<const char*>(pool.data());
    const std::vector<uint32_t> table = pool.MakeTable(20);
    const std::vector<char> before(bytes, bytes + pool.bytes());
    RunStep(backend.get(), shape, &pool, {{&sequence, table, 15, 18}});
    const KvLayout& layout = pool.layout();
    std::set<size_t> slots;  // Places of the bytes that belong to the three tokens.
    for (int t = 15; t < 18; ++t) {
      for (int h = 0; h < 2; ++h) {
        const int in_unit = t % block_size % layout.unit_tokens();
        const size_t unit = layout.unit_start(table[t / block_size], h, t % block_size);
        for (int d = 0; d < 16; ++d) {
          slots.insert(unit + cpu::KeyStrides(layout, in_unit).At(d));
          slots.insert(unit + cpu::ValueStrides(layout, in_unit).At(d));
        }
        for (size_t i = in_unit * sizeof(float); i < (in_unit + 1) * sizeof(float); ++i) {
          slots.insert(unit + layout.key_scales_start() + i);
          slots.insert(unit + layout.value_scales_start() + i);
        }
      }
    }
    EXPECT_EQ(slots.size(), 3u * 2 * 2 * (16 + 4)) << "3 tokens, K and V, 2 heads";
    for (size_t i = 0; i < pool.bytes(); ++i) {
      if (slots.contains(i)) continue;
      ASSERT_EQ(bytes[i], before[i]) << "byte " << i;
    }
  }
}

TEST_P(Int8KvTest, AttentionHasTheBitsOfTheFormula) {
  const auto backend = MakeBackend();
  Random random(3);
  const int head_dims[] = {2, 24, 64, 80, 128, 256};
  for (int i = 0; i < 18; ++i) {
    const int num_kv_heads = random.Int(1, 2);
    Shape shape = Int8Shape(num_kv_heads * random.Int(1, i % 6 == 0 ? 12 : 5), num_kv_heads, head_dims[i % 6],
                            i % 4 == 3 ? 4 : 16 << random.Int(0, 2));
    shape.window = i % 5 == 4 ? random.Int(1, 70) : 0;
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << ToString(shape));
    const Sequence sequence = MakeSequence(shape, random.Int(1, 130), &random);
    const std::vector<int> chunks = RandomChunks(sequence.num_tokens, i % 2 == 0 ? 3 : 90, &random);
    const std::vector<float> out = RunChunks(backend.get(), shape, sequence, chunks, i);
    ASSERT_EQ(Bits(out), Bits(Expected(shape, sequence, IsFused(GetParam()))));
  }
}

TEST_P(Int8KvTest, LongContextsHaveTheBitsOfTheFormula) {
  const auto backend = MakeBackend(4);
  Random random(4);
  const Shape shape = Int8Shape(2, 1, 32, 16);
  const Sequence sequence = MakeSequence(shape, 1100, &random);
  const std::vector<float> out = RunChunks(backend.get(), shape, sequence, {1000, 1099, 1100}, 3);
  EXPECT_EQ(Bits(out), Bits(Expected(shape, sequence, IsFused(GetParam()))));
}

// The error of attention comes from rounding K and V to 8 bits. Beside it, the other factors of the products, which
// have 16 bits, change little.
TEST_P(Int8KvTest, AttentionIsThatOverTheRoundedNumbers) {
  const auto backend = MakeBackend();
  Random random(5);
  for (const float softcap : {0.0f, 1.5f}) {
    Shape shape = Int8Shape(2, 1, 64, 16);
    shape.softcap = softcap;
    SCOPED_TRACE(ToString(shape));
    const Sequence sequence = MakeSequence(shape, 700, &random);
    const std::vector<float> out = RunChunks(backend.get(), shape, sequence, {700}, 1);
    std::vector<double> k, v;
    const reference::Int8Head head = RoundedHead(shape, sequence, 0);
    for (int t = 0; t < 700; ++t) {
      for (const int value : head.keys[t].values) k.push_back(double(value) * head.keys[t].scale);
      for (const int value : head.values[t].values) v.push_back(double(value) * head.values[t].scale);
    }
    std::vector<double> expected;
    for (int t = 0; t < 700; ++t) {
      for (int h = 0; h < 2; ++h) {
        const float* q = HeadOf(sequence.q, 2, h, 64, t);
        const std::vector<double> row = reference::Attend({q, q + 64}, k, v, 0, t + 1, 1 / std::sqrt(64.0), softcap);
        expected.insert(expected.end(), row.begin(), row.end());
      }
    }
    EXPECT_LT(RelativeError(out, expected), 1e-4);
  }
}

TEST(Int8KvIsaTest, InstructionSetsWithFusedMultiplyAddGiveTheSameBits) {
  Random random(6);
  const Shape shape = Int8Shape(6, 2, 32, 16);
  const Sequence sequence = MakeSequence(shape, 700, &random);
  std::vector<float> first;
  for (const cpu::Isa isa : TestedIsas()) {
    if (!IsFused(isa)) continue;
    const std::vector<float> out = RunChunks(cpu::MakeCpuBackend(2, isa).get(), shape, sequence, {600, 601, 700}, 1);
    if (first.empty()) first = out;
    EXPECT_EQ(Bits(out), Bits(first)) << cpu::Name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Int8KvTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
