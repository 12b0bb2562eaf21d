#include "worker/model/quantization_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kField = "quantization_config";

// Returns an error unless the field is missing or `value` is true.
absl::Status Expect(bool value, const JsonFields& fields, const char* name, const std::string& allowed) {
  return value || !fields.Has(name) ? absl::OkStatus() : fields.Bad(name, allowed);
}

// Checks that numbers of 8 bits are stored, or computed from inputs, without zero points.
absl::Status CheckNumbers(const JsonFields& fields) {
  QUIRE_RETURN_IF_ERROR(fields.Int("num_bits", 8, 8).status());
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String("type", "int"));
  QUIRE_RETURN_IF_ERROR(Expect(type == "int", fields, "type", "\"int\""));
  QUIRE_ASSIGN_OR_RETURN(const bool is_symmetric, fields.Bool("symmetric", true));
  return Expect(is_symmetric, fields, "symmetric", "true");
}

absl::Status CheckWeights(const json& weights, const std::string& path) {
  const JsonFields fields(weights, kConfigFile, path);
  QUIRE_RETURN_IF_ERROR(CheckNumbers(fields));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, fields.String("strategy", "tensor"));
  return Expect(strategy == "channel" || strategy == "tensor", fields, "strategy", "\"channel\" or \"tensor\"");
}

absl::Status CheckInputs(const json& inputs, const std::string& path) {
  const JsonFields fields(inputs, kConfigFile, path);
  QUIRE_RETURN_IF_ERROR(CheckNumbers(fields));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, fields.String("strategy"));
  QUIRE_RETURN_IF_ERROR(Expect(strategy == "token", fields, "strategy", "\"token\""));
  const auto dynamic = inputs.find("dynamic");
  if (dynamic != inputs.end() && *dynamic == true) return absl::OkStatus();
  return fields.Bad("dynamic", "true");
}

absl::Status CheckFormat(const JsonFields& fields) {
  if (!fields.Has("format")) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::string format, fields.String("format"));
  return Expect(format == "int-quantized" || format == "naive-quantized", fields, "format",
                "\"int-quantized\" or \"naive-quantized\" with whole numbers of 8 bits");
}

absl::Status CheckGroup(const json& group, const std::string& path) {
  if (!group.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kConfigFile, ": ", path, " is ", Shown(group), ", must be an object"));
  }
  const JsonFields fields(group, kConfigFile, path + ".");
  QUIRE_RETURN_IF_ERROR(CheckFormat(fields));
  QUIRE_ASSIGN_OR_RETURN(const json* weights, fields.Object("weights"));
  if (weights == nullptr) return fields.Bad("weights", "an object");
  QUIRE_RETURN_IF_ERROR(CheckWeights(*weights, path + ".weights."));
  QUIRE_ASSIGN_OR_RETURN(const json* inputs, fields.Object("input_activations"));
  if (inputs == nullptr) return fields.Bad("input_activations", "an object: 8 bits per token");
  QUIRE_RETURN_IF_ERROR(CheckInputs(*inputs, path + ".input_activations."));
  return Expect(false, fields, "output_activations", "absent");
}

}  // namespace

absl::StatusOr<Quantization> ReadQuantizationConfig(const JsonFields& root) {
  QUIRE_ASSIGN_OR_RETURN(const json* config, root.Object(kField));
  if (config == nullptr) return Quantization::kNone;
  const std::string path = absl::StrCat(kField, ".");
  const JsonFields fields(*config, kConfigFile, path);
  QUIRE_ASSIGN_OR_RETURN(const std::string method, fields.String("quant_method", ""));
  if (method != "compressed-tensors") {
    return fields.Bad("quant_method",
                      "\"compressed-tensors\" with format int-quantized; without quantization_config, "
                      "weights are float32, bfloat16 or float16, and --quantize=int8 rounds them");
  }
  QUIRE_RETURN_IF_ERROR(CheckFormat(fields));
  QUIRE_ASSIGN_OR_RETURN(const std::string status, fields.String("quantization_status", "compressed"));
  QUIRE_RETURN_IF_ERROR(Expect(status == "compressed", fields, "quantization_status", "\"compressed\""));
  QUIRE_RETURN_IF_ERROR(Expect(false, fields, "kv_cache_scheme", "absent: K and V have the precision of --kv-type"));
  for (const char* name : {"sparsity_config", "transform_config"}) {
    QUIRE_ASSIGN_OR_RETURN(const json* object, fields.Object(name));
    const bool is_plain = object == nullptr || object->empty() || object->value("format", json()) == "dense";
    QUIRE_RETURN_IF_ERROR(Expect(is_plain, fields, name, "absent"));
  }
  QUIRE_ASSIGN_OR_RETURN(const json* groups, fields.Object("config_groups"));
  if (groups == nullptr || groups->empty()) return fields.Bad("config_groups", "an object with a group");
  for (const auto& [name, group] : groups->items()) {
    QUIRE_RETURN_IF_ERROR(CheckGroup(group, absl::StrCat(path, "config_groups.", name)));
  }
  return Quantization::kInt8;
}

}  // namespace quire
