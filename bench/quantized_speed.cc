// SPDX-License-Identifier: Apache-2.0

#include "bench/quantized_speed.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/random_array.h"
#include "kernels/cuda/quantized_products.h"
#include "kernels/cuda/rounded_products.h"
#include "tests/kernels/cuda/quantized_cases.h"

namespace quire::cuda {
namespace {

constexpr DataType kElement = DataType::kBFloat16;
constexpr int kGroup = 128;  // Columns that share a scale.
constexpr int kPatternRows = 256;

// Returns a matrix whose rows repeat after kPatternRows, and copies of it; null pointers if there is no memory.
template <typename Matrix>
std::vector<std::unique_ptr<Matrix>> Copies(CudaDevice* device, QuantizedFormat format, bool has_blocks,
                                            const ModelMatrix& m, const GpuTimer& timer) {
  constexpr int kSeed = 3;
  const int group = std::is_same_v<Matrix, ByteCudaMatrix> ? m.depth : kGroup;
  const QuantizedCase pattern = has_blocks ? QuantizedCase::InBlocks(kPatternRows, m.depth, kSeed)
                                           : QuantizedCase(format, kPatternRows, m.depth, group, kSeed);
  const std::vector<QuantizedMatrixView> stack(m.num_columns / kPatternRows, pattern.View());
  std::vector<std::unique_ptr<Matrix>> copies;
  copies.push_back(Matrix::Pack(device, stack.data(), int(stack.size())));
  if (copies[0] == nullptr) return copies;
  const int count = timer.CopiesToFillCaches(size_t(copies[0]->num_bytes()));
  while (int(copies.size()) < count && copies.back() != nullptr) copies.push_back(copies[0]->Copy());
  return copies;
}

// Where and how products are measured.
struct ProductMeasurement {
  CudaDevice* device;
  const std::function<bool(const std::string&, const std::string&)>& wants;
  GpuTimer* timer;
  GpuReport* report;
};

// Measures the products by matrices of one format.
template <typename Matrix, typename Products>
void MeasureProducts(const ProductMeasurement& to, const std::string& group, QuantizedFormat format, bool has_blocks,
                     Products* products) {
  for (const ModelMatrix& m : kModelMatrices) {
    const auto is_wanted = [&](int num_rows) { return to.wants(group, m.ProductName(num_rows)); };
    if (std::none_of(std::begin(kProductRows), std::end(kProductRows), is_wanted)) continue;
    const std::vector<std::unique_ptr<Matrix>> w = Copies<Matrix>(to.device, format, has_blocks, m, *to.timer);
    if (w.back() == nullptr) {
      to.report->Skip(group, m.name, "no memory for the matrices");
      continue;
    }
    for (const int num_rows : kProductRows) {
      if (!is_wanted(num_rows)) continue;
      const RandomArray x(to.device, size_t(num_rows) * m.depth);
      DeviceArray<uint16_t> y(to.device, size_t(num_rows) * m.num_columns);
      const GpuTime time = to.timer->Time([&](int i) {
        products->Multiply(x.data(), *w[i % w.size()], num_rows, y.data(), kElement, /*adds_to_y=*/false);
      });
      to.report->Add({.group = group,
                      .name = m.ProductName(num_rows),
                      .time = time,
                      .bytes = double(w[0]->num_bytes()) + 2.0 * num_rows * (double(m.depth) + m.num_columns),
                      .flops = 2.0 * num_rows * m.num_columns * double(m.depth),
                      .compared = to.report->SecondsOf(kProductGroup, m.ProductName(num_rows))});
    }
  }
}

}  // namespace

void MeasureQuantizedProducts(CudaDevice* device, bool exact,
                              const std::function<bool(const std::string&, const std::string&)>& wants, GpuTimer* timer,
                              GpuReport* report) {
  const ProductMeasurement to = {device, wants, timer, report};
  const KernelTable* const kernels = device->FindKernels(kElement, 128, 16);
  for (const QuantizedFormat format : {QuantizedFormat::kInt4, QuantizedFormat::kInt8, QuantizedFormat::kFp8}) {
    QuantizedProducts products(device, kernels, kElement, exact, QuantizedProducts::kSliceBytes,
                               QuantizedProducts::kMostPackedTokens);
    MeasureProducts<QuantizedCudaMatrix>(to, std::string("multiplication by ") + Name(format), format, false,
                                         &products);
  }
  // Both ways with all numbers of rows show whether kMostInt8Tokens and kMostFp8Tokens are right.
  using Limit = std::optional<int>;
  for (const auto& [format, has_blocks] :
       {std::pair(QuantizedFormat::kInt8, false), std::pair(QuantizedFormat::kFp8, false),
        std::pair(QuantizedFormat::kFp8, true)}) {
    if (format == QuantizedFormat::kFp8 && !kernels->rounded_fp8.exist()) continue;
    const std::string kind = std::string(Name(format)) + (has_blocks ? " in blocks" : "");
    for (const auto& [way, most_few_tokens] :
         {std::pair("", Limit()), std::pair(", all by our kernel", Limit(std::numeric_limits<int>::max())),
          std::pair(", all by cuBLASLt", Limit(0))}) {
      RoundedProducts products(device, kernels, kElement, RoundedProducts::kSumBytes,
                               RoundedProducts::kMostTokensAtOnce, most_few_tokens);
      MeasureProducts<ByteCudaMatrix>(to, "multiplication of rounded rows by " + kind + way, format, has_blocks,
                                      &products);
    }
  }
}

}  // namespace quire::cuda
