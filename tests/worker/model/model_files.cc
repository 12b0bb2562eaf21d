// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/model/model_files.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "tests/test_paths.h"

namespace quire {

TestDirectory::TestDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "quire_test_").string() + std::string(6, 'X');
  QUIRE_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
  path_ = pattern;
}

TestDirectory::~TestDirectory() {
  std::filesystem::remove_all(path_);
}

void TestDirectory::Write(const std::string& name, std::string_view contents) const {
  // A file that is cut to nothing and written again is put on the disk by ext4 when it is closed, which takes
  // milliseconds. A new file is not.
  std::filesystem::remove(path_ + "/" + name);
  std::ofstream out(path_ + "/" + name, std::ios::binary);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  QUIRE_CHECK(out.good()) << path_ << "/" << name;
}

void TestDirectory::CopyFrom(const std::string& directory, const std::string& name) const {
  Write(name, ReadWholeFile(directory + "/" + name));
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  QUIRE_CHECK(in.good()) << path;
  std::ostringstream contents;
  contents << in.rdbuf();
  return contents.str();
}

std::string GoldenModel(const std::string& name) {
  return SourcePath("tests/golden/models/" + name);
}

std::string SafetensorsFileOf(const std::string& header, size_t num_bytes) {
  std::string file;
  const uint64_t length = header.size();
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(length >> (8 * i)));
  return file + header + std::string(num_bytes, '\0');
}

}  // namespace quire
