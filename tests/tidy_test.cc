// SPDX-License-Identifier: Apache-2.0

// Checks rules of the house that a compiler does not check: which folder may include which, that every file belongs to
// a target, how long lines are, that nothing is left for later, and that the prose is plain.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
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

const std::vector<std::string> kFolders = {"base",    "grammar",    "proto",  "kernels", "scheduler", "security",
                                           "serving", "kv_manager", "worker", "client",  "gateway",   "launcher",
                                           "bench",   "download",   "tools",  "tests"};

// The includes that are allowed in a folder: from our own tree (by first path component; generated protos are "quire",
// "google" and "grpc") and from outside (by prefix). The standard library is always allowed.
struct Layer {
  std::set<std::string> own;
  std::vector<std::string> outside;
};

const std::map<std::string, Layer>& Layers() {
  static const auto* layers = new std::map<std::string, Layer>{
      {"base", {{"base"}, {"absl/", "curl/", "nlohmann/", "yaml-cpp/"}}},
      {"grammar", {{"base", "grammar", "quire"}, {"absl/", "nlohmann/", "utf8proc"}}},
      {"kernels", {{"kernels"}, {"cuda", "cublas", "sanitizer/", "Python.h", "ucp/"}}},
      {"scheduler", {{"base", "scheduler"}, {"absl/"}}},
      {"security", {{"base", "security"}, {"absl/", "grpcpp/", "grpc/", "openssl/"}}},
      {"serving",
       {{"base", "security", "serving"},
        {"absl/", "grpcpp/", "grpc/", "prometheus/", "google/protobuf", "openssl/", "zlib.h"}}},
      {"kv_manager",
       {{"base", "grammar", "scheduler", "security", "serving", "kv_manager", "quire", "google", "etcd"},
        {"absl/", "grpcpp/", "grpc/", "prometheus/", "nlohmann/", "google/protobuf", "pcre2", "utf8proc"}}},
      {"worker",
       {{"base", "grammar", "kernels", "security", "serving", "worker", "quire", "google"},
        {"absl/", "grpcpp/", "grpc/", "prometheus/", "nlohmann/", "google/protobuf"}}},
      {"client",
       {{"base", "client", "security", "quire", "google", "grpc"},
        {"absl/", "grpcpp/", "nlohmann/", "google/protobuf", "CLI/"}}},
      {"gateway",
       {{"base", "client", "gateway", "security", "serving", "quire", "google", "grpc"},
        {"absl/", "boost/", "grpcpp/", "nlohmann/", "google/protobuf", "prometheus/"}}},
      {"launcher", {{"base", "launcher"}, {"absl/", "nlohmann/"}}},
  };
  return *layers;
}

// The rooms of a folder, which are its subfolders, and the rooms of the same folder that each may include. The rooms
// that a room may include come before it, so there are no circles. The folder itself is a room when it has files.
struct Room {
  std::string path;
  std::set<std::string> may_include;
};

const std::vector<Room>& Rooms() {
  static const auto* rooms = new std::vector<Room>{
      {"client/policy", {}},
      {"client/library", {"client/policy"}},
      {"client/load", {"client/library"}},
      {"client/terminal", {"client/library"}},
      {"client/views", {"client/library", "client/terminal"}},
      {"client/commands", {"client/library", "client/load", "client/terminal", "client/views"}},
      {"client/quirectl", {"client/commands", "client/library", "client/terminal"}},
      {"gateway/web", {}},
      {"gateway/chat_page", {}},
      {"gateway/openai", {"gateway/web"}},
      {"gateway/anthropic", {"gateway/openai", "gateway/web"}},
      {"gateway/responses", {"gateway/openai", "gateway/web"}},
      {"gateway/manager_link", {}},
      {"gateway/process",
       {"gateway/anthropic", "gateway/chat_page", "gateway/manager_link", "gateway/openai", "gateway/responses",
        "gateway/web"}},
      {"kv_manager/blocks", {}},
      {"kv_manager/tokenizer", {}},
      {"kv_manager/jinja", {}},
      {"kv_manager/chat", {"kv_manager/jinja", "kv_manager/tokenizer"}},
      {"kv_manager/text", {"kv_manager/tokenizer"}},
      {"kv_manager/worker_link", {}},
      {"kv_manager/leadership", {"kv_manager/worker_link"}},
      {"kv_manager/engine", {"kv_manager/blocks", "kv_manager/chat", "kv_manager/tokenizer", "kv_manager/worker_link"}},
      {"kv_manager/rpc", {}},
      {"kv_manager/requests",
       {"kv_manager/chat", "kv_manager/engine", "kv_manager/jinja", "kv_manager/rpc", "kv_manager/text",
        "kv_manager/tokenizer"}},
      {"kv_manager/inference",
       {"kv_manager/engine", "kv_manager/jinja", "kv_manager/requests", "kv_manager/rpc", "kv_manager/tokenizer"}},
      {"kv_manager/admin",
       {"kv_manager/blocks", "kv_manager/engine", "kv_manager/requests", "kv_manager/rpc", "kv_manager/worker_link"}},
      {"kv_manager/metrics", {"kv_manager/engine", "kv_manager/leadership", "kv_manager/requests"}},
      {"kv_manager/status_page", {"kv_manager/admin", "kv_manager/blocks", "kv_manager/engine"}},
      {"kv_manager/process",
       {"kv_manager/admin", "kv_manager/engine", "kv_manager/inference", "kv_manager/leadership", "kv_manager/metrics",
        "kv_manager/requests", "kv_manager/status_page", "kv_manager/worker_link"}},
      {"kernels", {}},
      {"kernels/cpu/isa", {"kernels"}},
      {"kernels/cpu/linear", {"kernels", "kernels/cpu/isa"}},
      {"kernels/cpu/attention", {"kernels", "kernels/cpu/isa", "kernels/cpu/linear"}},
      {"kernels/cpu/sampling", {"kernels", "kernels/cpu/isa"}},
      {"kernels/cpu/rows", {"kernels", "kernels/cpu/isa", "kernels/cpu/linear"}},
      {"kernels/cpu/table",
       {"kernels", "kernels/cpu/attention", "kernels/cpu/isa", "kernels/cpu/linear", "kernels/cpu/rows",
        "kernels/cpu/sampling"}},
      {"kernels/cpu",
       {"kernels", "kernels/cpu/attention", "kernels/cpu/isa", "kernels/cpu/linear", "kernels/cpu/sampling",
        "kernels/cpu/table"}},
      {"kernels/reference", {"kernels"}},
      {"kernels/simt", {"kernels"}},
      {"kernels/simulated", {"kernels", "kernels/cpu"}},
      {"kernels/cuda", {"kernels", "kernels/simt"}},
      {"kernels/python", {"kernels", "kernels/cuda"}},
      {"kernels/ucx", {"kernels"}},
      {"worker/model", {}},
      {"worker", {"worker/model"}},
  };
  return *rooms;
}

struct SourceFile {
  std::string path;  // Relative to the repository root.
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

// Returns the files that a shell runs.
std::vector<SourceFile> Scripts() {
  std::vector<SourceFile> files = FilesWithExtension({".sh"});
  const std::vector<SourceFile> without_extension = FilesWithExtension({""});
  std::copy_if(without_extension.begin(), without_extension.end(), std::back_inserter(files),
               [](const SourceFile& file) { return !file.lines.empty() && file.lines[0].starts_with("#!"); });
  for (const char* path : {"check", "quickstart", ".ci/run", "deploy/local/up"})
    files.push_back({path, ReadLines(SourcePath(path))});
  return files;
}

// Returns the files that people write, except documents.
std::vector<SourceFile> TextFiles() {
  std::vector<SourceFile> files =
      FilesWithExtension({".h", ".cc", ".cu", ".cuh", ".txt", ".cmake", ".py", ".proto", ".html", ".css", ".js"});
  const std::vector<SourceFile> scripts = Scripts();
  files.insert(files.end(), scripts.begin(), scripts.end());
  return files;
}

std::string Text(const SourceFile& file) {
  std::string text;
  for (const std::string& line : file.lines) text += line + "\n";
  return text;
}

std::string FirstComponent(const std::string& path) {
  return path.substr(0, path.find('/'));
}

bool IsAllowed(const Layer& layer, const std::string& include) {
  const bool is_outside = std::any_of(layer.outside.begin(), layer.outside.end(),
                                      [&](const std::string& prefix) { return include.starts_with(prefix); });
  return is_outside || layer.own.contains(FirstComponent(include));
}

// Calls `check` with each file and each header that it includes: with quotes, or with angle brackets if the header is
// neither the language's (<vector>) nor the system's own.
void ForEachInclude(const std::function<void(const SourceFile& file, const std::string& header)>& check) {
  const std::regex included(
      "^#include (?:\"([^\"]+)\"|"
      "<(?!sys/|netinet/|arpa/)"
      "(?!(?:cpuid|dlfcn|fcntl|immintrin|malloc|netdb|poll|pthread|sched|signal|ucontext|unistd)\\.h>)"
      "([^>]*[/.][^>]*)>)");
  for (const SourceFile& file : CppFiles()) {
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (std::regex_search(line, match, included)) check(file, match[1].matched ? match[1] : match[2]);
    }
  }
}

TEST(TidyTest, FoldersIncludeOnlyWhatStandsBelowThem) {
  int checked = 0;
  ForEachInclude([&](const SourceFile& file, const std::string& header) {
    const auto layer = Layers().find(FirstComponent(file.path));
    if (layer == Layers().end()) return;
    ++checked;
    EXPECT_TRUE(IsAllowed(layer->second, header)) << file.path << " may not include " << header;
  });
  EXPECT_GT(checked, 100);
}

TEST(TidyTest, RoomsIncludeOnlyTheRoomsThatTheyMay) {
  std::map<std::string, std::set<std::string>> may_include;
  for (const Room& room : Rooms()) {
    for (const std::string& below : room.may_include) {
      EXPECT_TRUE(may_include.contains(below)) << room.path << " stands before " << below;
    }
    may_include[room.path] = room.may_include;
  }
  int checked = 0;
  ForEachInclude([&](const SourceFile& file, const std::string& header) {
    const std::string room = fs::path(file.path).parent_path().string();
    const std::string other = fs::path(header).parent_path().string();
    if (room == other || FirstComponent(room) != FirstComponent(other)) return;
    const auto found = may_include.find(room);
    if (found == may_include.end()) {
      // Generated headers and folders without rooms, for example tests/.
      EXPECT_FALSE(may_include.contains(other)) << room << " is not in the list of rooms";
      return;
    }
    ++checked;
    EXPECT_TRUE(found->second.contains(other)) << file.path << " may not include " << header;
  });
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

// The compiler of one machine accepts these calls, and the compiler of another one that we support refuses them. The
// names are written in parts, so that this file does not contain them.
TEST(TidyTest, NothingIsCalledThatACompilerOfDebian12Or13Refuses) {
  const std::map<std::string, std::string> refused = {
      {std::string("HexStringTo") + "Bytes(", "it is deprecated in the Abseil of Debian 13; call ParseHex"},
      {std::string("__builtin_cpu_supports(\"f16") + "c\")", "clang 14 of Debian 12 does not know f16c; read CPUID"},
  };
  for (const SourceFile& file : CppFiles()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const auto& [call, reason] : refused) {
        EXPECT_EQ(file.lines[i].find(call), std::string::npos) << file.path << ":" << i + 1 << ": " << reason;
      }
    }
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

// Two types with one name would break the rule of one definition in any program that links both.
TEST(TidyTest, NoTwoHeadersDefineATypeWithTheSameName) {
  static const std::regex opened("namespace ([A-Za-z0-9_:]+) \\{");
  static const std::regex defined("(?:class|struct|enum class) ([A-Za-z0-9_]+)(?: final)?(?: : .*)? \\{.*");
  std::map<std::string, std::string> paths;  // By namespace and name.
  for (const SourceFile& file : CppFiles()) {
    if (!file.path.ends_with(".h") || file.path.starts_with("tests/")) continue;
    std::string scope;
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (std::regex_match(line, match, opened)) scope = match[1].str() + "::";
      // Each instruction set has a namespace of its own in place of this macro.
      if (scope.find("QUIRE_CPU_NAMESPACE") != std::string::npos || !std::regex_match(line, match, defined)) continue;
      const auto [first, is_new] = paths.emplace(scope + match[1].str(), file.path);
      EXPECT_TRUE(is_new || first->second == file.path)
          << first->first << " is defined in " << first->second << " and in " << file.path;
    }
  }
}

TEST(TidyTest, LinesAreShort) {
  for (const SourceFile& file : TextFiles()) {
    if (file.path.find("/golden/") != std::string::npos) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      // The limit counts columns, not bytes: continuation bytes of UTF-8 do not count.
      const auto columns =
          std::count_if(file.lines[i].begin(), file.lines[i].end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(static_cast<size_t>(columns), kMaxLineLength) << file.path << ":" << i + 1;
    }
  }
}

// The reasons that the manager gives with WithReason("...") are part of its API.
TEST(TidyTest, EveryReasonOfAnErrorIsExplainedInTheProtos) {
  std::string protos;
  for (const SourceFile& file : FilesWithExtension({".proto"})) protos += Text(file);
  const std::regex reason("\"([A-Z]+(?:_[A-Z]+)*)\"");
  int num_reasons = 0;
  for (const SourceFile& file : CppFiles()) {
    if (FirstComponent(file.path) != "kv_manager" || !file.path.ends_with(".cc")) continue;
    const std::string text = Text(file);
    for (size_t at = text.find("WithReason("); at != text.npos; at = text.find("WithReason(", at + 1)) {
      std::smatch match;
      const std::string call = text.substr(at, 600);
      if (!std::regex_search(call, match, reason)) continue;
      ++num_reasons;
      EXPECT_THAT(protos, testing::HasSubstr(match[1].str())) << file.path;
    }
  }
  EXPECT_GT(num_reasons, 20);
}

// Parts of the repository are copied without the file LICENSE beside them: client libraries, manifests, scripts.
TEST(TidyTest, SourcesNameTheirLicence) {
  const std::regex kinds(R"(.*\.(h|cc|cu|cuh|proto|py|sh|cmake|yaml|yml|Dockerfile)|(.*/)?CMakeLists\.txt)");
  std::vector<std::string> folders = {"cmake", "deploy"};
  folders.insert(folders.end(), kFolders.begin(), kFolders.end());
  std::vector<std::string> paths = {"CMakeLists.txt", "check", "quickstart", ".ci/run"};
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(SourcePath(folder))) {
      if (entry.is_regular_file()) paths.push_back(fs::relative(entry.path(), SourcePath("")).string());
    }
  }
  int num_files = 0;
  for (const std::string& path : paths) {
    const std::vector<std::string> lines = ReadLines(SourcePath(path));
    const bool is_script = !lines.empty() && lines[0].starts_with("#!");
    if (!is_script && !std::regex_match(path, kinds)) continue;
    ++num_files;
    ASSERT_GT(lines.size(), is_script ? 1u : 0u) << path;
    EXPECT_THAT(lines[is_script ? 1 : 0], testing::MatchesRegex("(//|#) SPDX-License-Identifier: Apache-2.0")) << path;
  }
  EXPECT_GT(num_files, 1500);
}

TEST(TidyTest, NothingIsLeftForLater) {
  // The words are assembled from parts, so that this file does not contain them.
  const std::regex later(std::string("\\b(TO") + "DO|FIX" + "ME|XX" + "X|HA" + "CK)\\b");
  for (const SourceFile& file : TextFiles()) {
    if (file.path.find("/golden/") != std::string::npos) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], later)) << file.path << ":" << i + 1 << ": " << file.lines[i];
    }
  }
}

// Phrases that a reader stumbles over, and what an engineer writes instead. The phrases are written in parts, so that
// this file does not contain them.
TEST(TidyTest, ProseIsPlain) {
  const std::map<std::string, std::string> refused = {
      {std::string("takes so") + " many", "Number of ... (a noun phrase)"},
      {std::string("takes so") + " long", "Duration of ..."},
      {std::string("so far from") + " the next", "Distance between ..."},
      {std::string("counts as so") + " many", "Weight ..."},
      {std::string("an eighth") + " as many", "a further 1/8"},
      {std::string("as many") + " that", "the same number of ..."},
      {std::string("it is") + " there", "it exists, it is present"},
      {std::string("what is") + " there", "the value, the text found there"},
      {std::string("the same") + " holds", "this also applies to"},
      {std::string("has it,") + " too", "shared with"},
      {std::string("begins") + " anew", "restarts"},
      {std::string("listens") + " anew", "listens again"},
      {std::string("built") + " anew", "rebuilt"},
      {std::string("again and") + " again", "repeatedly"},
      {std::string("they are") + " those of", "the same as in, from"},
      {std::string("has so") + " many", "Number of ... (a noun phrase)"},
      {std::string("after so") + " many", "Number of ... after which"},
      {std::string("goes") + " on", "continues"},
      {std::string("go on") + " with", "continue"},
      {std::string("this is") + " what", "what ... is (a noun phrase)"},
  };
  std::vector<SourceFile> files = TextFiles();
  for (SourceFile& document : FilesWithExtension({".md"})) files.push_back(std::move(document));
  for (const auto& entry : fs::directory_iterator(SourcePath("docs"))) {
    const std::string path = fs::relative(entry.path(), SourcePath("")).string();
    if (path.ends_with(".md")) files.push_back({path, ReadLines(entry.path())});
  }
  for (const char* path : {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"})
    files.push_back({path, ReadLines(SourcePath(path))});
  for (const SourceFile& file : files) {
    if (file.path.find("/golden/") != std::string::npos || file.path.find("/story_model/") != std::string::npos)
      continue;
    // A phrase may continue in the next line of a comment.
    std::string prose;
    for (const std::string& line : file.lines) {
      const size_t begin = std::min(line.find_first_not_of(" /#"), line.size());
      prose += line.substr(begin, line.find_last_not_of(' ') + 1 - begin) + " ";
    }
    std::transform(prose.begin(), prose.end(), prose.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const auto& [phrase, instead] : refused) {
      EXPECT_EQ(prose.find(phrase), std::string::npos) << file.path << " has \"" << phrase << "\"; write: " << instead;
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
