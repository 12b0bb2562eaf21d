// The rules of the house that a compiler does not check: which floor may include which, that every file belongs to a
// target, how long lines and files get, and that nothing is left for later.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLineLength = 120;
constexpr size_t kMaxFileLines = 500;

const std::vector<std::string> kFolders = {"base",       "proto",  "kernels", "scheduler", "security", "serving",
                                           "kv_manager", "worker", "client",  "bench",     "tools",    "tests"};

// What the files of a folder may include, from our own tree (by first path component; generated protos are
// "quire", "google" and "grpc") and from outside (by prefix). The standard library is open to all.
struct Floor {
  std::set<std::string> own;
  std::vector<std::string> outside;
};

const std::map<std::string, Floor>& Floors() {
  static const auto* floors = new std::map<std::string, Floor>{
      {"base", {{"base"}, {"absl/", "yaml-cpp/"}}},
      {"kernels", {{"kernels"}, {"cuda", "cublas", "sanitizer/", "Python.h"}}},
      {"scheduler", {{"base", "scheduler"}, {"absl/"}}},
      {"security", {{"base", "security"}, {"absl/", "grpcpp/", "grpc/", "openssl/"}}},
      {"serving",
       {{"base", "security", "serving"},
        {"absl/", "grpcpp/", "grpc/", "prometheus/", "google/protobuf", "civetweb.h", "zlib.h"}}},
      {"kv_manager",
       {{"base", "scheduler", "security", "serving", "kv_manager", "quire", "google"},
        {"absl/", "grpcpp/", "grpc/", "prometheus/", "nlohmann/", "google/protobuf", "pcre2", "utf8proc"}}},
      {"worker",
       {{"base", "kernels", "security", "serving", "worker", "quire"},
        {"absl/", "grpcpp/", "grpc/", "prometheus/", "nlohmann/", "google/protobuf"}}},
      {"client",
       {{"base", "client", "security", "quire", "google", "grpc"},
        {"absl/", "grpcpp/", "nlohmann/", "google/protobuf", "CLI/"}}},
  };
  return *floors;
}

struct SourceFile {
  std::string path;  // From the repository root.
  std::vector<std::string> lines;
};

std::vector<std::string> ReadLines(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<SourceFile> FilesWithExtension(const std::set<std::string>& extensions) {
  std::vector<SourceFile> files;
  const fs::path root = SourcePath("");
  for (const std::string& folder : kFolders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !extensions.contains(entry.path().extension().string())) continue;
      files.push_back({fs::relative(entry.path(), root).string(), ReadLines(entry.path())});
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

const std::vector<SourceFile>& CppFiles() {
  static const auto* files = new std::vector<SourceFile>(FilesWithExtension({".h", ".cc", ".cu", ".cuh"}));
  return *files;
}

// Those that people write, documents excepted.
std::vector<SourceFile> TextFiles() {
  return FilesWithExtension({".h", ".cc", ".cu", ".cuh", ".txt", ".cmake", ".py", ".proto", ".html", ".css", ".js"});
}

std::string FirstComponent(const std::string& path) {
  return path.substr(0, path.find('/'));
}

bool IsAllowed(const Floor& floor, const std::string& include) {
  const bool is_outside = std::any_of(floor.outside.begin(), floor.outside.end(),
                                      [&](const std::string& prefix) { return include.starts_with(prefix); });
  return is_outside || floor.own.contains(FirstComponent(include));
}

TEST(TidyTest, IncludesNeverPointUp) {
  // In quotes, or in angle brackets what is neither the language's (<vector>) nor the system's own.
  const std::regex included(
      "^#include (?:\"([^\"]+)\"|"
      "<(?!sys/|netinet/|arpa/)"
      "(?!(?:cpuid|dlfcn|fcntl|immintrin|netdb|poll|pthread|sched|signal|ucontext|unistd)\\.h>)"
      "([^>]*[/.][^>]*)>)");
  int checked = 0;
  for (const SourceFile& file : CppFiles()) {
    const auto floor = Floors().find(FirstComponent(file.path));
    if (floor == Floors().end()) continue;
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (!std::regex_search(line, match, included)) continue;
      ++checked;
      const std::string path = match[1].matched ? match[1] : match[2];
      EXPECT_TRUE(IsAllowed(floor->second, path)) << file.path << " may not include " << path;
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(TidyTest, TheSchedulerHasNoClockThreadRandomnessFileOrEnvironment) {
  const std::regex forbidden(
      "#include <(chrono|thread|mutex|random|fstream|iostream|filesystem|cstdio|ctime|condition_variable|future)>|"
      "absl/(time|synchronization|random)|getenv|\\brand\\(");
  for (const SourceFile& file : CppFiles()) {
    if (FirstComponent(file.path) != "scheduler") continue;
    for (const std::string& line : file.lines)
      EXPECT_FALSE(std::regex_search(line, forbidden)) << file.path << ": " << line;
  }
}

TEST(TidyTest, EveryFileBelongsToATarget) {
  std::set<std::string> listed;
  for (const SourceFile& cmake : FilesWithExtension({".txt", ".cmake"})) {
    const std::string folder = fs::path(cmake.path).parent_path().string();
    for (const std::string& line : cmake.lines) {
      static const std::regex word("[A-Za-z0-9_./]+\\.(cc|cu|h|html|css|js)\\b");
      for (std::sregex_iterator it(line.begin(), line.end(), word), end; it != end; ++it) {
        listed.insert((fs::path(folder) / it->str()).lexically_normal().string());
      }
    }
  }
  std::vector<SourceFile> files = CppFiles();
  for (SourceFile& page : FilesWithExtension({".html", ".css", ".js"})) files.push_back(std::move(page));
  for (const SourceFile& file : files) {
    EXPECT_TRUE(listed.contains(file.path)) << file.path << " is in no CMakeLists.txt";
  }
}

TEST(TidyTest, LinesAndFilesAreShort) {
  for (const SourceFile& file : TextFiles()) {
    if (file.path.find("/golden/") != std::string::npos) continue;
    EXPECT_LE(file.lines.size(), kMaxFileLines) << file.path;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      // Columns, not bytes: continuation bytes of UTF-8 do not count.
      const auto columns =
          std::count_if(file.lines[i].begin(), file.lines[i].end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(static_cast<size_t>(columns), kMaxLineLength) << file.path << ":" << i + 1;
    }
  }
}

TEST(TidyTest, NothingIsLeftForLater) {
  // Assembled so that this file does not contain them.
  const std::regex later(std::string("\\b(TO") + "DO|FIX" + "ME|XX" + "X|HA" + "CK)\\b");
  for (const SourceFile& file : TextFiles()) {
    if (file.path.find("/golden/") != std::string::npos) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], later)) << file.path << ":" << i + 1 << ": " << file.lines[i];
    }
  }
}

TEST(TidyTest, HeadersHaveGuardsNamedAfterTheirPath) {
  for (const SourceFile& file : CppFiles()) {
    if (!file.path.ends_with(".h")) continue;
    std::string guard = "QUIRE_" + file.path + "_";
    for (char& c : guard) c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::toupper(c)) : '_';
    EXPECT_THAT(file.lines, testing::Contains("#ifndef " + guard)) << file.path;
  }
}

}  // namespace
}  // namespace quire
