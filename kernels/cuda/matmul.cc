// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matmul.h"

#include <bit>
#include <initializer_list>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/fatal.h"

namespace quire::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(MatmulAlgorithm));

[[noreturn]] void Die(const MatmulShape& shape, const char* problem) {
  Fatal("multiplication of %d rows by %d columns, depth %d, %s to %s%s: %s", shape.num_rows, shape.num_columns,
        shape.depth, NameOfNumbers(shape), NameOfResults(shape), shape.adds_to_y ? ", added" : "", problem);
}

void CheckAlignment(const MatmulShape& shape, std::initializer_list<const void*> matrices) {
  for (const void* const data : matrices) {
    if (reinterpret_cast<uintptr_t>(data) % kMatmulAlignment != 0)
      Die(shape, "x, w, y and scales must be aligned to 16");
  }
}

}  // namespace

Matmul::Matmul(cudaStream_t stream, const MatmulOptions& options) : options_(options), stream_(stream) {
  CheckCuda(cudaDriverGetVersion(&driver_version_), "cudaDriverGetVersion");
  CheckCublas(cublasLtCreate(&handle_), "cublasLtCreate");
  CheckCuda(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc(%zu)", kWorkspaceBytes);
  choices_ = std::make_unique<MatmulCache>(options.exact ? "" : options.tuning_cache,
                                           options.device_name + ", cuBLASLt " + std::to_string(cublasLtGetVersion()) +
                                               ", driver " + std::to_string(driver_version_));
}

Matmul::~Matmul() {
  CheckCuda(cudaFree(workspace_), "cudaFree(%p)", workspace_);
  CheckCublas(cublasLtDestroy(handle_), "cublasLtDestroy");
}

std::string Matmul::Fingerprint() const {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", driver " + std::to_string(driver_version_) +
         (options_.exact ? ", exact" : ", tuned");
}

void Matmul::Multiply(const MatmulArgs& args, bool is_recording) {
  if (args.num_rows == 0 || args.num_columns == 0) return;
  const MatmulShape shape = {args.num_rows, args.num_columns, args.depth, args.element, args.y_type, args.adds_to_y};
  const int y_stride = args.y_stride == 0 ? args.num_columns : args.y_stride;
  CheckAlignment(shape, {args.x, args.w, args.y});
  const auto algorithm = AlgorithmFor(shape, y_stride, {}, args.w, is_recording);
  if (!algorithm) Die(shape, "cuBLASLt has no algorithm for it");
  Run(shape, y_stride, {}, *algorithm, args.x, args.w, args.y);
}

bool Matmul::MultiplyInt8(const Int8MatmulArgs& args, bool is_recording) {
  const MatmulShape shape = {.num_rows = args.num_rows,
                             .num_columns = args.num_columns,
                             .depth = args.depth,
                             .element = DataType::kFloat32,
                             .y_type = DataType::kFloat32,
                             .adds_to_y = false,
                             .numbers = MatmulNumbers::kInt8};
  return TryMultiply(shape, {}, args.x, args.w, args.y, is_recording);
}

bool Matmul::MultiplyFp8(const Fp8MatmulArgs& args, bool is_recording) {
  const MatmulShape shape = {.num_rows = args.num_rows,
                             .num_columns = args.num_columns,
                             .depth = args.depth,
                             .element = DataType::kFloat32,
                             .y_type = args.y_type,
                             .adds_to_y = args.adds_to_y,
                             .numbers = args.has_blocks ? MatmulNumbers::kFp8Blocks : MatmulNumbers::kFp8};
  CheckAlignment(shape, {args.x_scales, args.w_scales});
  return TryMultiply(shape, {.x = args.x_scales, .w = args.w_scales}, args.x, args.w, args.y, is_recording);
}

bool Matmul::TryMultiply(const MatmulShape& shape, const MatmulScales& scales, const void* x, const void* w, void* y,
                         bool is_recording) {
  if (shape.num_rows == 0 || shape.num_columns == 0) return true;
  CheckAlignment(shape, {x, w, y});
  if (missing_.contains(shape)) return false;
  const auto algorithm = AlgorithmFor(shape, shape.num_columns, scales, w, is_recording);
  if (!algorithm) {
    missing_.insert(shape);
    return false;
  }
  Run(shape, shape.num_columns, scales, *algorithm, x, w, y);
  return true;
}

void Matmul::Run(const MatmulShape& shape, int y_stride, const MatmulScales& scales,
                 const cublasLtMatmulAlgo_t& algorithm, const void* x, const void* w, void* y) {
  CheckCublas(MatmulProblem(shape, y_stride, scales).Run(handle_, algorithm, x, w, y, workspace_, stream_),
              "cublasLtMatmul of %d rows by %d columns, depth %d,", shape.num_rows, shape.num_columns, shape.depth);
}

std::optional<cublasLtMatmulAlgo_t> Matmul::AlgorithmFor(const MatmulShape& shape, int y_stride,
                                                         const MatmulScales& scales, const void* w, bool is_recording) {
  const std::pair key(shape, y_stride);
  const auto found = algorithms_.find(key);
  if (found != algorithms_.end()) return found->second;
  cublasLtMatmulAlgo_t algorithm;
  MatmulProblem problem(shape, y_stride, scales);
  const bool has_choice = Choose(shape, scales, w, is_recording, &algorithm);
  if (has_choice && problem.Fits(handle_, algorithm)) return algorithms_[key] = algorithm;
  if (NeedsOneAlgorithm(shape)) {
    Die(shape, has_choice ? "the exact algorithm does not fit" : "there is no exact algorithm");
  }
  // There is no common choice, or it does not fit. Use the algorithm that the library considers best for this shape.
  const auto candidates = problem.Candidates(handle_, 1, true);
  if (candidates.empty()) return std::nullopt;
  if (has_choice || !is_recording) algorithms_[key] = candidates[0];
  return candidates[0];
}

bool Matmul::Choose(const MatmulShape& shape, const MatmulScales& scales, const void* w, bool is_recording,
                    cublasLtMatmulAlgo_t* algorithm) {
  MatmulShape common = shape;
  common.num_rows = NeedsOneAlgorithm(shape) ? 1 : RowBucket(shape.num_rows);
  if (const MatmulAlgorithm* const choice = choices_->Find(common)) {
    *algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(*choice);
    return true;
  }
  if (is_recording) return false;
  const MatmulTuner tuner(handle_, stream_, workspace_, options_.l2_bytes);
  const auto chosen = NeedsOneAlgorithm(shape) ? tuner.IndependentOfRows(common, w) : tuner.Fastest(common, scales, w);
  if (!chosen.has_value()) return false;
  choices_->Insert(common, std::bit_cast<MatmulAlgorithm>(*chosen));
  *algorithm = *chosen;
  return true;
}

}  // namespace quire::cuda
