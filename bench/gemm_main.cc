// SPDX-License-Identifier: Apache-2.0

// Measures how fast the CPU kernels multiply by the matrices of a model, compared with the limits of memory and
// arithmetic.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/gemm.h"

ABSL_FLAG(std::string, model, "m500", "Model whose matrices are multiplied: m500 (0.5 B parameters) or s15m (15 M).");
ABSL_FLAG(std::string, cpu_kernels, "all",
          "Instruction sets: all (all that the machine has), or one of generic, avx2, avx512 and so on.");
ABSL_FLAG(std::string, type, "bfloat16",
          "Precision of the weights: float32, bfloat16, float16, int8, int4, int4-bfloat16 (int4 with products of "
          "bfloat16), int4-float32 (int4 with inputs in float32), fp8, or the blocks q8_0, q4_k, q5_k or q6_k of GGUF "
          "files.");
ABSL_FLAG(std::string, tokens, "1,2,4,8,16,32,64,128,256,512", "Rows that are multiplied together.");
ABSL_FLAG(int32_t, threads, 0, "Threads that multiply; 0: one per core.");
ABSL_FLAG(int32_t, mebibytes, 512,
          "Copies of a matrix that take turns, and half of what is plainly read; far more than the caches hold.");
ABSL_FLAG(double, seconds, 0.2, "Seconds of measurement for each median.");
ABSL_FLAG(bool, json, false, "Print the report as JSON.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "gemm",
      "multiplies by the matrices of a model and prints GFLOP/s and GB/s of weights, the rate of the multiplying "
      "instruction on registers just before and after and the share of it, and the share of the limit: the longer of a "
      "plain read of the weights and of the products at that rate.",
      "[flags]",
      {{"Load:", {"model", "cpu_kernels", "type", "tokens", "threads", "mebibytes", "seconds"}},
       {"Report:", {"json"}}}};
  return *flags;
}

absl::StatusOr<std::vector<cpu::Isa>> Isas() {
  const std::string name = absl::GetFlag(FLAGS_cpu_kernels);
  std::vector<cpu::Isa> isas = cpu::SupportedIsas();
  if (name != "all") std::erase_if(isas, [&](cpu::Isa isa) { return name != cpu::Name(isa); });
  if (!isas.empty()) return isas;
  return absl::InvalidArgumentError(absl::StrCat("--cpu-kernels is '", name, "', which this machine does not have"));
}

absl::StatusOr<GemmOptions> OptionsOfFlags() {
  GemmOptions options;
  options.num_threads = absl::GetFlag(FLAGS_threads);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("threads", options.num_threads, 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("mebibytes", absl::GetFlag(FLAGS_mebibytes), 1, 1 << 20));
  options.matrix_bytes = int64_t{absl::GetFlag(FLAGS_mebibytes)} << 20;
  QUIRE_ASSIGN_OR_RETURN(options.format,
                         FlagChoice<cpu::WeightFormat>(FLAGS_type, {{"float32", cpu::WeightFormat::kFloat32},
                                                                    {"bfloat16", cpu::WeightFormat::kBFloat16},
                                                                    {"float16", cpu::WeightFormat::kFloat16},
                                                                    {"int8", cpu::WeightFormat::kInt8},
                                                                    {"int4", cpu::WeightFormat::kInt4},
                                                                    {"int4-bfloat16", cpu::WeightFormat::kInt4BFloat16},
                                                                    {"int4-float32", cpu::WeightFormat::kInt4Float32},
                                                                    {"fp8", cpu::WeightFormat::kFp8},
                                                                    {"q8_0", cpu::WeightFormat::kQ8_0},
                                                                    {"q4_k", cpu::WeightFormat::kQ4_K},
                                                                    {"q5_k", cpu::WeightFormat::kQ5_K},
                                                                    {"q6_k", cpu::WeightFormat::kQ6_K},
                                                                    {"iq4_nl", cpu::WeightFormat::kIQ4_NL},
                                                                    {"mxfp4", cpu::WeightFormat::kMXFP4}}));
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_tokens), ',')) {
    int count;
    if (!absl::SimpleAtoi(text, &count) || count < 1 || count > 1 << 16) {
      return absl::InvalidArgumentError(absl::StrCat("--tokens has '", text, "', it must be numbers 1 .. 65536"));
    }
    options.num_tokens.push_back(count);
  }
  return options;
}

double ShareOfLimit(const GemmSpeed& speed) {
  return speed.limit_us / speed.median_us;
}

double ShareOfRegisters(const GemmSpeed& speed) {
  return speed.register_gflops > 0 ? speed.gflops / speed.register_gflops : 0;
}

void Print(const GemmSpeed& speed) {
  std::printf("%-12s %-14s %5d x %4d %6d %10.1f %9.1f %7.1f %10.1f %9.0f %10.0f %% %6.0f %%\n", cpu::Name(speed.isa),
              speed.shape.name, speed.shape.rows, speed.shape.cols, speed.num_tokens, speed.median_us, speed.gflops,
              speed.weight_gbytes, speed.read_gbytes, speed.register_gflops, 100 * ShareOfRegisters(speed),
              100 * ShareOfLimit(speed));
}

nlohmann::ordered_json ToJson(const GemmSpeed& speed) {
  return {{"kernels", cpu::Name(speed.isa)},
          {"matrix", speed.shape.name},
          {"rows", speed.shape.rows},
          {"cols", speed.shape.cols},
          {"tokens", speed.num_tokens},
          {"median_us", speed.median_us},
          {"gflops", speed.gflops},
          {"weight_gbytes_per_s", speed.weight_gbytes},
          {"read_gbytes_per_s", speed.read_gbytes},
          {"register_gflops", speed.register_gflops},
          {"share_of_registers", ShareOfRegisters(speed)},
          {"share_of_limit", ShareOfLimit(speed)}};
}

absl::Status Run() {
  QUIRE_ASSIGN_OR_RETURN(const GemmOptions options, OptionsOfFlags());
  QUIRE_ASSIGN_OR_RETURN(const std::vector<GemmShape> shapes, GemmShapes(absl::GetFlag(FLAGS_model)));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<cpu::Isa> isas, Isas());
  if (absl::GetFlag(FLAGS_json)) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    QUIRE_RETURN_IF_ERROR(
        MeasureGemm(options, isas, shapes, [&](const GemmSpeed& speed) { all.push_back(ToJson(speed)); }));
    std::printf("%s\n", all.dump(2).c_str());
    return absl::OkStatus();
  }
  std::printf("%-12s %-14s %12s %6s %10s %9s %7s %10s %9s %12s %8s\n", "kernels", "matrix", "", "tokens", "us",
              "GFLOP/s", "GB/s", "read GB/s", "registers", "of registers", "of limit");
  return MeasureGemm(options, isas, shapes, Print);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
