// SPDX-License-Identifier: Apache-2.0

#include "tests/test_device.h"

#include <cstdlib>

#include "base/check.h"

namespace quire {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

TestDevice DeviceOfTests() {
  const std::string device = Variable("QUIRE_TEST_DEVICE");
  if (device == "int8") return TestDevice::kInt8Cpu;
  if (device == "int4") return TestDevice::kInt4Cpu;
  if (device == "int4-bfloat16") return TestDevice::kInt4BFloat16Cpu;
  if (device == "int8-kv") return TestDevice::kInt8KvCpu;
  if (device == "emulated") return TestDevice::kEmulatedGpu;
  if (device == "gpu") return TestDevice::kGpu;
  if (device == "simulated") return TestDevice::kSimulated;
  QUIRE_CHECK(device.empty()) << "QUIRE_TEST_DEVICE is " << device
                              << ", it must be int8, int4, int4-bfloat16, int8-kv, emulated, gpu or simulated";
  return TestDevice::kCpu;
}

WeightRounding RoundingOfTests() {
  if (DeviceOfTests() == TestDevice::kInt8Cpu) return {.layers = Quantization::kInt8};
  if (DeviceOfTests() == TestDevice::kInt4Cpu) return {.layers = Quantization::kInt4, .output = true};
  if (DeviceOfTests() == TestDevice::kInt4BFloat16Cpu) {
    return {.layers = Quantization::kInt4, .output = true, .int4_inputs = Int4Inputs::kBFloat16};
  }
  return {};
}

std::string GpuLibraryOfTests() {
  return Variable("QUIRE_TEST_GPU_LIBRARY");
}

}  // namespace quire
