#include "kernels/cpu/rope_append.h"

#include "kernels/cpu/kv_unit.h"
#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

void RotateHead(const RopeAppendArgs& args, const KernelTable& kernels, const float* cos_sin, const float* norm,
                float* head) {
  if (norm != nullptr) kernels.rms_norm(head, norm, head, args.layout->head_dim, args.norm_epsilon);
  const int half = args.rotary_dim / 2;
  kernels.rotate_half(head, cos_sin, cos_sin + half, half);
}

template <typename T>
void Scatter(const T* from, int dim, const UnitStrides& to, T* unit) {
  for (int d = 0; d < dim; ++d) unit[to.At(d)] = from[d];
}

// Rounds one head of K or V and stores it.
template <typename T>
void StoreHead(const KernelTable& kernels, const KvLayout& layout, const float* head, const UnitStrides& to, T* unit) {
  T rounded[kMaxHeadDim];
  kernels.convert[int(layout.type)](head, rounded, layout.head_dim);
  Scatter(rounded, layout.head_dim, to, unit);
}

template <typename T>
void AppendHead(const RopeAppendArgs& args, const KernelTable& kernels, const float* k, const float* v, int kv_head,
                int64_t slot) {
  const KvLayout& layout = *args.layout;
  const int offset = int(slot % layout.block_size), token = offset % layout.unit_tokens();
  T* unit = static_cast<T*>(args.kv_pool) + layout.unit_start(uint32_t(slot / layout.block_size), kv_head, offset);
  StoreHead(kernels, layout, k, KeyStrides(layout, token), unit);
  StoreHead(kernels, layout, v, ValueStrides(layout, token), unit);
}

}  // namespace

void RopeAppendToken(const RopeAppendArgs& args, const KernelTable& kernels, const RotaryTable& rotary, int row) {
  const KvLayout& layout = *args.layout;
  const int head_dim = layout.head_dim;
  const float* cos_sin = rotary.At(args.batch->positions[row]);
  float* q = static_cast<float*>(args.qkv) + int64_t{row} * (args.num_heads + 2 * layout.num_kv_heads) * head_dim;
  float* k = q + int64_t{args.num_heads} * head_dim;
  float* v = k + int64_t{layout.num_kv_heads} * head_dim;
  for (int h = 0; h < args.num_heads; ++h) RotateHead(args, kernels, cos_sin, args.q_norm, q + h * head_dim);
  for (int h = 0; h < layout.num_kv_heads; ++h) {
    RotateHead(args, kernels, cos_sin, args.k_norm, k + h * head_dim);
    const int64_t slot = args.batch->slots[row];
    switch (layout.type) {
      case DataType::kFloat32:
        AppendHead<float>(args, kernels, k + h * head_dim, v + h * head_dim, h, slot);
        break;
      case DataType::kBFloat16:
        AppendHead<BFloat16>(args, kernels, k + h * head_dim, v + h * head_dim, h, slot);
        break;
      case DataType::kFloat16:
        AppendHead<Float16>(args, kernels, k + h * head_dim, v + h * head_dim, h, slot);
        break;
    }
  }
}

}  // namespace quire::cpu
