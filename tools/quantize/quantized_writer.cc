// SPDX-License-Identifier: Apache-2.0

#include "tools/quantize/quantized_writer.h"

#include <filesystem>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "tools/quantize/compressed_tensors.h"
#include "tools/quantize/fp8_blocks.h"
#include "tools/quantize/output_folder.h"
#include "worker/model/checkpoint.h"
#include "worker/model/decoder_family.h"
#include "worker/model/gguf.h"
#include "worker/model/layer_check.h"
#include "worker/model/mapped_file.h"
#include "worker/model/model.h"
#include "worker/model/model_wrapper.h"
#include "worker/model/safetensors_header.h"
#include "worker/model/tensor_values.h"

namespace quire::quantize {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = 16 << 20;

// A tensor of the source and what becomes of it.
struct Planned {
  const Tensor* tensor;
  bool is_matrix;                    // Of a layer.
  std::vector<TensorEntry> entries;  // In the output.
};

bool IsLayerMatrix(const std::string& name) {
  const bool is_of_expert = absl::StrContains(name, ".experts.") && absl::EndsWith(name, ".weight");
  return absl::StartsWith(name, kLayersPrefix) && (is_of_expert || absl::EndsWith(name, "_proj.weight"));
}

// Routers to experts, and gates of shared experts.
bool IsPlainLayerMatrix(const Tensor& tensor) {
  return absl::StartsWith(tensor.name, kLayersPrefix) && tensor.shape.size() == 2 && !IsLayerMatrix(tensor.name);
}

absl::Status CheckMatrix(const Tensor& tensor) {
  if (tensor.shape.size() != 2 || !WeightType(tensor).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", tensor.name, " is ", Describe(tensor), ", expected a matrix of F32, BF16 or F16"));
  }
  if (tensor.shape[1] <= kMaxQuantizedCols) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " has ", tensor.shape[1],
                                                 " columns, a quantized matrix has at most ", kMaxQuantizedCols));
}

absl::StatusOr<Layout> LayoutFor(const Checkpoint& checkpoint, Quantization width) {
  Layout layout{.width = width, .group = width == Quantization::kInt4 ? kMaxInt4Group : 0};
  for (const std::string& name : checkpoint.Names()) {
    const Tensor& tensor = *checkpoint.Find(name);
    if (IsPlainLayerMatrix(tensor)) layout.plain_modules.emplace_back(absl::StripSuffix(name, ".weight"));
    if (!IsLayerMatrix(name)) continue;
    QUIRE_RETURN_IF_ERROR(CheckMatrix(tensor));
    if (width != Quantization::kInt4) continue;
    while (layout.group >= kMinInt4Group && tensor.shape[1] % layout.group != 0) layout.group /= 2;
    if (layout.group >= kMinInt4Group) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " has ", tensor.shape[1],
                                                   " columns, with int4 they must be a multiple of ", kMinInt4Group));
  }
  return layout;
}

std::vector<Planned> Plan(const Checkpoint& checkpoint, const Layout& layout) {
  std::vector<Planned> plan;
  for (const std::string& name : checkpoint.Names()) {
    const Tensor& tensor = *checkpoint.Find(name);
    Planned one{.tensor = &tensor, .is_matrix = IsLayerMatrix(name), .entries = {}};
    if (one.is_matrix) {
      const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
      one.entries =
          layout.width == Quantization::kFp8 ? Fp8EntriesOf(name, rows, cols) : EntriesOf(name, rows, cols, layout);
    } else {
      one.entries = {{name, tensor.dtype, tensor.shape, tensor.bytes.size()}};
    }
    plan.push_back(std::move(one));
  }
  return plan;
}

int64_t OutputBytes(const Planned& planned) {
  int64_t bytes = 0;
  for (const TensorEntry& entry : planned.entries) bytes += static_cast<int64_t>(entry.num_bytes);
  return bytes;
}

// Divides the plan into files.
std::vector<std::vector<Planned>> Files(std::vector<Planned> plan, int64_t max_file_bytes) {
  std::vector<std::vector<Planned>> files(1);
  int64_t bytes = 0;
  for (Planned& one : plan) {
    if (bytes >= max_file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += OutputBytes(one);
    files.back().push_back(std::move(one));
  }
  return files;
}

absl::StatusOr<std::vector<std::string>> Rounded(const Tensor& tensor, const Layout& layout) {
  const DataType type = *WeightType(tensor);
  if (const std::optional<size_t> index = FirstNotFinite(tensor.bytes, type); index.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " is ", Describe(tensor),
                                                   ", and its element ", *index, " is infinite or not a number"));
  }
  if (layout.width == Quantization::kFp8) {
    std::vector<float> weights;
    AppendAsFloat(tensor.bytes, type, &weights);
    return Fp8BytesOf(weights, tensor.shape[0], tensor.shape[1]);
  }
  const AlignedBytes bytes(tensor.bytes);
  const MatrixView view{bytes.data(), static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1]), type};
  return BytesOf(layout.width == Quantization::kInt8 ? QuantizeToInt8(view) : QuantizeToInt4(view), layout);
}

absl::Status WriteTensors(const std::vector<Planned>& plan, const Layout& layout, std::ostream& out) {
  std::vector<TensorEntry> entries;
  for (const Planned& one : plan) entries.insert(entries.end(), one.entries.begin(), one.entries.end());
  out << SafetensorsHeader(entries);
  for (const Planned& one : plan) {
    if (one.is_matrix) {
      QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> parts, Rounded(*one.tensor, layout));
      for (const std::string& part : parts) out << part;
    } else {
      out << one.tensor->bytes;
    }
    if (!out.good()) break;  // OutputFolder makes the error.
    ReleasePages(one.tensor->bytes);
  }
  return absl::OkStatus();
}

// Returns config.json of the text model alone, because the output has no other tensors. Families that have no name of
// their own for a text model keep the wrapper.
ordered_json WithoutWrapper(const ordered_json& config, const ModelConfig& model) {
  const auto text = config.find(kTextConfig);
  const DecoderFamily* const family = FindFamilyOf(model.architecture);
  const bool is_wrapped = config.value("architectures", ordered_json()) != ordered_json{model.architecture};
  if (!is_wrapped || text == config.end() || !text->is_object()) return config;
  ordered_json result = *text;
  result["architectures"] = {model.architecture};
  result["model_type"] = family->model_type;
  result["tie_word_embeddings"] = model.tie_word_embeddings;
  for (const char* name : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id"}) {
    if (config.contains(name) && !config[name].is_null()) result[name] = config[name];
  }
  return result;
}

absl::Status WriteConfig(const WriteOptions& options, const Layout& layout, const ModelConfig& model,
                         OutputFolder* folder) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text,
                         ReadSmallFile(absl::StrCat(options.model, "/config.json"), kMaxConfigBytes));
  ordered_json config = ordered_json::parse(text, /*callback=*/nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("config.json is not an object");
  config = WithoutWrapper(config, model);
  config["quantization_config"] =
      layout.width == Quantization::kFp8 ? Fp8QuantizationConfig(layout.plain_modules) : QuantizationConfig(layout);
  return folder->WriteText("config.json", config.dump(2) + "\n");
}

// Weights in any format, and what is replaced.
bool IsReplaced(const std::string& name) {
  if (name == "config.json") return true;
  for (const char* end : {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  return false;
}

absl::Status CopyOtherFiles(const WriteOptions& options, OutputFolder* folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.model, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code failure;
    if (!entry.is_regular_file(failure) || IsReplaced(name)) continue;
    QUIRE_RETURN_IF_ERROR(folder->Copy(entry.path(), name));
  }
  return error ? absl::UnavailableError(absl::StrCat("cannot list ", options.model, ": ", error.message()))
               : absl::OkStatus();
}

absl::StatusOr<ModelConfig> ReadSourceConfig(const std::string& model) {
  if (IsGgufPath(model)) {
    return absl::InvalidArgumentError(absl::StrCat(model, " is a GGUF file, must be a model directory"));
  }
  QUIRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(model));
  if (config.quantization.format == CheckpointFormat::kPlain) return config;
  return absl::InvalidArgumentError(
      absl::StrCat(model, " is quantized already (", Description(config.quantization), "), must have 16 or 32 bits"));
}

absl::StatusOr<Checkpoint> OpenSource(const std::string& model, const ModelConfig& config) {
  QUIRE_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(model));
  const absl::Status complete = CheckNothingIsMissing(config, checkpoint);
  if (!complete.ok()) return absl::Status(complete.code(), absl::StrCat(model, ": ", complete.message()));
  if (const std::string extra = ExtraLayers(config, checkpoint); !extra.empty()) {
    QUIRE_LOG(kWarning) << model << ": " << extra;
  }
  if (const std::string skipped = SkippedTensors(checkpoint); !skipped.empty()) {
    QUIRE_LOG(kInfo) << model << ": " << skipped;
  }
  return checkpoint;
}

absl::StatusOr<WrittenCheckpoint> WriteFiles(const WriteOptions& options, const Layout& layout,
                                             const ModelConfig& model, const std::vector<std::vector<Planned>>& files,
                                             OutputFolder* folder) {
  WrittenCheckpoint written{.num_files = static_cast<int>(files.size()), .group = layout.group};
  ordered_json shard_of = ordered_json::object();
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = files.size() == 1 ? "model.safetensors"
                                               : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, files.size());
    QUIRE_RETURN_IF_ERROR(folder->Write(name, [&](std::ostream& out) { return WriteTensors(files[i], layout, out); }));
    for (const Planned& one : files[i]) {
      written.num_matrices += one.is_matrix ? 1 : 0;
      written.input_bytes += static_cast<int64_t>(one.tensor->bytes.size());
      written.output_bytes += OutputBytes(one);
      for (const TensorEntry& entry : one.entries) shard_of[entry.name] = name;
    }
  }
  if (files.size() > 1) {
    const ordered_json index = {{"metadata", {{"total_size", written.output_bytes}}}, {"weight_map", shard_of}};
    QUIRE_RETURN_IF_ERROR(folder->WriteText("model.safetensors.index.json", index.dump(2) + "\n"));
  }
  QUIRE_RETURN_IF_ERROR(CopyOtherFiles(options, folder));
  // Without config.json the folder is no model, so it comes last.
  QUIRE_RETURN_IF_ERROR(WriteConfig(options, layout, model, folder));
  return written;
}

}  // namespace

absl::StatusOr<WrittenCheckpoint> WriteQuantizedCheckpoint(const WriteOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(const ModelConfig model, ReadSourceConfig(options.model));
  QUIRE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenSource(options.model, model));
  QUIRE_ASSIGN_OR_RETURN(const Layout layout, LayoutFor(checkpoint, options.width));
  OutputFolder folder(options.output);
  QUIRE_RETURN_IF_ERROR(folder.Make());
  absl::StatusOr<WrittenCheckpoint> written =
      WriteFiles(options, layout, model, Files(Plan(checkpoint, layout), options.max_file_bytes), &folder);
  if (!written.ok()) folder.RemoveFiles();
  return written;
}

}  // namespace quire::quantize
