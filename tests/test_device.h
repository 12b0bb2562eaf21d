// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_TEST_DEVICE_H_
#define QUIRE_TESTS_TEST_DEVICE_H_

#include <string>

#include "worker/model/quantize.h"

namespace quire {

// What the tests of the executor and of whole clusters compute with.
enum class TestDevice {
  kCpu,
  kInt8Cpu,          // The CPU with weights that are rounded to int8 while they are loaded.
  kInt4Cpu,          // The same with int4, and an output matrix that is rounded to int8.
  kInt4BFloat16Cpu,  // The same with Int4Inputs::kBFloat16.
  kInt8KvCpu,        // The CPU with float32 weights, and K and V that are rounded to int8.
  kEmulatedGpu,      // The backend for GPUs, exact, on the emulated device, a thousand times slower.
  kGpu,              // The backend for GPUs, exact, on the first GPU.
  kSimulated,        // The simulated device, as fast as possible.
};

// Reads QUIRE_TEST_DEVICE: int8, int4, int4-bfloat16, int8-kv, emulated, gpu, simulated, or nothing for the CPU with
// float32 weights. Another value ends the program.
TestDevice DeviceOfTests();

// Whether the backend for GPUs computes.
inline bool TestsGpuBackend() {
  return DeviceOfTests() == TestDevice::kEmulatedGpu || DeviceOfTests() == TestDevice::kGpu;
}

// How the weights are rounded.
WeightRounding RoundingOfTests();

// The library of kGpu, from QUIRE_TEST_GPU_LIBRARY. Empty: the one beside the program.
std::string GpuLibraryOfTests();

}  // namespace quire

#endif  // QUIRE_TESTS_TEST_DEVICE_H_
