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
  kExperts,            // Operations::Route and Operations::ExpertMlp.
  kRotatedNorms,       // RopeAppendArgs::norms_after_rotation.
  kGrowingQueries,     // RopeAppendArgs::query_growth.
  kLayerNorm,          // RmsNormArgs::subtracts_mean.
  kPlainMlp,           // Operations::Activate.
  kRanks,              // Operations::AddParts, GatherColumns and ExchangeRows.
  kSinks,              // AttentionArgs::sinks.
  kClampedSwiglu,      // Activation::kClampedSwiglu, and Expert::gate_up_bias and down_bias.
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
    case OptionalPart::kExperts:
      return "a mixture of experts";
    case OptionalPart::kRotatedNorms:
      return "norms of Q and K after the rotation";
    case OptionalPart::kGrowingQueries:
      return "queries that grow with their position";
    case OptionalPart::kLayerNorm:
      return "norms that subtract the mean";
    case OptionalPart::kPlainMlp:
      return "an MLP without a gate";
    case OptionalPart::kRanks:
      return "an exchange between ranks";
    case OptionalPart::kSinks:
      return "attention sinks";
    case OptionalPart::kClampedSwiglu:
      return "experts with biases and a clamped gate";
  }
  return "unknown";
}

}  // namespace quire

#endif  // QUIRE_KERNELS_OPTIONAL_PART_H_
