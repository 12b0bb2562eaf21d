// SPDX-License-Identifier: Apache-2.0

// Writes a model directory with random weights for tests and benchmarks. The model can have any shape of any family
// that the worker serves. It has a byte-level tokenizer, so that the whole system can run it.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "tools/make_model/model_shape.h"
#include "tools/make_model/safetensors_writer.h"
#include "tools/make_model/tokenizer_files.h"

ABSL_FLAG(std::string, output, "", "Directory to write; it is created if it does not exist");
ABSL_FLAG(std::string, preset, "tiny", "Shape to start from: tiny, s15m, m500, llama8b or qwen30b_a3b");
ABSL_FLAG(std::optional<std::string>, family, std::nullopt, "llama, mistral, qwen2, qwen3 or qwen3_moe");
ABSL_FLAG(std::optional<int>, dim, std::nullopt, "Hidden size");
ABSL_FLAG(std::optional<int>, layers, std::nullopt, "Number of layers");
ABSL_FLAG(std::optional<int>, heads, std::nullopt, "Number of query heads");
ABSL_FLAG(std::optional<int>, kv_heads, std::nullopt, "Number of KV heads");
ABSL_FLAG(std::optional<int>, head_dim, std::nullopt, "Dimensions per head; dim / heads by default");
ABSL_FLAG(std::optional<int>, ffn, std::nullopt, "Intermediate size of the MLP");
ABSL_FLAG(std::optional<int>, experts, std::nullopt, "Experts of a layer, qwen3_moe only; 8 by default");
ABSL_FLAG(std::optional<int>, experts_per_token, std::nullopt, "Experts that a token uses; 2 by default");
ABSL_FLAG(std::optional<int>, expert_ffn, std::nullopt, "Intermediate size of an expert; ffn / 2 by default");
ABSL_FLAG(std::optional<int>, vocab, std::nullopt, "Vocabulary size; with 258 or more the model gets a tokenizer");
ABSL_FLAG(std::optional<int>, context, std::nullopt, "Longest sequence in tokens");
ABSL_FLAG(std::optional<int>, window, std::nullopt, "Sliding window in tokens, mistral only");
ABSL_FLAG(std::optional<bool>, tied, std::nullopt, "Use the embedding as the output matrix");
ABSL_FLAG(std::string, dtype, "bf16", "f32, bf16 or f16");
ABSL_FLAG(uint64_t, seed, 1, "Equal seeds give equal weights");

namespace quire::make_model {
namespace {

ProgramFlags Flags() {
  return {.program = "make_model",
          .purpose = "Writes a model directory with random weights.",
          .usage = "--output=DIR --preset=s15m",
          .groups = {{"Output", {"output", "dtype", "seed"}},
                     {"Shape",
                      {"preset", "family", "dim", "layers", "heads", "kv_heads", "head_dim", "ffn", "experts",
                       "experts_per_token", "expert_ffn", "vocab", "context", "window", "tied"}}}};
}

absl::StatusOr<ModelShape> ShapeOfFlags() {
  const std::optional<ModelShape> preset = Preset(absl::GetFlag(FLAGS_preset));
  if (!preset) {
    return absl::InvalidArgumentError(absl::StrCat("--preset is ", absl::GetFlag(FLAGS_preset),
                                                   ", must be tiny, s15m, m500, llama8b or qwen30b_a3b"));
  }
  ModelShape shape = *preset;
  shape.family = absl::GetFlag(FLAGS_family).value_or(shape.family);
  shape.dim = absl::GetFlag(FLAGS_dim).value_or(shape.dim);
  shape.layers = absl::GetFlag(FLAGS_layers).value_or(shape.layers);
  shape.heads = absl::GetFlag(FLAGS_heads).value_or(shape.heads);
  shape.kv_heads = absl::GetFlag(FLAGS_kv_heads).value_or(shape.kv_heads);
  shape.head_dim = absl::GetFlag(FLAGS_head_dim).value_or(shape.head_dim);
  shape.ffn = absl::GetFlag(FLAGS_ffn).value_or(shape.ffn);
  shape.experts = absl::GetFlag(FLAGS_experts).value_or(shape.experts);
  shape.experts_per_token = absl::GetFlag(FLAGS_experts_per_token).value_or(shape.experts_per_token);
  shape.expert_ffn = absl::GetFlag(FLAGS_expert_ffn).value_or(shape.expert_ffn);
  shape.vocab = absl::GetFlag(FLAGS_vocab).value_or(shape.vocab);
  shape.context = absl::GetFlag(FLAGS_context).value_or(shape.context);
  shape.window = absl::GetFlag(FLAGS_window).value_or(shape.window);
  shape.tied = absl::GetFlag(FLAGS_tied).value_or(shape.tied);
  const std::string trouble = Complete(&shape);
  if (!trouble.empty()) return absl::InvalidArgumentError(trouble);
  return shape;
}

absl::StatusOr<DataType> TypeOfFlag() {
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (dtype == "f32") return DataType::kFloat32;
  if (dtype == "bf16") return DataType::kBFloat16;
  if (dtype == "f16") return DataType::kFloat16;
  return absl::InvalidArgumentError(absl::StrCat("--dtype is ", dtype, ", must be f32, bf16 or f16"));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out.good() ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::Status Run() {
  QUIRE_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOfFlags());
  QUIRE_ASSIGN_OR_RETURN(const DataType type, TypeOfFlag());
  const std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) return absl::InvalidArgumentError("--output is empty, must name a directory");
  std::error_code error;
  std::filesystem::create_directories(output, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", output, ": ", error.message()));

  const std::vector<TensorSpec> specs = TensorsOf(shape);
  QUIRE_RETURN_IF_ERROR(
      WriteRandomTensors(specs, type, absl::GetFlag(FLAGS_seed), absl::StrCat(output, "/model.safetensors")));
  QUIRE_RETURN_IF_ERROR(WriteText(absl::StrCat(output, "/config.json"), ConfigJson(shape, Name(type))));
  if (HasTokenizer(shape.vocab)) {
    QUIRE_RETURN_IF_ERROR(WriteText(absl::StrCat(output, "/tokenizer.json"), TokenizerJson(shape.vocab)));
    QUIRE_RETURN_IF_ERROR(
        WriteText(absl::StrCat(output, "/tokenizer_config.json"), TokenizerConfigJson(shape.context)));
  }
  int64_t num_parameters = 0;
  for (const TensorSpec& spec : specs) num_parameters += spec.size();
  std::printf("%s: %s, %lld parameters in %s\n", output.c_str(), shape.family.c_str(),
              static_cast<long long>(num_parameters), Name(type));
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire::make_model

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::make_model::Flags(), argc, argv, quire::make_model::Run);
}
