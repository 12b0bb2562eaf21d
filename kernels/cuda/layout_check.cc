// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/layout_check.h"

#include <string>

#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/kernel_table.h"

namespace quire::cuda {

LayoutKernels KernelsOfAnyGpu(const KvLayout& layout) {
  return {.has_16_bits = true,
          .has_int8 = layout.head_dim <= kMostInt8HeadDim && layout.block_size >= KvLayout::kUnitTokens};
}

BackendStatus CheckLayout(DataType element, const KvLayout& layout, int num_heads, LayoutKernels kernels) {
  if (num_heads > kPrefillRows * layout.num_kv_heads) {
    return BackendStatus::Error(std::to_string(num_heads) + " query heads share " +
                                std::to_string(layout.num_kv_heads) + " KV heads, at most " +
                                std::to_string(kPrefillRows) + " may share one");
  }
  if (layout.type != KvTypeOf(element) && layout.type != KvType::kInt8) {
    return BackendStatus::Error("K and V are " + std::string(Name(layout.type)) + ", on this device they must be " +
                                Name(element) + " or " + Name(KvType::kInt8));
  }
  const bool is_int8 = layout.type == KvType::kInt8;
  if (kernels.has_16_bits && (!is_int8 || kernels.has_int8)) return BackendStatus::Ok();
  const std::string why =
      is_int8 && kernels.has_16_bits ? ", only for at most 128 dimensions in blocks of at least 16 tokens" : "";
  return BackendStatus::Error("there are no kernels for heads of " + std::to_string(layout.head_dim) +
                              " dimensions in blocks of " + std::to_string(layout.block_size) + " tokens of " +
                              Name(layout.type) + why);
}

}  // namespace quire::cuda
