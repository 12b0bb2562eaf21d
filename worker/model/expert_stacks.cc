// SPDX-License-Identifier: Apache-2.0

#include "worker/model/expert_stacks.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/model/moe_family.h"
#include "worker/model/mxfp4.h"

namespace quire {
namespace {

// The shape of a tensor with n matrices of each expert. In all but the first one, the rows of the matrices alternate.
enum class StackForm {
  kStacked,     // [experts, n * rows, cols]
  kTransposed,  // [experts, cols, n * rows]
  kBiases,      // [experts, n * rows]
  kMxfp4,       // [experts, n * rows, cols / 32, 16]
  kScales,      // [experts, n * rows, cols / 32]
};

// The end of the name of such a tensor, what replaces it before the number of an expert, the matrices of an expert, and
// the end of their names.
struct Stack {
  std::string_view end;
  StackForm form;
  const char* prefix;
  std::vector<const char*> matrices;
  const char* suffix;
};
const std::vector<Stack>& Stacks() {
  constexpr const char* kGranite = "block_sparse_moe.experts.";
  constexpr const char* kGptOss = "mlp.experts.";
  constexpr const char* kWeight = ".weight";
  constexpr const char* kBias = ".bias";
  constexpr const char* kScales = ".weight_scales";
  static const auto* const stacks = new std::vector<Stack>{
      {"block_sparse_moe.input_linear.weight", StackForm::kStacked, kGranite, {"gate_proj", "up_proj"}, kWeight},
      {"block_sparse_moe.output_linear.weight", StackForm::kStacked, kGranite, {"down_proj"}, kWeight},
      {"mlp.experts.gate_up_proj", StackForm::kTransposed, kGptOss, {kAlternateGate, kAlternateUp}, kWeight},
      {"mlp.experts.gate_up_proj_bias", StackForm::kBiases, kGptOss, {kAlternateGate, kAlternateUp}, kBias},
      {"mlp.experts.gate_up_proj_blocks", StackForm::kMxfp4, kGptOss, {kAlternateGate, kAlternateUp}, kWeight},
      {"mlp.experts.gate_up_proj_scales", StackForm::kScales, kGptOss, {kAlternateGate, kAlternateUp}, kScales},
      {"mlp.experts.down_proj", StackForm::kTransposed, kGptOss, {"down_proj"}, kWeight},
      {"mlp.experts.down_proj_bias", StackForm::kBiases, kGptOss, {"down_proj"}, kBias},
      {"mlp.experts.down_proj_blocks", StackForm::kMxfp4, kGptOss, {"down_proj"}, kWeight},
      {"mlp.experts.down_proj_scales", StackForm::kScales, kGptOss, {"down_proj"}, kScales},
  };
  return *stacks;
}

// Returns whether the tensor has the form with n matrices of each expert.
bool Fits(StackForm form, const Tensor& tensor, int64_t n) {
  const std::vector<int64_t>& shape = tensor.shape;
  switch (form) {
    case StackForm::kStacked:
    case StackForm::kScales:
      return shape.size() == 3 && shape[1] % n == 0;
    case StackForm::kTransposed:
      return shape.size() == 3 && shape[2] % n == 0;
    case StackForm::kBiases:
      return shape.size() == 2 && shape[1] % n == 0;
    case StackForm::kMxfp4:
      return shape.size() == 4 && shape[1] % n == 0 && shape[3] == kMxfp4GroupBytes && tensor.dtype == "U8";
  }
  return false;
}

// Gives `matrix`, which has the name and the bytes of all n matrices of an expert, the shape of matrix i and the places
// of its elements. `shape` is that of the stack.
void SetPlaces(StackForm form, const std::vector<int64_t>& shape, int64_t n, int64_t i, Tensor* matrix) {
  if (form != StackForm::kStacked) matrix->num_sharers = n;
  switch (form) {
    case StackForm::kStacked: {
      const size_t bytes = matrix->bytes.size() / static_cast<size_t>(n);
      matrix->shape = {shape[1] / n, shape[2]};
      matrix->bytes = matrix->bytes.substr(static_cast<size_t>(i) * bytes, bytes);
      break;
    }
    case StackForm::kTransposed:
      matrix->shape = {shape[2] / n, shape[1]};
      matrix->places = ElementPlaces{.first = i, .row_step = n, .col_step = shape[2]};
      break;
    case StackForm::kBiases:
      matrix->shape = {shape[1] / n};
      matrix->places = ElementPlaces{.first = i, .row_step = n, .col_step = 0};
      break;
    case StackForm::kMxfp4: {
      const int64_t cols = shape[2] * kMxfp4Group;
      matrix->dtype = kMxfp4Type;
      matrix->shape = {shape[1] / n, cols};
      matrix->places = ElementPlaces{.first = i * cols, .row_step = n * cols, .col_step = 1};
      break;
    }
    case StackForm::kScales:
      matrix->shape = {shape[1] / n, shape[2]};
      matrix->places = ElementPlaces{.first = i * shape[2], .row_step = n * shape[2], .col_step = 1};
      break;
  }
}

}  // namespace

std::vector<Tensor> MatricesOfExperts(const Tensor& tensor) {
  if (!absl::StartsWith(tensor.name, kLayersPrefix)) return {};
  const auto stack = std::ranges::find_if(Stacks(), [&](const Stack& one) { return tensor.name.ends_with(one.end); });
  if (stack == Stacks().end()) return {};
  const auto n = static_cast<int64_t>(stack->matrices.size());
  if (!Fits(stack->form, tensor, n)) return {};
  const int64_t num_experts = tensor.shape[0];
  if (num_experts == 0 || num_experts > kMaxMoeExperts) return {};
  const std::string layer = tensor.name.substr(0, tensor.name.size() - stack->end.size());
  const size_t bytes = tensor.bytes.size() / static_cast<size_t>(num_experts);
  std::vector<Tensor> matrices;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    for (int64_t i = 0; i < n; ++i) {
      Tensor& matrix = matrices.emplace_back(tensor);
      matrix.name = absl::StrCat(layer, stack->prefix, expert, ".", stack->matrices[i], stack->suffix);
      matrix.bytes = tensor.bytes.substr(static_cast<size_t>(expert) * bytes, bytes);
      SetPlaces(stack->form, tensor.shape, n, i, &matrix);
    }
  }
  return matrices;
}

}  // namespace quire
