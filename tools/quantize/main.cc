// SPDX-License-Identifier: Apache-2.0

// Writes a checkpoint with weights of 8 or 4 bits from one with 16 or 32 bits. Whole numbers are the same as the worker
// computes with --quantize, in the format of compressed-tensors, which Transformers loads as well. FP8 has the format
// of DeepSeek.

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/number_text.h"
#include "base/program_main.h"
#include "base/status.h"
#include "tools/quantize/quantized_writer.h"
#include "worker/model/hub_cache.h"

ABSL_FLAG(
    std::string, model, "",
    "Required. A Hugging Face model directory with weights of 16 or 32 bits, or such a model in the cache of the hub: "
    "hf:owner/name, with @revision at the end if it is not main.");
ABSL_FLAG(std::string, output, "",
          "Required. The directory to write. It must be empty, and is created if it does not exist.");
ABSL_FLAG(std::string, width, "int8",
          "int8: a scale per row, for products with inputs of 8 bits (W8A8). int4: a scale and a zero point for every "
          "128 columns. fp8: a scale for each block of 128 x 128, as in the checkpoints of DeepSeek.");

namespace quire::quantize {
namespace {

ProgramFlags Flags() {
  return {.program = "quire-quantize",
          .purpose =
              "reads a model directory, rounds its weights to 8 or 4 bits as quire-worker --quantize does, and writes "
              "them with its other files to a new folder, as a checkpoint of compressed-tensors. With --width=fp8 the "
              "checkpoint has FP8 in blocks instead.",
          .usage = "--model=DIR --output=NEW_DIR [--width=int8|int4|fp8]",
          .groups = {{"Flags:", {"model", "output", "width"}}}};
}

absl::Status Run() {
  QUIRE_ASSIGN_OR_RETURN(
      const Quantization width,
      FlagChoice<Quantization>(
          FLAGS_width, {{"int8", Quantization::kInt8}, {"int4", Quantization::kInt4}, {"fp8", Quantization::kFp8}}));
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError("--model is empty, it must name a directory or a model of the hub");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string model, ModelPath(absl::GetFlag(FLAGS_model)));
  const WriteOptions options{.model = model, .output = absl::GetFlag(FLAGS_output), .width = width};
  if (options.output.empty()) return absl::InvalidArgumentError("--output is empty, it must name a directory");
  QUIRE_ASSIGN_OR_RETURN(const WrittenCheckpoint written, WriteQuantizedCheckpoint(options));
  const std::string groups = written.group > 0 ? absl::StrCat(" with groups of ", written.group) : "";
  std::printf("%s: %d matrices in %s%s, %s instead of %s\n", options.output.c_str(), written.num_matrices,
              Name(options.width), groups.c_str(), FormatBytes(written.output_bytes).c_str(),
              FormatBytes(written.input_bytes).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire::quantize

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::quantize::Flags(), argc, argv, quire::quantize::Run);
}
