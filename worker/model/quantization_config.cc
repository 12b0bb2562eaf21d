// SPDX-License-Identifier: Apache-2.0

#include "worker/model/quantization_config.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr const char* kField = "quantization_config";

// Returns an error unless the field is missing or `value` is true.
absl::Status Expect(bool value, const JsonFields& fields, const char* name, const std::string& allowed) {
  return value || !fields.Has(name) ? absl::OkStatus() : fields.Bad(name, allowed);
}

// Returns the number of columns that share a scale; 0 for all columns.
absl::StatusOr<int> ReadGroupSize(const JsonFields& fields, const char* name, std::optional<int64_t> fallback = {}) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t group, fields.Int(name, -1, kMaxQuantizedCols, fallback));
  if (group == -1) return 0;
  const bool is_supported = group == 32 || group == 64 || (group > 0 && group % kMaxInt4Group == 0);
  if (!is_supported) return fields.Bad(name, "32, 64, a multiple of 128, or -1");
  return static_cast<int>(group);
}

absl::StatusOr<int> ReadBits(const JsonFields& fields, const char* name) {
  const absl::StatusOr<int64_t> bits = fields.Int(name, 4, 8);
  if (!bits.ok() || (*bits != 4 && *bits != 8)) return fields.Bad(name, "4 or 8");
  return static_cast<int>(*bits);
}

// Returns an error unless the field is this number.
absl::Status ExpectBits(const JsonFields& fields, const char* name, int bits) {
  return fields.Int(name, bits, bits).ok() ? absl::OkStatus() : fields.Bad(name, absl::StrCat(bits));
}

absl::Status CheckWholeNumbers(const JsonFields& fields) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String("type", "int"));
  return Expect(type == "int", fields, "type", "\"int\"");
}

// Checks that whole numbers of 8 bits are stored, or computed from inputs.
absl::Status CheckInt8(const JsonFields& fields) {
  QUIRE_RETURN_IF_ERROR(ExpectBits(fields, "num_bits", 8));
  return CheckWholeNumbers(fields);
}

absl::Status CheckSymmetric(const JsonFields& fields) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_symmetric, fields.Bool("symmetric", true));
  return Expect(is_symmetric, fields, "symmetric", "true");
}

absl::Status CheckInt8Weights(const JsonFields& fields) {
  QUIRE_RETURN_IF_ERROR(CheckInt8(fields));
  QUIRE_RETURN_IF_ERROR(CheckSymmetric(fields));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, fields.String("strategy", "tensor"));
  return Expect(strategy == "channel" || strategy == "tensor", fields, "strategy", "\"channel\" or \"tensor\"");
}

absl::Status CheckInt8Inputs(const json& inputs, const std::string& path) {
  const JsonFields fields(inputs, kConfigFile, path);
  QUIRE_RETURN_IF_ERROR(CheckInt8(fields));
  QUIRE_RETURN_IF_ERROR(CheckSymmetric(fields));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, fields.String("strategy"));
  QUIRE_RETURN_IF_ERROR(Expect(strategy == "token", fields, "strategy", "\"token\""));
  const auto dynamic = inputs.find("dynamic");
  if (dynamic != inputs.end() && *dynamic == true) return absl::OkStatus();
  return fields.Bad("dynamic", "true");
}

// Returns whether groups have columns in an order that g_idx tells. "weight" only says how the numbers were found.
absl::StatusOr<bool> ReadActivationOrder(const JsonFields& fields, const json& weights) {
  constexpr const char* kName = "actorder";
  if (!fields.Has(kName)) return false;
  const json& order = weights[kName];
  if (order.is_boolean()) return order.get<bool>();
  if (order == "group" || order == "dynamic") return true;
  if (order == "weight" || order == "static") return false;
  return fields.Bad(kName, "\"group\" or \"weight\"");
}

absl::Status ReadPackedWeights(const JsonFields& fields, const json& weights, CheckpointQuantization* result) {
  QUIRE_ASSIGN_OR_RETURN(result->bits, ReadBits(fields, "num_bits"));
  QUIRE_RETURN_IF_ERROR(CheckWholeNumbers(fields));
  QUIRE_ASSIGN_OR_RETURN(result->is_symmetric, fields.Bool("symmetric", true));
  QUIRE_ASSIGN_OR_RETURN(result->needs_order, ReadActivationOrder(fields, weights));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, fields.String("strategy"));
  if (strategy == "channel") return absl::OkStatus();
  if (strategy != "group") return fields.Bad("strategy", "\"group\" or \"channel\"");
  QUIRE_ASSIGN_OR_RETURN(result->group, ReadGroupSize(fields, "group_size"));
  return absl::OkStatus();
}

absl::StatusOr<Fp8Block> ReadBlock(const JsonFields& fields, const char* name) {
  const absl::StatusOr<std::vector<int64_t>> sides = fields.Ints(name, 1, kMaxQuantizedCols);
  if (!sides.ok() || sides->size() != 2) {
    return fields.Bad(name,
                      absl::StrCat("two numbers in 1 .. ", kMaxQuantizedCols, ": the rows and the columns of a block"));
  }
  return Fp8Block{static_cast<int>((*sides)[0]), static_cast<int>((*sides)[1])};
}

absl::Status ReadFp8Weights(const JsonFields& fields, CheckpointQuantization* result) {
  QUIRE_RETURN_IF_ERROR(ExpectBits(fields, "num_bits", 8));
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  QUIRE_RETURN_IF_ERROR(Expect(type == "float", fields, "type", "\"float\" with this format"));
  QUIRE_RETURN_IF_ERROR(CheckSymmetric(fields));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, fields.String("strategy", "tensor"));
  if (strategy == "channel" || strategy == "tensor") return absl::OkStatus();
  if (strategy != "block") return fields.Bad("strategy", "\"channel\", \"tensor\" or \"block\"");
  QUIRE_ASSIGN_OR_RETURN(result->fp8_block, ReadBlock(fields, "block_structure"));
  return absl::OkStatus();
}

// Reads a format of compressed-tensors. The result is nothing if the weights tell: naive-quantized is the format of
// whole numbers and of FP8, and without the field any of them may be meant.
absl::StatusOr<std::optional<CheckpointFormat>> ReadFormat(const JsonFields& fields,
                                                           std::optional<CheckpointFormat> fallback) {
  if (!fields.Has("format")) return fallback;
  QUIRE_ASSIGN_OR_RETURN(const std::string format, fields.String("format"));
  if (format == "naive-quantized") return std::nullopt;
  if (format == "int-quantized") return CheckpointFormat::kInt8;
  if (format == "pack-quantized") return CheckpointFormat::kPackQuantized;
  if (format == "float-quantized") return CheckpointFormat::kFp8;
  return fields.Bad("format",
                    "\"int-quantized\" or \"naive-quantized\" with 8 bits, \"float-quantized\" with FP8, or "
                    "\"pack-quantized\" with 4 or 8 bits");
}

// `outer` is the format of the whole checkpoint, which a group may repeat or replace.
absl::StatusOr<CheckpointQuantization> ReadGroup(const json& group, const std::string& path,
                                                 std::optional<CheckpointFormat> outer) {
  if (!group.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kConfigFile, ": ", path, " is ", Shown(group), ", must be an object"));
  }
  const JsonFields fields(group, kConfigFile, path + ".");
  CheckpointQuantization result;
  QUIRE_ASSIGN_OR_RETURN(const std::optional<CheckpointFormat> stored, ReadFormat(fields, outer));
  QUIRE_ASSIGN_OR_RETURN(const json* weights, fields.Object("weights"));
  if (weights == nullptr) return fields.Bad("weights", "an object");
  const JsonFields weight_fields(*weights, kConfigFile, path + ".weights.");
  QUIRE_ASSIGN_OR_RETURN(const json* inputs, fields.Object("input_activations"));
  const bool is_float = weights->value("type", json()) == "float";
  result.format = stored.value_or(is_float ? CheckpointFormat::kFp8 : CheckpointFormat::kInt8);
  if (result.format == CheckpointFormat::kFp8) {
    QUIRE_RETURN_IF_ERROR(ReadFp8Weights(weight_fields, &result));
  } else if (result.format == CheckpointFormat::kPackQuantized) {
    QUIRE_RETURN_IF_ERROR(ReadPackedWeights(weight_fields, *weights, &result));
    QUIRE_RETURN_IF_ERROR(Expect(inputs == nullptr, fields, "input_activations", "absent with this format"));
  } else {
    QUIRE_RETURN_IF_ERROR(CheckInt8Weights(weight_fields));
    if (inputs == nullptr) return fields.Bad("input_activations", "an object: 8 bits per token");
    QUIRE_RETURN_IF_ERROR(CheckInt8Inputs(*inputs, path + ".input_activations."));
  }
  QUIRE_RETURN_IF_ERROR(Expect(false, fields, "output_activations", "absent"));
  return result;
}

absl::StatusOr<CheckpointQuantization> ReadCompressedTensors(const JsonFields& fields, const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::optional<CheckpointFormat> outer, ReadFormat(fields, std::nullopt));
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
  std::optional<CheckpointQuantization> all;
  for (const auto& [name, group] : groups->items()) {
    QUIRE_ASSIGN_OR_RETURN(CheckpointQuantization one,
                           ReadGroup(group, absl::StrCat(path, "config_groups.", name), outer));
    if (all && Summary(*all) != Summary(one)) return fields.Bad("config_groups", "groups of one kind");
    one.needs_order = one.needs_order || (all && all->needs_order);
    all = one;
  }
  return *all;
}

absl::StatusOr<CheckpointQuantization> ReadGptq(const JsonFields& fields) {
  CheckpointQuantization result{.format = CheckpointFormat::kGptq};
  QUIRE_ASSIGN_OR_RETURN(result.bits, ReadBits(fields, "bits"));
  QUIRE_ASSIGN_OR_RETURN(result.group, ReadGroupSize(fields, "group_size"));
  QUIRE_ASSIGN_OR_RETURN(result.is_symmetric, fields.Bool("sym", true));
  QUIRE_ASSIGN_OR_RETURN(result.needs_order, fields.Bool("desc_act", false));
  QUIRE_ASSIGN_OR_RETURN(const bool has_head, fields.Bool("lm_head", false));
  QUIRE_RETURN_IF_ERROR(Expect(!has_head, fields, "lm_head", "false"));
  QUIRE_ASSIGN_OR_RETURN(const json* dynamic, fields.Object("dynamic"));
  QUIRE_RETURN_IF_ERROR(Expect(dynamic == nullptr || dynamic->empty(), fields, "dynamic", "absent"));
  const char* const name = fields.Has("checkpoint_format") ? "checkpoint_format" : "format";
  QUIRE_ASSIGN_OR_RETURN(const std::string format, fields.String(name, "gptq"));
  if (format != "gptq" && format != "gptq_v2") return fields.Bad(name, "\"gptq\" or \"gptq_v2\"");
  result.zeros_stored_less = format == "gptq" ? 1 : 0;
  return result;
}

absl::StatusOr<CheckpointQuantization> ReadAwq(const JsonFields& fields) {
  CheckpointQuantization result{.format = CheckpointFormat::kAwq, .is_symmetric = false};
  QUIRE_RETURN_IF_ERROR(ExpectBits(fields, fields.Has("w_bit") ? "w_bit" : "bits", 4));
  QUIRE_ASSIGN_OR_RETURN(result.group,
                         ReadGroupSize(fields, fields.Has("q_group_size") ? "q_group_size" : "group_size", 128));
  QUIRE_ASSIGN_OR_RETURN(const bool has_zeros, fields.Bool("zero_point", true));
  QUIRE_RETURN_IF_ERROR(Expect(has_zeros, fields, "zero_point", "true"));
  QUIRE_ASSIGN_OR_RETURN(const std::string version, fields.String("version", "gemm"));
  if (absl::AsciiStrToLower(version) != "gemm") return fields.Bad("version", "\"gemm\"");
  return result;
}

// DeepSeek, Qwen and AutoFP8. What the file says about inputs does not matter: a product that rounds them computes
// their scales.
absl::StatusOr<CheckpointQuantization> ReadFp8(const JsonFields& fields) {
  CheckpointQuantization result{.format = CheckpointFormat::kFp8};
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String("fmt", "e4m3"));
  if (type != "e4m3") return fields.Bad("fmt", "\"e4m3\"");
  if (!fields.Has("weight_block_size") || fields.IsNull("weight_block_size")) return result;
  QUIRE_ASSIGN_OR_RETURN(result.fp8_block, ReadBlock(fields, "weight_block_size"));
  return result;
}

absl::StatusOr<CheckpointQuantization> ReadModelOpt(const JsonFields& fields) {
  QUIRE_ASSIGN_OR_RETURN(const std::string algorithm, fields.String("quant_algo"));
  if (algorithm != "FP8") return fields.Bad("quant_algo", "\"FP8\"");
  return CheckpointQuantization{.format = CheckpointFormat::kFp8};
}

}  // namespace

Quantization CheckpointQuantization::width() const {
  if (format == CheckpointFormat::kInt8) return Quantization::kInt8;
  if (format == CheckpointFormat::kFp8 && keeps_fp8) return Quantization::kFp8;
  const bool is_dequantized = format == CheckpointFormat::kFp8 || bits == 8;
  return format == CheckpointFormat::kPlain || is_dequantized ? Quantization::kNone : Quantization::kInt4;
}

std::string Summary(const CheckpointQuantization& quantization) {
  const auto with_groups = [&](const char* name) {
    return absl::StrCat(name, quantization.bits == 8 ? " 8 bits " : " ", quantization.group,
                        quantization.is_symmetric ? "" : " asymmetric",
                        quantization.zeros_stored_less > 0 ? " v1" : "");
  };
  switch (quantization.format) {
    case CheckpointFormat::kPlain:
      break;
    case CheckpointFormat::kInt8:
      return "int8";
    case CheckpointFormat::kPackQuantized:
      return with_groups("pack-quantized");
    case CheckpointFormat::kGptq:
      return with_groups("gptq");
    case CheckpointFormat::kAwq:
      return with_groups("awq");
    case CheckpointFormat::kFp8:
      return absl::StrCat("fp8 ", quantization.fp8_block.rows, " x ", quantization.fp8_block.cols);
    case CheckpointFormat::kGgufQ4_0:
      return with_groups("gguf q4_0");
  }
  return "none";
}

std::string Description(const CheckpointQuantization& quantization) {
  const auto with_groups = [&](const char* name) {
    const std::string scales = quantization.group > 0 ? absl::StrCat("in groups of ", quantization.group, " columns")
                                                      : "with a scale for each row";
    return absl::StrCat(name, " of ", quantization.bits, " bits ", scales);
  };
  switch (quantization.format) {
    case CheckpointFormat::kPlain:
      break;
    case CheckpointFormat::kInt8:
      return "int8";
    case CheckpointFormat::kPackQuantized:
      return with_groups("pack-quantized");
    case CheckpointFormat::kGptq:
      return with_groups("GPTQ");
    case CheckpointFormat::kAwq:
      return with_groups("AWQ");
    case CheckpointFormat::kFp8: {
      const auto [rows, cols] = quantization.fp8_block;
      return rows == 0 ? "FP8" : absl::StrCat("FP8 in blocks of ", rows, " x ", cols);
    }
    case CheckpointFormat::kGgufQ4_0:
      return with_groups("GGUF Q4_0");
  }
  return "not quantized";
}

absl::StatusOr<CheckpointQuantization> ReadAs(const CheckpointQuantization& stored, Quantization rounding,
                                              bool multiplies_quantized, bool multiplies_fp8) {
  const bool is_rounded = rounding != Quantization::kNone;
  const bool is_dequantizable = stored.format == CheckpointFormat::kGgufQ4_0;
  CheckpointQuantization result = stored;
  if (is_dequantizable && (is_rounded || !multiplies_quantized)) result = {};
  result.keeps_fp8 = !is_rounded && multiplies_fp8 && CanKeepFp8(result.fp8_block);
  if (!is_rounded || result.width() == Quantization::kNone) return result;
  return InvalidArgument("the checkpoint is quantized already, so --quantize must be none, not ", Name(rounding));
}

absl::StatusOr<CheckpointQuantization> ReadQuantizationConfig(const JsonFields& root) {
  QUIRE_ASSIGN_OR_RETURN(const json* config, root.Object(kField));
  if (config == nullptr) return CheckpointQuantization();
  const std::string path = absl::StrCat(kField, ".");
  const JsonFields fields(*config, kConfigFile, path);
  QUIRE_ASSIGN_OR_RETURN(const std::string method, fields.String("quant_method", ""));
  if (method == "compressed-tensors") return ReadCompressedTensors(fields, path);
  if (method == "gptq") return ReadGptq(fields);
  if (method == "awq") return ReadAwq(fields);
  if (method == "fp8") return ReadFp8(fields);
  if (method == "modelopt") return ReadModelOpt(fields);
  // TensorReader converts the matrices of experts, and modules_to_not_convert are all others.
  if (method == "mxfp4") return CheckpointQuantization();
  return fields.Bad(
      "quant_method",
      "\"compressed-tensors\" with format int-quantized, float-quantized or pack-quantized, \"gptq\", "
      "\"awq\", \"fp8\", \"modelopt\" or \"mxfp4\"; without quantization_config, weights are float32, bfloat16 or "
      "float16, and --quantize rounds them");
}

}  // namespace quire
