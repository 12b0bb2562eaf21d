// SPDX-License-Identifier: Apache-2.0

// Measures the worker without manager and network, to show the effect of a kernel in tokens per second.

#include <cstdint>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/cpu_kernels_flag.h"
#include "bench/worker_speed.h"

ABSL_FLAG(std::string, model, "models/tales", "Directory of the model.");
ABSL_FLAG(int32_t, threads, 0, "Threads that compute; 0: one per core. With one thread, times of steps are CPU time.");
ABSL_FLAG(std::string, kv_type, "bfloat16", "Precision of K and V: float32, bfloat16, float16 or int8.");
ABSL_FLAG(std::string, quantize, "none", "Quantization of the weights, as of quire-worker: none, int8 or int4.");
ABSL_FLAG(bool, quantize_output, false, "Round the output matrix to 8 bits, as of quire-worker.");
ABSL_FLAG(std::string, int4_inputs, "int8",
          "Inputs of products by int4, as of quire-worker: int8, bfloat16 or float32.");
ABSL_FLAG(int32_t, sequences, 16, "Sequences that run together.");
ABSL_FLAG(int32_t, beams, 0, "Beams of one sequence; 0: no beam search.");
ABSL_FLAG(int32_t, prompt, 128, "Tokens of a prompt.");
ABSL_FLAG(int32_t, shared, 0, "Number of tokens at the beginning of a prompt that all prompts share.");
ABSL_FLAG(int32_t, output, 64, "Tokens that every sequence generates.");
ABSL_FLAG(bool, json, false, "Print the report as JSON.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "worker_speed",
      "runs sequences with the real executor in this process and tells its speed in prefill and in "
      "steps in which all sequences decode, and what kernels and the rest take of such a step.",
      "[flags]",
      {{"Worker:", {"model", "threads", "cpu_kernels", "kv_type", "quantize", "quantize_output", "int4_inputs"}},
       {"Load:", {"sequences", "beams", "prompt", "shared", "output"}},
       {"Report:", {"json"}}}};
  return *flags;
}

std::string ToJson(const WorkerSpeed& speed) {
  nlohmann::ordered_json json = {{"prefill_tokens", speed.prefill_tokens},
                                 {"prefill_tokens_per_s", speed.prefill_tokens_per_s()},
                                 {"total_tokens_per_s", speed.total_tokens_per_s()},
                                 {"decode_steps", speed.decode_us.size()},
                                 {"decode_tokens_per_s", speed.decode_tokens_per_s()},
                                 {"median_decode_us", speed.decode_us.Median()},
                                 {"p99_decode_us", speed.decode_us.Quantile(0.99)},
                                 {"median_overhead_us", speed.overhead_us.Median()},
                                 {"median_used_experts", speed.used_experts.Median()},
                                 {"kv_bytes", speed.kv_bytes}};
  for (int i = 0; i < kNumKernels; ++i) {
    json[absl::StrCat("mean_", Name(static_cast<Kernel>(i)), "_us")] =
        1e6 * speed.decode_kernels[i] / speed.decode_us.size();
    json[absl::StrCat("prefill_", Name(static_cast<Kernel>(i)), "_us")] = 1e6 * speed.prefill_kernels[i];
  }
  return json.dump(2) + "\n";
}

void Print(const WorkerSpeed& speed) {
  std::printf(
      "prefill: %lld tokens, %.1f tokens/s\ndecode: %d steps of %d sequences, %.1f tokens/s\n"
      "all: %lld tokens generated, %.1f tokens/s\nK and V: %.1f MiB at most\n\n"
      "a decode step, us: median %.0f, p99 %.0f\n  %-12s %9.0f (median)\n",
      static_cast<long long>(speed.prefill_tokens), speed.prefill_tokens_per_s(), speed.decode_us.size(),
      speed.decode_rows, speed.decode_tokens_per_s(), static_cast<long long>(speed.total_tokens),
      speed.total_tokens_per_s(), static_cast<double>(speed.kv_bytes) / (1 << 20), speed.decode_us.Median(),
      speed.decode_us.Quantile(0.99), "no kernel", speed.overhead_us.Median());
  if (speed.used_experts.Median() > 0) {
    std::printf("  experts that a layer uses: %.1f (median)\n", speed.used_experts.Median());
  }
  for (int i = 0; i < kNumKernels; ++i) {
    std::printf("  %-12s %9.0f\n", Name(static_cast<Kernel>(i)),
                1e6 * speed.decode_kernels[i] / speed.decode_us.size());
  }
  std::printf("\nprefill, us: %.0f\n", 1e6 * speed.prefill_seconds);
  for (int i = 0; i < kNumKernels; ++i) {
    std::printf("  %-12s %9.0f\n", Name(static_cast<Kernel>(i)), 1e6 * speed.prefill_kernels[i]);
  }
}

absl::StatusOr<WorkerSpeedOptions> OptionsOfFlags() {
  WorkerSpeedOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  options.threads = absl::GetFlag(FLAGS_threads);
  QUIRE_ASSIGN_OR_RETURN(options.cpu_kernels, CpuKernelsFlag());
  options.num_sequences = absl::GetFlag(FLAGS_sequences);
  options.num_beams = absl::GetFlag(FLAGS_beams);
  options.prompt_tokens = absl::GetFlag(FLAGS_prompt);
  options.shared_tokens = absl::GetFlag(FLAGS_shared);
  options.output_tokens = absl::GetFlag(FLAGS_output);
  QUIRE_ASSIGN_OR_RETURN(options.kv_type, FlagChoice<KvType>(FLAGS_kv_type, {{"float32", KvType::kFloat32},
                                                                             {"bfloat16", KvType::kBFloat16},
                                                                             {"float16", KvType::kFloat16},
                                                                             {"int8", KvType::kInt8}}));
  QUIRE_ASSIGN_OR_RETURN(options.rounding.layers,
                         FlagChoice<Quantization>(FLAGS_quantize, {{Name(Quantization::kNone), Quantization::kNone},
                                                                   {Name(Quantization::kInt8), Quantization::kInt8},
                                                                   {Name(Quantization::kInt4), Quantization::kInt4}}));
  QUIRE_ASSIGN_OR_RETURN(
      options.rounding.int4_inputs,
      FlagChoice<Int4Inputs>(FLAGS_int4_inputs, {{Name(Int4Inputs::kInt8), Int4Inputs::kInt8},
                                                 {Name(Int4Inputs::kBFloat16), Int4Inputs::kBFloat16},
                                                 {Name(Int4Inputs::kFloat32), Int4Inputs::kFloat32}}));
  options.rounding.output = absl::GetFlag(FLAGS_quantize_output);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("threads", options.threads, 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("sequences", options.num_sequences, 1, options.num_beams > 0 ? 1 : 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("beams", options.num_beams, 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("prompt", options.prompt_tokens, 1, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("shared", options.shared_tokens, 0, options.prompt_tokens - 1));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("output", options.output_tokens, 2, 1 << 20));
  return options;
}

absl::Status Run() {
  QUIRE_ASSIGN_OR_RETURN(const WorkerSpeedOptions options, OptionsOfFlags());
  QUIRE_ASSIGN_OR_RETURN(const WorkerSpeed speed, MeasureWorkerSpeed(options));
  if (absl::GetFlag(FLAGS_json)) {
    std::fputs(ToJson(speed).c_str(), stdout);
  } else {
    Print(speed);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
