// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_MODEL_WRAPPER_H_
#define QUIRE_WORKER_MODEL_MODEL_WRAPPER_H_

#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace quire {

// A model for text and images, or sound, around a text model. Quire reads the text model alone.
struct ModelWrapper {
  const char* architecture;
  const char* model_type;
  const char* text_type;     // The model_type of a text model that does not name its own.
  bool ties_embeddings;      // The default of tie_word_embeddings.
  bool may_be_flat = false;  // Whether older files have the fields of the text model in the outer object.
};

// Where config.json has the text model of a wrapper.
inline constexpr char kTextConfig[] = "text_config";

// Returns the wrapper that config.json, an object, names by its architectures or else by its model_type; null if it
// names none.
const ModelWrapper* FindWrapper(const nlohmann::json& root);

// Returns the name that a tensor of a wrapper has in a checkpoint of its text model alone: "model.norm.weight" for
// "language_model.model.norm.weight" or "model.language_model.norm.weight". Other names stay as they are. Returns
// nothing for tensors that a text model does not have: those of encoders of images and sound, of projectors, and of
// layers that predict several tokens.
std::optional<std::string> TextTensorName(std::string_view name);

// Returns the beginning of the name of a tensor for which TextTensorName returns nothing, such as "vision_tower".
std::string SkippedPart(std::string_view name);

// Returns the names of the architectures that no family has, as they follow others in an error message.
std::string WrapperArchitectures();

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MODEL_WRAPPER_H_
