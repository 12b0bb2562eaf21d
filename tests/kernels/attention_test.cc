#include <algorithm>

#include "kernels/reference/dense.h"
#include "tests/kernels/attention_steps.h"

namespace quire {
namespace {

// Every position of one head as a matrix [tokens, head_dim], as stored.
std::vector<double> HeadOf(const std::vector<float>& all, int num_heads, int head, int head_dim, DataType type) {
  std::vector<double> result;
  for (size_t start = size_t(head) * head_dim; start < all.size(); start += size_t(num_heads) * head_dim) {
    for (int d = 0; d < head_dim; ++d) result.push_back(Rounded(all[start + d], type));
  }
  return result;
}

std::vector<double> Expected(const Shape& shape, const Sequence& sequence) {
  const int dim = shape.head_dim;
  std::vector<std::vector<double>> k, v;
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    k.push_back(HeadOf(sequence.k, shape.num_kv_heads, head, dim, shape.type));
    v.push_back(HeadOf(sequence.v, shape.num_kv_heads, head, dim, shape.type));
  }
  std::vector<double> out;
  for (int t = 0; t < sequence.num_tokens; ++t) {
    const int begin = shape.window == 0 ? 0 : std::max(0, t + 1 - shape.window);
    for (int h = 0; h < shape.num_heads; ++h) {
      const int kv_head = h * shape.num_kv_heads / shape.num_heads;
      const auto q = sequence.q.begin() + (int64_t{t} * shape.num_heads + h) * dim;
      const std::vector<double> row =
          reference::Attend({q, q + dim}, k[kv_head], v[kv_head], begin, t + 1, 1 / std::sqrt(double(dim)));
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

using AttentionTest = CpuBackendTest;

TEST_P(AttentionTest, AgreesWithTheReferenceForEveryShapeAndType) {
  const auto backend = MakeBackend();
  Random random(1);
  const int head_dims[] = {2, 8, 16, 24, 64, 80, 128, 256};
  const int block_sizes[] = {1, 2, 4, 8, 16, 32, 64};
  for (int i = 0; i < 48; ++i) {
    const int num_kv_heads = random.Int(1, 3);
    const Shape shape = {.num_heads = num_kv_heads * random.Int(1, i % 8 == 0 ? 12 : 4),
                         .num_kv_heads = num_kv_heads,
                         .head_dim = head_dims[i % 8],
                         .block_size = block_sizes[random.Int(0, 6)],
                         .type = kAllTypes[i % 3],
                         .window = i % 4 == 3 ? random.Int(1, 70) : 0};
    const Sequence sequence = MakeSequence(shape, random.Int(1, 150), &random);
    const std::vector<int> chunks = RandomChunks(sequence.num_tokens, i % 2 == 0 ? 1 : 90, &random);
    const std::vector<float> out = RunChunks(backend.get(), shape, sequence, chunks, i);
    EXPECT_LT(RelativeError(out, Expected(shape, sequence)), 2e-6) << "case " << i << ": " << ToString(shape);
  }
}

TEST_P(AttentionTest, JoinsTheSplitsOfLongContexts) {
  const auto backend = MakeBackend(4);
  Random random(2);
  for (const int window : {0, 700}) {
    const Shape shape = {.num_heads = 2,
                         .num_kv_heads = 1,
                         .head_dim = 32,
                         .block_size = 16,
                         .type = DataType::kBFloat16,
                         .window = window};
    const Sequence sequence = MakeSequence(shape, 1300, &random);
    const std::vector<float> out = RunChunks(backend.get(), shape, sequence, {1200, 1299, 1300}, 3);
    EXPECT_LT(RelativeError(out, Expected(shape, sequence)), 2e-6) << ToString(shape);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, testing::ValuesIn(cpu::SupportedIsas()), IsaName);

}  // namespace
}  // namespace quire
