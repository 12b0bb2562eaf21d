// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_MODEL_FILES_H_
#define QUIRE_TESTS_WORKER_MODEL_MODEL_FILES_H_

#include <string>
#include <string_view>

namespace quire {

// A directory for a test. The destructor removes it with everything in it.
class TestDirectory {
 public:
  TestDirectory();
  ~TestDirectory();
  TestDirectory(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  void Write(const std::string& name, std::string_view contents) const;
  void CopyFrom(const std::string& directory, const std::string& name) const;

 private:
  std::string path_;
};

std::string ReadWholeFile(const std::string& path);

// Returns "<repository>/tests/golden/models/<name>".
std::string GoldenModel(const std::string& name);

// Returns a .safetensors file with this header and `num_bytes` bytes of data.
std::string SafetensorsFileOf(const std::string& header, size_t num_bytes);

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_MODEL_FILES_H_
