// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_CONFIG_H_
#define QUIRE_WORKER_MODEL_GGUF_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/model/decoder_family.h"
#include "worker/model/gguf.h"

namespace quire {

// The tensor that divides the frequencies of the rotary embedding: [head_dim / 2] of F32.
constexpr const char* kGgufRopeFactors = "rope_freqs.weight";

// The tensors with the factors of longrope: [rotary_dim / 2] of F32.
constexpr const char* kGgufLongFactors = "rope_factors_long.weight";
constexpr const char* kGgufShortFactors = "rope_factors_short.weight";

// What the names of the tensors depend on.
struct GgufNaming {
  const DecoderFamily* family;
  std::string_view mlp_norm;  // The name in a layer of the norm of the MLP's input.
};

// What the names and the order of the tensors depend on.
struct GgufShape {
  std::string architecture;  // Such as "llama".
  GgufNaming naming;
  // Whether llama.cpp's converter stores the two rows of Q or K that rotate together side by side, unlike the
  // checkpoint that it reads.
  bool permutes_rows;
  bool has_rope_factors;  // Whether kGgufRopeFactors has an effect.
  int num_layers;
  int num_heads;
  int num_kv_heads;
  int num_experts = 0;  // Of a layer with experts.
};

// Returns the architecture that a GGUF file names for one of Hugging Face, or "".
std::string GgufArchitecture(const std::string& hugging_face);

// Returns nothing for an architecture that is not supported. OLMo 3 has the architecture of OLMo 2, and tensors of the
// same names.
std::optional<GgufNaming> FindGgufNaming(std::string_view architecture);

// Returns the names of the architectures: "llama, qwen2 or qwen3".
std::string GgufArchitectures();

// Reads general.architecture and three numbers. An architecture that is not supported is refused by its name.
absl::StatusOr<GgufShape> ReadGgufShape(const GgufContents& contents);

// Returns whether a tensor has factors of rotary embeddings, which GgufConfigJson reads.
bool IsRopeTensor(std::string_view name, const GgufShape& shape);

// Writes what config.json of a Hugging Face folder would say of the model in a GGUF file, for ParseModelConfig. A value
// that would change the computation and is not supported is refused with its key.
//
// A file has no parameters of the rotary scaling of Llama 3.1, only its factors (kGgufRopeFactors). They must equal the
// factors of the published models, with any scale.
//
// All tokens that end an answer are end tokens: those that the metadata names as end of sequence, of turn or of
// message, and control tokens with a text that llama.cpp recognises, such as <|im_end|>.
absl::StatusOr<std::string> GgufConfigJson(const GgufContents& contents);

// Returns whether a matrix of a layer is stored as Q4_0, which can be multiplied as whole numbers of 4 bits.
bool HasQ4LayerMatrices(const GgufContents& contents);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_CONFIG_H_
