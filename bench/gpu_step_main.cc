// SPDX-License-Identifier: Apache-2.0

// Measures a decode step of a model of 8 B parameters on a GPU, compared with the time in which the GPU can read its
// memory. Layers are launched or repeated as graphs, and steps run one by one or overlap.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/gpu_step.h"
#include "kernels/cuda/open_device.h"

ABSL_FLAG(int32_t, gpu, 0, "Index of the GPU.");
ABSL_FLAG(std::string, quantize, "none",
          "Format of the matrices of the layers: none (bfloat16), int8, int4, fp8 or fp8-blocks.");
ABSL_FLAG(bool, rounded_inputs, true,
          "Round the inputs of products by int8 and FP8 to 8 bits, as the worker's --gpu-int8-inputs and "
          "--gpu-fp8-inputs do.");
ABSL_FLAG(int32_t, context, 1024, "Tokens of every sequence before the measured steps.");
ABSL_FLAG(int32_t, steps, 64, "Steps that are measured.");
ABSL_FLAG(bool, overlap, false, "Set up each kernel while the one before it ends, as the worker's --gpu-overlap does.");
ABSL_FLAG(std::string, tuning_cache, "", "File that stores the fastest multiplications; empty: none.");
ABSL_FLAG(std::string, json, "", "File for the figures; empty: none.");

namespace quire {
namespace {

// The variants: whether layers are repeated and whether steps overlap.
constexpr std::pair<bool, bool> kModes[] = {{false, false}, {true, false}, {true, true}};
constexpr size_t kCopyBytes = size_t{1} << 30;
constexpr char kFp8Blocks[] = "fp8-blocks";

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{"gpu_step",
                                                    "times decode steps of a model of 8 B parameters on a GPU.",
                                                    "[flags]",
                                                    {{"GPU:", {"gpu", "overlap", "tuning_cache"}},
                                                     {"Load:", {"quantize", "rounded_inputs", "context", "steps"}},
                                                     {"Report:", {"json"}}}};
  return *flags;
}

absl::StatusOr<std::unique_ptr<cuda::Device>> Open() {
  std::string why_not;
  std::unique_ptr<cuda::Device> device = cuda::OpenDevice(
      /*library=*/"",
      {.ordinal = absl::GetFlag(FLAGS_gpu),
       .exact = false,
       .tuning_cache = absl::GetFlag(FLAGS_tuning_cache),
       .overlaps_launches = absl::GetFlag(FLAGS_overlap)},
      &why_not);
  if (device == nullptr) return absl::UnavailableError(absl::StrCat("no GPU here: ", why_not));
  return device;
}

// Writes the figures so far. A run that is stopped leaves them.
absl::Status Write(const nlohmann::ordered_json& json) {
  const std::string file = absl::GetFlag(FLAGS_json);
  if (file.empty()) return absl::OkStatus();
  std::ofstream out(file);
  out << json.dump(2) << "\n";
  out.close();
  return out ? absl::OkStatus() : absl::InternalError(absl::StrCat("--json=", file, " cannot be written"));
}

absl::Status Run() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Rows of a run that is stopped are in its log.
  const ModelConfig config = Llama8B();
  GpuStepOptions options;
  options.context_tokens = absl::GetFlag(FLAGS_context);
  options.num_steps = absl::GetFlag(FLAGS_steps);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("steps", options.num_steps, 1, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("context", options.context_tokens, 2, config.max_position_embeddings - 2048));
  using Format = std::optional<QuantizedFormat>;
  QUIRE_ASSIGN_OR_RETURN(const Format layer_format,
                         FlagChoice<Format>(FLAGS_quantize, {{"none", std::nullopt},
                                                             {"int8", QuantizedFormat::kInt8},
                                                             {"int4", QuantizedFormat::kInt4},
                                                             {"fp8", QuantizedFormat::kFp8},
                                                             {kFp8Blocks, QuantizedFormat::kFp8}}));
  std::string layer_type = layer_format ? absl::GetFlag(FLAGS_quantize) : "bfloat16";
  const bool can_round = layer_format == QuantizedFormat::kInt8 || layer_format == QuantizedFormat::kFp8;
  if (can_round && !absl::GetFlag(FLAGS_rounded_inputs)) {
    layer_type += " with inputs of 16 bits";
  }
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Device> device, Open());
  const double bandwidth = CopyBandwidth(device.get(), kCopyBytes);
  const std::string description = device->Description();
  if (bandwidth == 0) return absl::ResourceExhaustedError("no memory for the copy that gives the bandwidth");
  std::printf("%s, copies %.0f GB/s; Llama 3 8B, layers of %s, contexts of %d tokens%s\n", description.c_str(),
              bandwidth / 1e9, layer_type.c_str(), options.context_tokens,
              absl::GetFlag(FLAGS_overlap) ? ", kernels overlap" : "");
  std::printf("%9s  %-9s %-10s %10s %9s %8s %9s\n", "sequences", "layers", "steps", "step us", "host us", "floor us",
              "x floor");
  QUIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<GpuStepBench> bench,
      GpuStepBench::Create(config, layer_format, std::move(device), absl::GetFlag(FLAGS_rounded_inputs),
                           /*in_blocks=*/absl::GetFlag(FLAGS_quantize) == kFp8Blocks));
  nlohmann::ordered_json json = {
      {"device", description}, {"copy_bytes_per_s", bandwidth}, {"layers", layer_type}, {"steps", {}}};
  for (const int num_sequences : {1, 16, 64}) {
    for (const auto& [repeats, overlaps] : kModes) {
      options.num_sequences = num_sequences;
      options.repeats_layers = repeats;
      options.overlaps_steps = overlaps;
      QUIRE_ASSIGN_OR_RETURN(const GpuStepTime time, bench->Measure(options));
      const double floor_us = 1e6 * static_cast<double>(time.step_bytes) / bandwidth;
      const char* const layers = repeats ? "repeated" : "launched";
      const char* const steps = overlaps ? "two" : "one by one";
      std::printf("%9d  %-9s %-10s %10.0f %9.0f %8.0f %9.2f\n", num_sequences, layers, steps, time.step_us,
                  time.host_us, floor_us, time.step_us / floor_us);
      json["steps"].push_back({{"sequences", num_sequences},
                               {"layers", layers},
                               {"steps", steps},
                               {"step_us", time.step_us},
                               {"host_us", time.host_us},
                               {"floor_us", floor_us}});
      QUIRE_RETURN_IF_ERROR(Write(json));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
