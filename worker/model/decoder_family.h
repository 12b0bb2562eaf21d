// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_DECODER_FAMILY_H_
#define QUIRE_WORKER_MODEL_DECODER_FAMILY_H_

#include <string>
#include <string_view>

#include "base/ids.h"

namespace quire {

// Where a layer has its norms. Attention and MLP are the two blocks of a layer, and each adds its output to the
// residual stream.
//   kBefore  on the input of each block (Llama).
//   kAfter   on the output of each block (OLMo 2).
//   kBoth    on the input and on the output of each block (Gemma 2).
enum class NormPlacement { kBefore, kAfter, kBoth };

// What an RMS norm of Q and K before the rotation covers: one head, or all heads of Q or K together.
enum class QkNorm { kNone, kPerHead, kWhole };

// Which layers have a sliding window when config.json has no layer_types.
//   kNone               No layer ever has one.
//   kUniform            All layers; layer_types is not read.
//   kFromAFirstLayer    The layers from max_window_layers on.
//   kUnrotated          The layers without rotary embedding.
//   kAllButEveryNth     All except every window_period-th layer. With a period of 0, all.
enum class WindowPattern { kNone, kUniform, kFromAFirstLayer, kUnrotated, kAllButEveryNth };

// A family of decoders: what Hugging Face transformers assumes where config.json has no value, and which parts of the
// decoder are different. A null name of a field means that the family does not have the field.
struct DecoderFamily {
  const char* architecture;
  const char* model_type;

  // Defaults of transformers.
  int hidden_size = 4096;
  int intermediate_size = 11008;
  int num_layers = 32;
  int num_heads = 32;
  int num_kv_heads = 0;  // 0: num_heads.
  int head_dim = 0;      // 0: hidden_size / num_heads.
  int vocab_size = 32000;
  int max_position_embeddings = 2048;
  int original_positions = 0;  // The default of original_max_position_embeddings; 0: as max_position_embeddings.
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  bool ties_embeddings = false;
  TokenId bos = 1;  // -1: none.
  TokenId eos = 2;  // -1: none.

  // Biases: the name of the field, and the value without it.
  const char* qkv_bias_field = nullptr;
  const char* output_bias_field = nullptr;
  const char* mlp_bias_field = nullptr;
  bool qkv_bias = false;

  // Layers.
  NormPlacement norms = NormPlacement::kBefore;
  bool norms_add_one = false;  // Whether a norm multiplies by 1 + weight.
  QkNorm qk_norm = QkNorm::kNone;
  const char* activation_field = "hidden_act";
  const char* activation = "silu";
  bool means_tanh_by_gelu = false;  // Old files say "gelu" and mean "gelu_pytorch_tanh".
  bool has_fused_matrices = false;  // Whether the checkpoint has qkv_proj and gate_up_proj.

  // Rotary embedding.
  bool rotates_parts = false;    // Whether partial_rotary_factor has an effect.
  bool has_unrotated = false;    // Whether no_rope_layers and no_rope_layer_interval have an effect.
  double window_rope_theta = 0;  // Above 0: layers with a window have a rotary embedding of their own.

  // Sliding windows.
  WindowPattern windows = WindowPattern::kNone;
  bool has_window_switch = false;  // Whether use_sliding_window must be true.
  int window = 0;                  // The default; 0: none.
  int window_period = 0;
  const char* window_period_field = nullptr;

  // Scales.
  bool has_multipliers = false;    // Whether the four multipliers of Granite are read.
  bool scales_embeddings = false;  // Whether embeddings are multiplied by sqrt(hidden_size).
  int query_scalar = 0;            // Above 0: scores are divided by sqrt(query_pre_attn_scalar), of this default.
  const char* attention_softcap_field = nullptr;
  const char* logit_softcap_field = nullptr;
  double attention_softcap = 0;  // Defaults; 0: none.
  double logit_softcap = 0;
};

// Returns null when there is no such family.
const DecoderFamily* FindFamilyOf(std::string_view architecture);
const DecoderFamily* FindFamilyOfType(std::string_view model_type);

// Returns the names of all architectures, as an error message lists them.
std::string SupportedArchitectures();

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_DECODER_FAMILY_H_
