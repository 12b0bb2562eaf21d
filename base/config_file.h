// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CONFIG_FILE_H_
#define QUIRE_BASE_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// A key of a configuration file with its value, which is one text or a list of texts.
struct ConfigEntry {
  std::string key;
  bool is_list = false;
  std::vector<std::string> values;  // Exactly one if it is not a list.
  std::string key_at;               // The place of the key, such as "quire.yaml:3".
  std::string value_at;
};

// Reads a YAML file that consists of one map from keys to texts and lists of texts. A text ends in the line where it
// begins. The entries keep the order of the file. Returns INVALID_ARGUMENT, in one line with the file and the line
// number, when the file cannot be read, has more than kMaxConfigBytes, is not YAML or contains anything else.
inline constexpr int kMaxConfigBytes = 1 << 20;
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

// Does the same with the contents `text`. Errors call the file `name`.
absl::StatusOr<std::vector<ConfigEntry>> ParseConfig(const std::string& name, const std::string& text);

// A named part of a file.
struct ConfigSection {
  std::string name;
  std::string name_at;
  std::vector<ConfigEntry> entries;
};

// Reads YAML that consists of one map from names to such maps from keys to values. Sections and entries keep the order
// of the text. Fails like ParseConfig, and also when a name is given twice.
absl::StatusOr<std::vector<ConfigSection>> ParseConfigSections(const std::string& name, const std::string& text);

// Reads a file of sections. Fails also like ReadConfigFile.
absl::StatusOr<std::vector<ConfigSection>> ReadConfigSections(const std::string& path);

// Returns one line of such a file, "key: value  # comment". Texts are quoted; numbers, true and false are not
// (`is_text` is false). ParseConfig reads the same values back if they are UTF-8.
std::string ConfigLine(absl::string_view key, const std::string& value, bool is_text, const std::string& comment);
std::string ConfigLine(absl::string_view key, const std::vector<std::string>& items, const std::string& comment);

}  // namespace quire

#endif  // QUIRE_BASE_CONFIG_FILE_H_
