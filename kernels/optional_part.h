// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_OPTIONAL_PART_H_
#define QUIRE_KERNELS_OPTIONAL_PART_H_

#include <cstdint>

namespace quire {

// Parts of the operations that only some models need and that a backend may lack. Operations::Has tells.
enum class OptionalPart : uint8_t {
  kScaledEmbeddings,   // A scale of Operations::Embed.
  kScaledProducts,     // LinearArgs::scale.
  kSoftcap,            // LinearArgs::softcap and AttentionArgs::softcap.
  kGeluTanh,           // Activation::kGeluTanh.
  kPartialRotation,    // RopeAppendArgs::rotary_dim below head_dim.
  kNormedOutputs,      // RmsNormArgs::residual, and Operations::Round.
  kNormedProjections,  // Strides of RmsNormArgs.
};

// Returns the name of a part for error messages that say what a model needs.
constexpr const char* Name(OptionalPart part) {
  switch (part) {
    case OptionalPart::kScaledEmbeddings:
      return "scaled embeddings";
    case OptionalPart::kScaledProducts:
      return "scaled products";
    case OptionalPart::kSoftcap:
      return "softcapping";
    case OptionalPart::kGeluTanh:
      return "the activation gelu_pytorch_tanh";
    case OptionalPart::kPartialRotation:
      return "a rotary embedding of a part of each head";
    case OptionalPart::kNormedOutputs:
      return "norms of the outputs of attention and MLP";
    case OptionalPart::kNormedProjections:
      return "norms of whole projections of Q and K";
  }
  return "unknown";
}

}  // namespace quire

#endif  // QUIRE_KERNELS_OPTIONAL_PART_H_
