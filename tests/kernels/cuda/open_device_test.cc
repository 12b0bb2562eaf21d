// SPDX-License-Identifier: Apache-2.0

// Tests what is said when there is no GPU, or no library for it.

#include "kernels/cuda/open_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cuda/fatal.h"
#include "kernels/cuda/line_writer.h"
#include "kernels/cuda/missing_gpu.h"

namespace quire::cuda {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string WhyNot(const std::string& library) {
  std::string why_not;
  EXPECT_EQ(OpenDevice(library, {}, &why_not), nullptr);
  return why_not;
}

TEST(OpenDeviceTest, AMissingLibraryIsSaidWithItsFlag) {
  EXPECT_EQ(WhyNot("/missing/library.so"), "--gpu-library is /missing/library.so, and there is no such file");
  // The tests are not in the folder of the programs.
  EXPECT_THAT(WhyNot(""),
              AllOf(StartsWith("there is no /"), EndsWith("/libquire_cuda.so: this program was built without "
                                                          "CUDA, or --gpu-library must say where the "
                                                          "library is")));
}

TEST(OpenDeviceTest, AnotherLibraryIsRefused) {
  EXPECT_EQ(WhyNot(QUIRE_OTHER_LIBRARY), std::string("--gpu-library is ") + QUIRE_OTHER_LIBRARY +
                                             ", which is not Quire's library for GPUs: it has no function "
                                             "quire_open_cuda_device");
}

TEST(OpenDeviceTest, AMissingCublasIsSaidWithItsVersionAndWhereToGetIt) {
  EXPECT_THAT(WhyNot(QUIRE_LIBRARY_WITHOUT_CUBLAS),
              AllOf(StartsWith("the library of --gpu-library, /"), HasSubstr(" cannot be loaded: libcublasLt.so.99: "),
                    EndsWith("; it needs cuBLAS of CUDA 99: install libcublas of NVIDIA or nvidia-cublas of Python, "
                             "and name its folder in LD_LIBRARY_PATH")));
}

TEST(OpenDeviceTest, HeadsWithoutKernelsAreRefusedBeforeTheLibraryIsLoaded) {
  DeviceOptions options;
  options.head_dim = 16;
  std::string why_not;
  EXPECT_EQ(OpenDevice("/missing/library.so", options, &why_not), nullptr);
  EXPECT_EQ(why_not, "there are no kernels for heads of 16 dimensions, but for 32, 64, 80, 96, 128, 256");
}

TEST(LineWriterDeathTest, TheLineThatEndsTheProcessGoesToTheWriter) {
  EXPECT_EXIT(Fatal("no memory for %s: %d bytes", "it", 7), testing::ExitedWithCode(EXIT_FAILURE),
              "GPU: no memory for it: 7 bytes\n");
  const auto in_braces = [](bool is_error, const char* line) { std::fprintf(stderr, "{%d, %s}\n", is_error, line); };
  EXPECT_EXIT(
      {
        SetLineWriter(in_braces);
        WriteLine(/*is_error=*/false, "a warning");
        Fatal("no memory for %s: %d bytes", "it", 7);
      },
      testing::ExitedWithCode(EXIT_FAILURE), "^\\{0, a warning\\}\n\\{1, no memory for it: 7 bytes\\}\n$");
}

TEST(OpenDeviceTest, AContainerWithoutItsGpuIsAReasonForAMissingDriver) {
  EXPECT_THAT(kNoDriver, AllOf(HasSubstr("libcuda.so.1"), HasSubstr("--gpus=all"), HasSubstr("nvidia.com/gpu")));
}

TEST(OpenDeviceTest, WhatHidesGpusIsSaid) {
  EXPECT_EQ(WhatHidesGpus(nullptr, true), "");
  EXPECT_EQ(WhatHidesGpus("", true), "; CUDA_VISIBLE_DEVICES is \"\"");
  EXPECT_EQ(WhatHidesGpus("3", false),
            "; CUDA_VISIBLE_DEVICES is \"3\"; there is no /dev/nvidiactl, so a container without its GPU, or "
            "PrivateDevices of systemd, may hide it");
}

}  // namespace
}  // namespace quire::cuda
