// SPDX-License-Identifier: Apache-2.0

// The memory that products by quantized matrices take beside the matrices. A worker runs steps of 1, 2, 4 and so on to
// the largest number of tokens at its start, and then gives the rest of the memory to the pool of K and V. So no other
// number of tokens may need more than these steps.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/quantized_products.h"
#include "kernels/cuda/rounded_products.h"
#include "tests/kernels/cuda/quantized_cases.h"

namespace quire::cuda {
namespace {

constexpr DataType kElement = DataType::kBFloat16;

// A device that computes nothing and counts the pieces of memory that it gives.
class IdleDevice : public EmulatedDevice {
 public:
  explicit IdleDevice(int num_multiprocessors)
      : EmulatedDevice(/*is_sm90=*/true), num_multiprocessors_(num_multiprocessors) {}

  int num_multiprocessors() const override { return num_multiprocessors_; }
  void* Allocate(size_t bytes) override {
    ++num_allocations;
    return EmulatedDevice::Allocate(bytes);
  }
  void Multiply(const MatmulArgs& /*args*/) override {}
  bool MultiplyInt8(const Int8MatmulArgs& /*args*/) override { return has_library; }
  bool MultiplyFp8(const Fp8MatmulArgs& /*args*/) override { return has_library; }

  int num_allocations = 0;
  bool has_library = true;  // Whether the library has products of 8 bits.

 protected:
  void LaunchKernel(const void* /*entry*/, int /*num_threads*/, size_t /*shared_bytes*/, const void* /*args*/,
                    size_t /*args_bytes*/, int /*num_blocks*/) override {}

 private:
  const int num_multiprocessors_;
};

// Multiplies as many tokens as the first steps of a worker have, and expects that then no number of tokens needs
// memory.
void ExpectOthersNeedNoMore(const IdleDevice& device, int most_tokens, const std::function<void(int)>& multiply) {
  for (int num_tokens = 1;; num_tokens = std::min(2 * num_tokens, most_tokens)) {
    multiply(num_tokens);
    if (num_tokens == most_tokens) break;
  }
  const int num_allocations = device.num_allocations;
  for (int num_tokens = 1; num_tokens <= most_tokens; ++num_tokens) {
    multiply(num_tokens);
    ASSERT_EQ(device.num_allocations, num_allocations) << num_tokens << " of up to " << most_tokens << " tokens";
  }
}

struct Shape {
  int num_multiprocessors, rows, cols;
};
// With some numbers of tokens, there are more splits of the columns, and so more sums, than with more tokens.
constexpr Shape kShapes[] = {{108, 2944, 3968}, {132, 4864, 512}, {108, 1024, 9856}, {5, 32, 768}, {132, 8, 128}};
constexpr int kMostTokens[] = {7, 40, 67, 185, 250, 300, 513};

TEST(ProductMemoryTest, NoNumberOfTokensNeedsMoreThanTheFirstStepsWithInputsOf16Bits) {
  for (const auto& [num_multiprocessors, rows, cols] : kShapes) {
    IdleDevice device(num_multiprocessors);
    const QuantizedCase w(QuantizedFormat::kInt4, rows, cols, 128, 1);
    const QuantizedMatrixView view = w.View();
    const auto packed = QuantizedCudaMatrix::Pack(&device, &view, 1);
    for (const int most_tokens : kMostTokens) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", " << num_multiprocessors << " multiprocessors");
      QuantizedProducts products(&device, device.FindKernels(kElement, 128, 16), kElement, /*exact=*/false,
                                 QuantizedProducts::kSliceBytes, QuantizedProducts::kMostPackedTokens);
      std::vector<uint16_t> x(size_t(most_tokens) * cols), y(size_t(most_tokens) * rows);
      ExpectOthersNeedNoMore(device, most_tokens, [&](int num_tokens) {
        products.Multiply(x.data(), *packed, num_tokens, y.data(), kElement, /*adds_to_y=*/false);
      });
    }
  }
}

TEST(ProductMemoryTest, NoNumberOfTokensNeedsMoreThanTheFirstStepsWithRoundedInputs) {
  constexpr size_t kFewBytes = 256 << 10;
  for (const auto& [num_multiprocessors, rows, cols] : kShapes) {
    IdleDevice device(num_multiprocessors);
    const auto expect_no_more = [&, rows = rows, cols = cols](const QuantizedCase& w, size_t sum_bytes) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", " << device.num_multiprocessors()
                                      << " multiprocessors, " << Name(w.format) << ", in blocks " << w.has_blocks
                                      << ", library " << device.has_library << ", " << sum_bytes << " bytes for sums");
      const QuantizedMatrixView view = w.View();
      const auto packed = ByteCudaMatrix::Pack(&device, &view, 1);
      for (const int most_tokens : kMostTokens) {
        RoundedProducts products(&device, device.FindKernels(kElement, 128, 16), kElement, sum_bytes,
                                 /*most_tokens_at_once=*/128);
        std::vector<uint16_t> x(size_t(most_tokens) * cols), y(size_t(most_tokens) * rows);
        ExpectOthersNeedNoMore(device, most_tokens, [&](int num_tokens) {
          products.Multiply(x.data(), *packed, num_tokens, y.data(), kElement, /*adds_to_y=*/false);
        });
      }
    };
    for (const QuantizedCase& w :
         {QuantizedCase(QuantizedFormat::kInt8, rows, cols, 0, 1),
          QuantizedCase(QuantizedFormat::kFp8, rows, cols, cols, 1), QuantizedCase::InBlocks(rows, cols, 1)}) {
      for (const bool has_library : {true, false}) {
        device.has_library = has_library;
        for (const size_t sum_bytes : {RoundedProducts::kSumBytes, kFewBytes}) expect_no_more(w, sum_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
