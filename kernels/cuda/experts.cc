// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/experts.h"

#include <algorithm>

#include "kernels/cuda/expert_product.h"
#include "kernels/cuda/fatal.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

const CudaMatrix& PlainMatrix(const PackedMatrix& w) {
  const auto& matrix = static_cast<const DeviceMatrix&>(w);
  if (matrix.quantized() != nullptr || matrix.byte_matrix() != nullptr) Fatal("experts of fewer than %d bits", 16);
  return static_cast<const CudaMatrix&>(matrix);
}

}  // namespace

CudaExperts::CudaExperts(Device* device, const KernelTable* kernels)
    : device_(device),
      kernels_(*kernels),
      order_(device, "pairs of tokens and experts"),
      items_(device, "pairs of tokens and experts"),
      gate_up_(device, "sums of experts"),
      activations_(device, "activations of experts"),
      outputs_(device, "outputs of experts") {}

void CudaExperts::Route(const RouteArgs& args) {
  if (args.rule.num_experts > kMostExperts || args.rule.num_groups > kMostExpertGroups) {
    Fatal("%d experts in %d groups", args.rule.num_experts, args.rule.num_groups);
  }
  device_->Launch(kernels_.route,
                  RouteKernelArgs{.rule = args.rule,
                                  .logits = args.logits,
                                  .choice_bias = args.choice_bias,
                                  .experts = args.experts,
                                  .weights = args.weights,
                                  .shared_weights = args.shared_weights,
                                  .num_tokens = args.num_tokens,
                                  .num_logits = args.num_logits},
                  NumBlocks(args.num_tokens, RouteKernel::kTokensPerBlock));
}

// The first steps of a model are not recorded, so nothing is uploaded while one is.
const uint16_t* const* CudaExperts::AddressesOf(const ExpertMlpArgs& args) {
  std::vector<const uint16_t*> addresses;
  for (int i = 0; i < args.num_experts; ++i) addresses.push_back(PlainMatrix(*args.w[i].gate_up).data());
  for (int i = 0; i < args.num_experts; ++i) addresses.push_back(PlainMatrix(*args.w[i].down).data());
  auto layer = std::find_if(layers_.begin(), layers_.end(), [&](const auto& known) { return known->w == args.w; });
  if (layer == layers_.end()) {
    layer = layers_.insert(layer, std::make_unique<Layer>(device_));
    (*layer)->w = args.w;
  }
  auto* const on_device = (*layer)->on_device.Reserve<const uint16_t*>(addresses.size());
  if ((*layer)->addresses != addresses) {  // Another model may have taken the place of one that is gone.
    (*layer)->addresses = std::move(addresses);
    device_->Copy(on_device, (*layer)->addresses.data(), (*layer)->addresses.size() * sizeof(uint16_t*));
    device_->Synchronize();
  }
  return on_device;
}

void CudaExperts::Run(const ExpertMlpArgs& args) {
  const uint16_t* const* const addresses = AddressesOf(args);
  const int num_pairs = args.num_tokens * args.top_k, most_items = MostExpertItems(num_pairs, args.num_experts);
  const int wide = PlainMatrix(*args.w[0].gate_up).rows(), dim = PlainMatrix(*args.w[0].down).rows();
  auto* const order = order_.Reserve<int32_t>(num_pairs);
  auto* const items = items_.Reserve<ExpertItem>(most_items + 1);
  auto* const num_items = reinterpret_cast<int32_t*>(items + most_items);
  auto* const gate_up = gate_up_.Reserve<uint16_t>(size_t(num_pairs) * wide);
  auto* const activations = activations_.Reserve<uint16_t>(size_t(num_pairs) * wide / 2);
  auto* const outputs = outputs_.Reserve<uint16_t>(size_t(num_pairs) * dim);
  device_->Launch(kernels_.expert_plan,
                  ExpertPlanArgs{.experts = args.experts,
                                 .order = order,
                                 .items = items,
                                 .num_items = num_items,
                                 .num_pairs = num_pairs,
                                 .num_experts = args.num_experts},
                  1);
  const auto multiply = [&](const uint16_t* x, const uint16_t* const* w, uint16_t* y, int rows, int cols,
                            bool gathers) {
    const int64_t row_blocks = CeilDiv(rows, ExpertProductKernel<Bf16>::kRows);
    device_->Launch(kernels_.expert_product,
                    ExpertProductArgs{.x = x,
                                      .w = w,
                                      .y = y,
                                      .order = order,
                                      .items = items,
                                      .num_items = num_items,
                                      .rows = rows,
                                      .cols = cols,
                                      .top_k = args.top_k,
                                      .gathers = gathers},
                    NumBlocks(row_blocks * most_items, 1));
  };
  multiply(reinterpret_cast<const uint16_t*>(args.x), addresses, gate_up, wide, dim, /*gathers=*/true);
  const Kernel<GatedArgs>& gate = args.activation == Activation::kSilu ? kernels_.silu_mul : kernels_.gelu_mul;
  device_->Launch(gate, GatedArgs{.x = gate_up, .y = activations, .num_rows = num_pairs, .dim = wide / 2},
                  NumBlocks(int64_t{num_pairs} * wide / 2 / 8, gate.num_threads));
  multiply(activations, addresses + args.num_experts, outputs, dim, wide / 2, /*gathers=*/false);
  device_->Launch(kernels_.expert_sum,
                  ExpertSumArgs{.outputs = outputs,
                                .experts = args.experts,
                                .weights = args.weights,
                                .shared = static_cast<const uint16_t*>(args.shared),
                                .shared_weights = args.shared_weights,
                                .residual = static_cast<const uint16_t*>(args.residual),
                                .y = static_cast<uint16_t*>(args.y),
                                .num_tokens = args.num_tokens,
                                .dim = dim,
                                .num_experts = args.num_experts,
                                .top_k = args.top_k},
                  NumBlocks(int64_t{args.num_tokens} * dim / 8, 256));
}

}  // namespace quire::cuda
