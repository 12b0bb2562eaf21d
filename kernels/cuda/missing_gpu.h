// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_MISSING_GPU_H_
#define QUIRE_KERNELS_CUDA_MISSING_GPU_H_

#include <string>

namespace quire::cuda {

// The message says what is wrong when CUDA finds no driver.
inline constexpr char kNoDriver[] =
    "libcuda.so.1 is not here: no NVIDIA driver is installed, or this container was started without its GPU (it needs "
    "--gpus=all of docker, or in Kubernetes a limit of nvidia.com/gpu and perhaps the runtime class nvidia)";

// Returns what may hide the GPUs from a process that has a driver, to be appended to an error; or an empty string.
// `visible_devices` is the value of CUDA_VISIBLE_DEVICES, or null. `has_control_device` tells whether there is
// /dev/nvidiactl.
inline std::string WhatHidesGpus(const char* visible_devices, bool has_control_device) {
  std::string text;
  if (visible_devices != nullptr) text += std::string("; CUDA_VISIBLE_DEVICES is \"") + visible_devices + "\"";
  if (!has_control_device) {
    text += "; there is no /dev/nvidiactl, so a container without its GPU, or PrivateDevices of systemd, may hide it";
  }
  return text;
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MISSING_GPU_H_
