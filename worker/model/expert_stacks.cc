// SPDX-License-Identifier: Apache-2.0

#include "worker/model/expert_stacks.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/model/moe_family.h"

namespace quire {
namespace {

// The end of the name of such a tensor, what replaces it before the number of an expert, and the matrices of an expert.
struct Stack {
  std::string_view end;
  const char* prefix;
  std::vector<const char*> matrices;
};
const std::vector<Stack>& Stacks() {
  static const auto* const stacks = new std::vector<Stack>{
      {"block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.", {"gate_proj", "up_proj"}},
      {"block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.", {"down_proj"}},
  };
  return *stacks;
}

}  // namespace

std::vector<Tensor> MatricesOfExperts(const Tensor& tensor) {
  if (tensor.shape.size() != 3 || !absl::StartsWith(tensor.name, kLayersPrefix)) return {};
  const auto stack = std::ranges::find_if(Stacks(), [&](const Stack& one) { return tensor.name.ends_with(one.end); });
  if (stack == Stacks().end()) return {};
  const auto num_matrices = static_cast<int64_t>(stack->matrices.size());
  const int64_t num_experts = tensor.shape[0], rows = tensor.shape[1] / num_matrices;
  if (num_experts == 0 || num_experts > kMaxMoeExperts || tensor.shape[1] % num_matrices != 0) return {};
  const std::string layer = tensor.name.substr(0, tensor.name.size() - stack->end.size());
  const size_t bytes = tensor.bytes.size() / static_cast<size_t>(num_experts * num_matrices);
  std::vector<Tensor> matrices;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    for (const char* name : stack->matrices) {
      Tensor& matrix = matrices.emplace_back(tensor);
      matrix.name = absl::StrCat(layer, stack->prefix, expert, ".", name, ".weight");
      matrix.shape = {rows, tensor.shape[2]};
      matrix.bytes = tensor.bytes.substr((matrices.size() - 1) * bytes, bytes);
    }
  }
  return matrices;
}

}  // namespace quire
