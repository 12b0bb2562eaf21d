// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_DECODER_FAMILY_H_
#define QUIRE_WORKER_MODEL_DECODER_FAMILY_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "kernels/activate.h"
#include "worker/model/moe_family.h"

namespace quire {

// Where a layer has its norms. Attention and MLP are the two blocks of a layer, and each adds its output to the
// residual stream.
//   kBefore  on the input of each block (Llama).
//   kAfter   on the output of each block (OLMo 2).
//   kBoth    on the input and on the output of each block (Gemma 2).
enum class NormPlacement { kBefore, kAfter, kBoth };

// What an RMS norm of Q and K covers: one head, or all heads of Q or K together. It comes before the rotation, except
// that kPerRotatedHead comes after it.
enum class QkNorm { kNone, kPerHead, kWhole, kPerRotatedHead };

// The names of the norms of a layer in a checkpoint. A null name means that the layers do not have this norm.
struct LayerNames {
  const char* input_norm = "input_layernorm";  // Of the input of attention.
  const char* attention_output_norm = nullptr;
  const char* mlp_norm = "post_attention_layernorm";  // Of the input of the MLP.
  const char* mlp_output_norm = nullptr;
  const char* q_norm = "q_norm";  // Within self_attn.
  const char* k_norm = "k_norm";

  // REQUIRES: both blocks have norms in the same places.
  constexpr NormPlacement placement() const {
    if (attention_output_norm == nullptr) return NormPlacement::kBefore;
    return input_norm == nullptr ? NormPlacement::kAfter : NormPlacement::kBoth;
  }
};

// Which layers have a sliding window when config.json has no layer_types.
//   kNone               No layer ever has one.
//   kUniform            All layers; layer_types is not read.
//   kFromAFirstLayer    The layers from max_window_layers on.
//   kUnrotated          The layers without rotary embedding.
//   kAllButEveryNth     All except every window_period-th layer. With a period of 0, all.
//   kEvenToALast        The layers 0, 2, 4 and so on below max_window_layers.
enum class WindowPattern { kNone, kUniform, kFromAFirstLayer, kUnrotated, kAllButEveryNth, kEvenToALast };

// Which layers do not rotate Q and K.
//   kNone           All rotate.
//   kListed         Those that no_rope_layers and no_rope_layer_interval name.
//   kWithoutWindow  Those without a window.
//   kFullBesideWindows  Those without a window, unless sliding_window is null.
enum class UnrotatedLayers { kNone, kListed, kWithoutWindow, kFullBesideWindows };

// A family of decoders: what Hugging Face transformers assumes where config.json has no value, and which parts of the
// decoder are different. A null name of a field means that the family does not have the field.
struct DecoderFamily {
  const char* architecture;
  const char* model_type;
  const char* dtype = "";  // What torch_dtype counts as where the file has none.

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
  const char* epsilon_field = "rms_norm_eps";
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  const char* rope = nullptr;  // Rope parameters of a file without any, in JSON. Null: no scaling.
  bool ties_embeddings = false;
  TokenId bos = 1;  // -1: none.
  TokenId eos = 2;  // -1: none.
  std::array<TokenId, 2> more_eos = {-1, -1};

  // Biases: the name of the field, and the value without it.
  const char* qkv_bias_field = nullptr;
  const char* output_bias_field = nullptr;
  const char* mlp_bias_field = nullptr;
  bool qkv_bias = false;
  bool output_bias = false;
  bool has_sinks = false;  // Whether attention has a sink for each head.

  // Layers.
  LayerNames names = {};
  bool norms_add_one = false;        // Whether a norm multiplies by 1 + weight.
  bool norms_subtract_mean = false;  // Whether norms of the residual stream subtract the mean.
  bool is_parallel = false;          // Whether attention and MLP have the same input, of one norm.
  QkNorm qk_norm = QkNorm::kNone;
  const char* qk_norm_field = nullptr;  // Whether there is this norm; by default not. Null: there is.
  const char* null_field = nullptr;     // A field for a part that is not supported. It must be null.
  const char* false_field = nullptr;    // A field for a part that is not supported. It must be false.
  const char* activation_field = "hidden_act";
  const char* activation = "silu";
  bool means_tanh_by_gelu = false;                       // Old files say "gelu" and mean "gelu_pytorch_tanh".
  std::optional<PlainActivation> plain_activation = {};  // Of an MLP without a gate. `activation` is its name.
  bool clamps_gate = false;                              // Whether the activation is kClampedSwiglu.
  bool fuses_qkv = false;                                // Whether the checkpoint has qkv_proj.
  bool fuses_gate_up = false;                            // Whether the checkpoint has gate_up_proj.

  // Rotary embedding.
  bool rotates_parts = false;       // Whether partial_rotary_factor has an effect.
  double rotary_part = 1;           // Its default.
  bool rotates_neighbours = false;  // Whether the two numbers that rotate together are neighbours in the checkpoint.
  bool has_sections = false;        // Whether the type may be mrope, which for text alone is no scaling.
  bool has_ntk_alpha = false;       // Whether `alpha` of the type dynamic stretches theta.
  bool has_query_growth = false;    // Whether llama_4_scaling_beta has an effect.
  UnrotatedLayers unrotated = UnrotatedLayers::kNone;
  double window_rope_theta = 0;  // Above 0: layers with a window have a rotary embedding of their own.
  const char* window_theta_field = nullptr;

  // Sliding windows.
  WindowPattern windows = WindowPattern::kNone;
  bool has_window_switch = false;  // Whether use_sliding_window must be true.
  int window = 0;                  // The default; 0: none.
  int first_window_layer = 28;     // The default of max_window_layers.
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
  const char* logit_scale_field = nullptr;  // A factor of the logits.
  double logit_scale = 1;                   // Its default.

  const MoeFamily* moe = nullptr;  // Of a family with experts.
};

// Returns null when there is no such family. A base model, such as Qwen3Model, is of the family of its
// Qwen3ForCausalLM.
const DecoderFamily* FindFamilyOf(std::string_view architecture);
const DecoderFamily* FindFamilyOfType(std::string_view model_type);

// Returns the names of all architectures, as an error message lists them.
std::string SupportedArchitectures();

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_DECODER_FAMILY_H_
