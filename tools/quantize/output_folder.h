// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_QUANTIZE_OUTPUT_FOLDER_H_
#define QUIRE_TOOLS_QUANTIZE_OUTPUT_FOLDER_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace quire::quantize {

// A new folder of files. A file has its name only when all of it was written. Until then the name ends with
// ".unfinished", so that no end of the program leaves a part of a file under its name.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& path) : path_(path) {}

  // Makes the folder. It may exist, if it is empty.
  absl::Status Make();

  // Writes a file. `write` writes all of it, or stops when the stream has failed.
  absl::Status Write(const std::string& name, absl::FunctionRef<absl::Status(std::ostream&)> write);
  absl::Status WriteText(const std::string& name, const std::string& text);
  absl::Status Copy(const std::string& from, const std::string& name);

  // Removes the files that this object has written, also those that it has not finished, and the folder if it did not
  // exist before.
  void RemoveFiles() const;

 private:
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  // Notes the file and returns the path to write it to.
  std::string BeginFile(const std::string& name);
  absl::Status EndFile(const std::string& name) const;

  const std::string path_;
  bool is_new_ = false;
  std::vector<std::string> names_;
};

}  // namespace quire::quantize

#endif  // QUIRE_TOOLS_QUANTIZE_OUTPUT_FOLDER_H_
