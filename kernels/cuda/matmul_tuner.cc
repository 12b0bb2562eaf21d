// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matmul_tuner.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/cuda_check.h"
#include "kernels/fp8.h"
#include "kernels/half_float.h"

namespace quire::cuda {
namespace {

constexpr int kCandidates = 16;
constexpr int kRuns = 7;          // Number of timed runs, after one that is not timed.
constexpr int kGuessedRows = 64;  // The number of rows for which an algorithm for all numbers of rows is requested.
constexpr size_t kTrialBytes = 64 << 20;  // Size of y in the trial of such an algorithm.
constexpr size_t kPatternElements = 1 << 20;

// Its memory is null when there is not enough.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : bytes_(bytes) {
    const cudaError_t error = cudaMalloc(&data_, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // Clears the error.
      data_ = nullptr;
      return;
    }
    CheckCuda(error, "cudaMalloc(%zu)", bytes);
  }
  ~Scratch() { CheckCuda(cudaFree(data_), "cudaFree(%p)", data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

class Event {
 public:
  Event() { CheckCuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { CheckCuda(cudaEventDestroy(event_), "cudaEventDestroy"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

size_t XBytes(const MatmulShape& shape) {
  return size_t(shape.num_rows) * shape.depth * (shape.numbers == MatmulNumbers::kElements ? SizeOf(shape.element) : 1);
}
size_t YBytes(const MatmulShape& shape) {
  return size_t(shape.num_rows) * shape.num_columns * SizeOf(shape.y_type);
}

// Only products of FP8 read them, but memory of 0 bytes would have no address.
size_t ScaleBytes(const MatmulShape& shape) {
  if (!IsFp8(shape.numbers)) return sizeof(float);
  // In blocks there are fewer scales than one for each row or column in each block of the depth, rounded up as in
  // byte_numbers.h, which is for kernels.
  constexpr int kMultiple = 4;
  const int num_blocks = shape.numbers == MatmulNumbers::kFp8Blocks ? shape.depth / kFp8BlockSide + kMultiple : 1;
  return sizeof(float) * size_t(num_blocks) * std::max(shape.num_rows, shape.num_columns);
}

// The pattern is fixed, because the power draw of a GPU, and so its clock rate, depends on the bits it multiplies.
void FillRandomly(char* x, const MatmulShape& shape, cudaStream_t stream) {
  std::vector<uint16_t> pattern(kPatternElements);
  std::mt19937 random(1);
  for (uint16_t& value : pattern) {
    const uint32_t number = uint32_t(random());
    const float uniform = float(number) * 0x1p-31f - 1;
    switch (shape.numbers) {
      case MatmulNumbers::kInt8:
        value = uint16_t(number);  // Two numbers.
        break;
      case MatmulNumbers::kFp8:
      case MatmulNumbers::kFp8Blocks:
        value = uint16_t(number) & 0xbfbf;  // Two numbers below 2, and so no NaN.
        break;
      case MatmulNumbers::kElements:
        value = shape.element == DataType::kBFloat16 ? ToBFloat16(uniform).bits : ToFloat16(uniform).bits;
        break;
    }
  }
  const size_t pattern_bytes = pattern.size() * sizeof(uint16_t), bytes = XBytes(shape);
  for (size_t at = 0; at < bytes; at += pattern_bytes) {
    CheckCuda(cudaMemcpyAsync(x + at, pattern.data(), std::min(pattern_bytes, bytes - at), cudaMemcpyDefault, stream),
              "cudaMemcpyAsync, of values to multiply,");
  }
  CheckCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace

// The memory of a trial. Numbers of FP8 need scales, and the timing does not depend on their values.
struct MatmulTuner::Trial {
  Trial(const MatmulShape& shape, size_t flush_size)
      : x(XBytes(shape)), y(YBytes(shape)), scales(ScaleBytes(shape)), flush_bytes(flush_size), flush(flush_size) {}
  bool has_memory() const {
    return x.data() != nullptr && y.data() != nullptr && scales.data() != nullptr && flush.data() != nullptr;
  }
  MatmulScales Scales() const {
    const auto* const floats = reinterpret_cast<const float*>(scales.data());
    return {.x = floats, .w = floats};
  }

  Scratch x, y, scales;
  size_t flush_bytes;
  Scratch flush;
};

std::optional<cublasLtMatmulAlgo_t> MatmulTuner::Fastest(const MatmulShape& shape, const MatmulScales& scales,
                                                         const void* w) const {
  const std::vector<cublasLtMatmulAlgo_t> candidates =
      MatmulProblem(shape, shape.num_columns, scales).Candidates(handle_, kCandidates, true);
  if (candidates.empty()) return std::nullopt;
  const Trial trial(shape, std::max<size_t>(2 * l2_bytes_, 1));
  if (!trial.has_memory()) return std::nullopt;
  MatmulProblem problem(shape, shape.num_columns, trial.Scales());
  FillRandomly(trial.x.data(), shape, stream_);
  // The products may be added to y.
  CheckCuda(cudaMemsetAsync(trial.y.data(), 0, YBytes(shape), stream_), "cudaMemsetAsync");
  CheckCuda(cudaMemsetAsync(trial.scales.data(), 0, trial.scales.bytes(), stream_), "cudaMemsetAsync");
  const cublasLtMatmulAlgo_t* best = nullptr;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    const double seconds = Time(&problem, candidate, w, trial);
    if (seconds >= best_seconds) continue;
    best = &candidate;
    best_seconds = seconds;
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

double MatmulTuner::Time(MatmulProblem* problem, const cublasLtMatmulAlgo_t& algorithm, const void* w,
                         const Trial& trial) const {
  const Event starts[kRuns], ends[kRuns];
  for (int run = -1; run < kRuns; ++run) {
    // The memset removes w from the cache, and keeps the device busy while the multiplication is queued.
    CheckCuda(cudaMemsetAsync(trial.flush.data(), 0, trial.flush_bytes, stream_), "cudaMemsetAsync");
    if (run >= 0) CheckCuda(cudaEventRecord(starts[run].get(), stream_), "cudaEventRecord");
    const cublasStatus_t answer =
        problem->Run(handle_, algorithm, trial.x.data(), w, trial.y.data(), workspace_, stream_);
    if (answer != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<double>::infinity();
    if (run >= 0) CheckCuda(cudaEventRecord(ends[run].get(), stream_), "cudaEventRecord");
  }
  CheckCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize, in the trial of a multiplication,");
  float milliseconds[kRuns];
  for (int run = 0; run < kRuns; ++run) {
    CheckCuda(cudaEventElapsedTime(&milliseconds[run], starts[run].get(), ends[run].get()), "cudaEventElapsedTime");
  }
  std::nth_element(milliseconds, milliseconds + kRuns / 2, milliseconds + kRuns);
  return milliseconds[kRuns / 2] * 1e-3;
}

std::optional<cublasLtMatmulAlgo_t> MatmulTuner::IndependentOfRows(MatmulShape shape, const void* w) const {
  shape.num_rows = kGuessedRows;
  const std::vector<cublasLtMatmulAlgo_t> candidates = MatmulProblem(shape).Candidates(handle_, kCandidates, false);
  // Rounding to 16 bits hides most differences between two orders of summation.
  MatmulShape in_float32 = shape;
  in_float32.y_type = DataType::kFloat32;
  const size_t row_bytes = size_t(shape.num_columns) * sizeof(float);
  shape.num_rows = in_float32.num_rows = int(std::clamp<size_t>(kTrialBytes / row_bytes, 2 * kGuessedRows, 1024));
  const Trial trial(in_float32, 1);
  if (!trial.has_memory()) return std::nullopt;
  FillRandomly(trial.x.data(), shape, stream_);
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    const bool has_float32 = MatmulProblem(in_float32).Fits(handle_, candidate);
    if (IsIndependentOfRows(has_float32 ? in_float32 : shape, candidate, w, trial)) return candidate;
  }
  return std::nullopt;
}

bool MatmulTuner::IsIndependentOfRows(const MatmulShape& shape, const cublasLtMatmulAlgo_t& algorithm, const void* w,
                                      const Trial& trial) const {
  const std::vector<char> all = LastRows(shape, shape.num_rows, algorithm, w, trial);
  if (all.empty()) return false;
  for (const int num_rows : {1, 2, 3, 8, 17, 64, 100}) {
    const std::vector<char> last = LastRows(shape, num_rows, algorithm, w, trial);
    if (last.empty() || !std::equal(last.begin(), last.end(), all.end() - int64_t(last.size()))) return false;
  }
  return true;
}

std::vector<char> MatmulTuner::LastRows(MatmulShape shape, int num_rows, const cublasLtMatmulAlgo_t& algorithm,
                                        const void* w, const Trial& trial) const {
  const char* const x = trial.x.data() + size_t(shape.num_rows - num_rows) * shape.depth * SizeOf(shape.element);
  shape.num_rows = num_rows;
  MatmulProblem problem(shape);
  std::vector<char> rows(YBytes(shape));
  if (!problem.Fits(handle_, algorithm)) return {};
  CheckCuda(cudaMemsetAsync(trial.y.data(), 0, rows.size(), stream_), "cudaMemsetAsync");
  if (problem.Run(handle_, algorithm, x, w, trial.y.data(), workspace_, stream_) != CUBLAS_STATUS_SUCCESS) return {};
  CheckCuda(cudaMemcpyAsync(rows.data(), trial.y.data(), rows.size(), cudaMemcpyDefault, stream_),
            "cudaMemcpyAsync, of products,");
  CheckCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize, in the trial of a multiplication,");
  return rows;
}

}  // namespace quire::cuda
