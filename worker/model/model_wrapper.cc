// SPDX-License-Identifier: Apache-2.0

#include "worker/model/model_wrapper.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "worker/model/decoder_family.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr ModelWrapper kWrappers[] = {
    {"Gemma3ForConditionalGeneration", "gemma3", "gemma3_text", /*ties_embeddings=*/true},
    {"Mistral3ForConditionalGeneration", "mistral3", "mistral", /*ties_embeddings=*/true},
    {"LlavaForConditionalGeneration", "llava", "llama", /*ties_embeddings=*/false},
    {"InternVLForConditionalGeneration", "internvl", "qwen2", /*ties_embeddings=*/true},
    {"SmolVLMForConditionalGeneration", "smolvlm", "llama", /*ties_embeddings=*/false},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text", /*ties_embeddings=*/false,
     /*may_be_flat=*/true},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text", /*ties_embeddings=*/false},
};

struct Prefix {
  std::string_view wrapper;
  std::string_view text;
};
constexpr Prefix kPrefixes[] = {
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"model.language_model.", "model."},
    {"model.text_model.", "model."},
};

// Without "model." in front, which some files have.
constexpr std::string_view kOtherParts[] = {
    "vision_tower.", "multi_modal_projector.", "visual.", "vision_model.", "connector.", "mtp."};

std::string_view WithoutModel(std::string_view name) {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  return name;
}

// Returns the text that is the only element of an array.
std::string OnlyText(const json& value) {
  const bool is_one = value.is_array() && value.size() == 1 && value.front().is_string();
  return is_one ? value.front().get<std::string>() : "";
}

}  // namespace

const ModelWrapper* FindWrapper(const json& root) {
  const auto architectures = root.find("architectures");
  const auto type = root.find("model_type");
  const bool has_architectures = architectures != root.end() && !architectures->is_null();
  const std::string name = has_architectures                         ? OnlyText(*architectures)
                           : type != root.end() && type->is_string() ? type->get<std::string>()
                                                                     : "";
  const auto* const found = std::ranges::find_if(kWrappers, [&](const ModelWrapper& wrapper) {
    return name == (has_architectures ? wrapper.architecture : wrapper.model_type);
  });
  return found == std::end(kWrappers) ? nullptr : found;
}

std::optional<std::string> TextTensorName(std::string_view name) {
  for (const Prefix& prefix : kPrefixes) {
    if (!name.starts_with(prefix.wrapper)) continue;
    return std::string(prefix.text).append(name.substr(prefix.wrapper.size()));
  }
  const std::string_view part = WithoutModel(name);
  const bool is_other =
      std::ranges::any_of(kOtherParts, [&](std::string_view other) { return part.starts_with(other); });
  return is_other ? std::nullopt : std::optional(std::string(name));
}

std::string SkippedPart(std::string_view name) {
  const std::string_view part = WithoutModel(name);
  return std::string(part.substr(0, part.find('.')));
}

std::string WrapperArchitectures() {
  std::string names;
  for (const ModelWrapper& wrapper : kWrappers) {
    if (FindFamilyOf(wrapper.architecture) == nullptr) absl::StrAppend(&names, ", [\"", wrapper.architecture, "\"]");
  }
  return names;
}

}  // namespace quire
