// SPDX-License-Identifier: Apache-2.0

#include "worker/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the number after the word `key` at the beginning of a line, in files such as memory.stat ("inactive_file
// 4096").
std::optional<int64_t> FindNumber(const std::string& text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t value;
    if (words.size() >= 2 && words[0] == key && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return std::nullopt;
}

// Reads a file with one number. Returns nothing for "max" and for anything else that is not a number.
std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t value;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadFile(path)), &value)) return std::nullopt;
  return value;
}

int64_t MemInfoAvailable(const std::string& root) {
  const std::optional<int64_t> kib = FindNumber(ReadFile(absl::StrCat(root, "/proc/meminfo")), "MemAvailable:");
  return kib ? *kib * 1024 : kUnlimited;
}

// Returns limit - (usage - page cache that can be dropped) of one cgroup directory.
int64_t LeftInGroup(const std::string& directory, absl::string_view limit_file, absl::string_view usage_file,
                    absl::string_view cache_key) {
  const std::optional<int64_t> limit = ReadNumber(absl::StrCat(directory, "/", limit_file));
  const std::optional<int64_t> usage = ReadNumber(absl::StrCat(directory, "/", usage_file));
  if (!limit || !usage) return kUnlimited;
  const int64_t cache = FindNumber(ReadFile(absl::StrCat(directory, "/memory.stat")), cache_key).value_or(0);
  return std::max<int64_t>(0, *limit - *usage + std::min(cache, *usage));
}

int64_t LeftInVersion(const std::string& mount, std::string path, bool is_version_2) {
  int64_t left = kUnlimited;
  while (true) {
    const std::string directory = absl::StrCat(mount, path == "/" ? "" : path);
    left = std::min(left, is_version_2 ? LeftInGroup(directory, "memory.max", "memory.current", "inactive_file")
                                       : LeftInGroup(directory, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                     "total_inactive_file"));
    const size_t slash = path.rfind('/');
    if (path.size() <= 1 || slash == std::string::npos) return left;
    path.resize(std::max<size_t>(slash, 1));
  }
}

// Reads the lines of /proc/self/cgroup, such as "0::/a/b" (version 2) and "5:memory:/a/b" (version 1). In a container
// the path may not exist below the mount. The root of the mount is the container's own group then, and it is always
// visited.
int64_t LeftInGroups(const std::string& root) {
  const std::string mount = absl::StrCat(root, "/sys/fs/cgroup");
  int64_t left = kUnlimited;
  for (absl::string_view line : absl::StrSplit(ReadFile(absl::StrCat(root, "/proc/self/cgroup")), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    if (parts[0] == "0" && parts[1].empty()) left = std::min(left, LeftInVersion(mount, parts[2], true));
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      left = std::min(left, LeftInVersion(absl::StrCat(mount, "/memory"), parts[2], false));
    }
  }
  return left;
}

}  // namespace

int64_t AvailableHostMemory(const std::string& root) {
  const int64_t available = std::min(MemInfoAvailable(root), LeftInGroups(root));
  return available == kUnlimited ? 0 : available;
}

}  // namespace quire
