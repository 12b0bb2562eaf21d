// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matmul_problem.h"

#include "kernels/cuda/cuda_check.h"

namespace quire::cuda {
namespace {

cudaDataType_t CudaType(DataType type) {
  return type == DataType::kFloat32 ? CUDA_R_32F : type == DataType::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

cudaDataType_t NumberType(const MatmulShape& shape) {
  switch (shape.numbers) {
    case MatmulNumbers::kInt8:
      return CUDA_R_8I;
    case MatmulNumbers::kFp8:
    case MatmulNumbers::kFp8Blocks:
      return CUDA_R_8F_E4M3;
    case MatmulNumbers::kElements:
      break;
  }
  return CudaType(shape.element);
}

template <typename Value>
void Prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  CheckCublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
              "cublasLtMatmulPreferenceSetAttribute(%d)", int(attribute));
}

// Returns whether the depth is or may be cut into parts that are added at the end. A negative number lets the library
// choose.
bool IsSplit(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t num_splits = 0;
  uint32_t scheme = 0;
  size_t written = 0;
  CheckCublas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &num_splits,
                                                   sizeof(num_splits), &written),
              "cublasLtMatmulAlgoConfigGetAttribute(SPLITK_NUM)");
  CheckCublas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                   sizeof(scheme), &written),
              "cublasLtMatmulAlgoConfigGetAttribute(REDUCTION_SCHEME)");
  return num_splits > 1 || num_splits < 0 || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}

}  // namespace

MatmulProblem::MatmulProblem(const MatmulShape& shape, int y_stride, const MatmulScales& scales)
    : adds_to_y_(shape.adds_to_y), numbers_(shape.numbers) {
  const bool is_int8 = numbers_ == MatmulNumbers::kInt8;
  const cudaDataType_t element = NumberType(shape);
  const cudaDataType_t y_type = is_int8 ? CUDA_R_32I : CudaType(shape.y_type);
  const cublasComputeType_t compute_type = is_int8 ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F;
  const int n = shape.num_columns, k = shape.depth, m = shape.num_rows;
  CheckCublas(cublasLtMatmulDescInit(&operation_, compute_type, is_int8 ? CUDA_R_32I : CUDA_R_32F),
              "cublasLtMatmulDescInit");
  const cublasOperation_t transposed = CUBLAS_OP_T;  // The second factor is not transposed by default.
  CheckCublas(cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
              "cublasLtMatmulDescSetAttribute(TRANSA)");
  if (IsFp8(numbers_)) SetScales(scales);
  CheckCublas(cublasLtMatrixLayoutInit(&w_, element, k, n, k), "cublasLtMatrixLayoutInit(w %d x %d)", k, n);
  CheckCublas(cublasLtMatrixLayoutInit(&x_, element, k, m, k), "cublasLtMatrixLayoutInit(x %d x %d)", k, m);
  CheckCublas(cublasLtMatrixLayoutInit(&y_, y_type, n, m, y_stride), "cublasLtMatrixLayoutInit(y %d x %d)", n, m);
}

void MatmulProblem::SetScales(const MatmulScales& scales) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    is_known_ = is_known_ &&
                cublasLtMatmulDescSetAttribute(&operation_, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  const bool has_blocks = numbers_ == MatmulNumbers::kFp8Blocks;
  constexpr int32_t kScaleOfEachRow = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
      has_blocks ? int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F} : kScaleOfEachRow);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
      has_blocks ? int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F} : kScaleOfEachRow);
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(scales.w));
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(scales.x));
  // Otherwise the sums of all products of a row have the few bits of the tensor cores.
  set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{0});
}

std::vector<cublasLtMatmulAlgo_t> MatmulProblem::Candidates(cublasLtHandle_t handle, int count, bool allows_split) {
  if (!is_known_) return {};
  cublasLtMatmulPreferenceOpaque_t preference;
  CheckCublas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  Prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  // Either the partial sums are kept and added in float32, or there are none. Other schemes would keep them in the type
  // of y.
  const uint32_t schemes = allows_split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
  Prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Prefer(&preference, attribute, kMatmulAlignment);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(count);
  int num_results = 0;
  const cublasStatus_t answer = cublasLtMatmulAlgoGetHeuristic(handle, &operation_, &w_, &x_, &y_, &y_, &preference,
                                                               count, results.data(), &num_results);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  // The library says of some shapes of FP8 that they are invalid.
  const bool is_refused = answer == CUBLAS_STATUS_INVALID_VALUE && IsFp8(numbers_);
  if (answer == CUBLAS_STATUS_NOT_SUPPORTED || is_refused) return algorithms;
  CheckCublas(answer, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < num_results; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS || (!allows_split && IsSplit(results[i].algo))) continue;
    algorithms.push_back(results[i].algo);
  }
  return algorithms;
}

bool MatmulProblem::Fits(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle, &operation_, &w_, &x_, &y_, &y_, &algorithm, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kWorkspaceBytes;
}

cublasStatus_t MatmulProblem::Run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, const void* x,
                                  const void* w, void* y, void* workspace, cudaStream_t stream) {
  // The factors have the type in which the sums are scaled.
  const float one = 1, zero = 0;
  const int32_t whole_one = 1, whole_zero = 0;
  const bool is_int8 = numbers_ == MatmulNumbers::kInt8;
  const void* const alpha = is_int8 ? static_cast<const void*>(&whole_one) : &one;
  const void* const none = is_int8 ? static_cast<const void*>(&whole_zero) : &zero;
  const void* const beta = adds_to_y_ ? alpha : none;
  return cublasLtMatmul(handle, &operation_, alpha, w, &w_, x, &x_, beta, y, &y_, y, &y_, &algorithm, workspace,
                        kWorkspaceBytes, stream);
}

}  // namespace quire::cuda
