// SPDX-License-Identifier: Apache-2.0

#include "worker/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

// A directory with the files of a machine.
class FakeRoot {
 public:
  FakeRoot& With(const std::string& path, const std::string& contents) {
    std::filesystem::create_directories(std::filesystem::path(directory_.path() + path).parent_path());
    directory_.Write(path.substr(1), contents);
    return *this;
  }
  int64_t Available() const { return AvailableHostMemory(directory_.path()); }

 private:
  TestDirectory directory_;
};

constexpr char kMemInfo[] = "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:   4000 kB\n";

TEST(HostMemoryTest, WithoutACgroupItIsWhatTheKernelCallsAvailable) {
  EXPECT_EQ(FakeRoot().With("/proc/meminfo", kMemInfo).Available(), 4000 * 1024);
}

TEST(HostMemoryTest, NothingReadableIsZero) {
  EXPECT_EQ(FakeRoot().Available(), 0);
}

TEST(HostMemoryTest, VersionTwoTakesTheTightestLimitOnThePath) {
  FakeRoot root;
  root.With("/proc/meminfo", kMemInfo).With("/proc/self/cgroup", "0::/a/b\n");
  root.With("/sys/fs/cgroup/a/b/memory.max", "max\n").With("/sys/fs/cgroup/a/b/memory.current", "900000\n");
  root.With("/sys/fs/cgroup/a/memory.max", "2000000\n").With("/sys/fs/cgroup/a/memory.current", "1500000\n");
  root.With("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 200000\n");
  EXPECT_EQ(root.Available(), 2000000 - 1500000 + 200000);
}

TEST(HostMemoryTest, AContainerSeesItsOwnGroupAtTheMount) {
  FakeRoot root;
  root.With("/proc/meminfo", kMemInfo).With("/proc/self/cgroup", "0::/docker/1234\n");
  root.With("/sys/fs/cgroup/memory.max", "1000000\n").With("/sys/fs/cgroup/memory.current", "400000\n");
  EXPECT_EQ(root.Available(), 600000);
}

TEST(HostMemoryTest, VersionOneHasItsOwnFiles) {
  FakeRoot root;
  root.With("/proc/meminfo", kMemInfo).With("/proc/self/cgroup", "5:cpu:/x\n3:memory:/job\n");
  root.With("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000000\n");
  root.With("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000000\n");
  root.With("/sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 50000\n");
  EXPECT_EQ(root.Available(), 2050000);
}

TEST(HostMemoryTest, AGroupOverItsLimitHasNothingLeft) {
  FakeRoot root;
  root.With("/proc/meminfo", kMemInfo).With("/proc/self/cgroup", "0::/\n");
  root.With("/sys/fs/cgroup/memory.max", "1000\n").With("/sys/fs/cgroup/memory.current", "4000\n");
  EXPECT_EQ(root.Available(), 0);
}

TEST(HostMemoryTest, AnUnlimitedGroupChangesNothing) {
  FakeRoot root;
  root.With("/proc/meminfo", kMemInfo).With("/proc/self/cgroup", "3:memory:/\n");
  root.With("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.With("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(root.Available(), 4000 * 1024);
}

}  // namespace
}  // namespace quire
