// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "worker/model/config.h"
#include "worker/model/gguf.h"
#include "worker/model/gguf_config.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/gguf_tokenizer.h"

namespace quire {
namespace {

void CheckError(const absl::Status& status) {
  const std::string message(status.message());
  QUIRE_CHECK(status.ok() || (!message.empty() && message.find('\n') == message.npos)) << message;
}

}  // namespace
}  // namespace quire

// Input: a GGUF file. Every tensor that is found lies within the file, small ones can be converted, and every error is
// one line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire;  // NOLINT: The function is outside of every namespace.
  constexpr size_t kMaxConverted = 1 << 16;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto contents = ParseGguf(file, "model.gguf");
  CheckError(contents.status());
  if (!contents.ok()) return 0;
  const auto config = GgufConfigJson(*contents);
  CheckError(config.status());
  if (config.ok()) CheckError(ParseModelConfig(*config, "").status());
  CheckError(GgufTokenizerFiles(*contents).status());
  const auto tensors = GgufTensors(*contents);
  CheckError(tensors.status());
  if (!tensors.ok()) return 0;
  for (const Tensor& tensor : *tensors) {
    QUIRE_CHECK(tensor.bytes.data() >= file.data() && tensor.bytes.data() + tensor.bytes.size() <= file.data() + size)
        << Describe(tensor);
    if (!IsGgufQuantized(tensor) || tensor.bytes.size() > kMaxConverted) continue;
    const OwnedTensor converted = DequantizeGgufTensor(tensor);
    QUIRE_CHECK(converted.tensor.shape == tensor.shape) << Describe(tensor);
  }
  return 0;
}
