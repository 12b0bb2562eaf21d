// SPDX-License-Identifier: Apache-2.0

// Writes a checkpoint with weights of 8 or 4 bits from one with 16 or 32 bits. The numbers are those that the worker
// computes with --quantize, and the format is that of compressed-tensors, which Transformers loads as well.

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "tools/quantize/quantized_writer.h"

ABSL_FLAG(std::string, model, "", "Model directory of Hugging Face with weights of 16 or 32 bits");
ABSL_FLAG(std::string, output, "", "Directory to write; it must be empty, and is created if it does not exist");
ABSL_FLAG(std::string, width, "int8",
          "int8: a scale per row, for products with inputs of 8 bits (W8A8). int4: a scale and a zero point for every "
          "128 columns");

namespace quire::quantize {
namespace {

ProgramFlags Flags() {
  return {.program = "quire-quantize",
          .purpose =
              "Writes a checkpoint of compressed-tensors with the weights that the worker computes with "
              "--quantize.",
          .usage = "--model=DIR --output=DIR --width=int8",
          .groups = {{"Flags", {"model", "output", "width"}}}};
}

absl::Status Run() {
  WriteOptions options{
      .model = absl::GetFlag(FLAGS_model), .output = absl::GetFlag(FLAGS_output), .width = Quantization::kInt8};
  const std::string width = absl::GetFlag(FLAGS_width);
  if (width == "int4") options.width = Quantization::kInt4;
  if (width != Name(options.width)) {
    return absl::InvalidArgumentError(absl::StrCat("--width is ", width, ", must be int8 or int4"));
  }
  if (options.model.empty()) return absl::InvalidArgumentError("--model is empty, must name a directory");
  if (options.output.empty()) return absl::InvalidArgumentError("--output is empty, must name a directory");
  QUIRE_ASSIGN_OR_RETURN(const WrittenCheckpoint written, WriteQuantizedCheckpoint(options));
  std::printf("%s: %d matrices in %s%s, %.3f GB instead of %.3f GB\n", options.output.c_str(), written.num_matrices,
              Name(options.width), written.group > 0 ? absl::StrCat(" with groups of ", written.group).c_str() : "",
              1e-9 * static_cast<double>(written.output_bytes), 1e-9 * static_cast<double>(written.input_bytes));
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire::quantize

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::quantize::Flags(), argc, argv, quire::quantize::Run);
}
