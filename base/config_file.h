#ifndef QUIRE_BASE_CONFIG_FILE_H_
#define QUIRE_BASE_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// A key of a configuration file and its value: one text, or the items of a list.
struct ConfigEntry {
  std::string key;
  bool is_list = false;
  std::vector<std::string> values;  // One, if it is no list.
  std::string key_at;               // "quire.yaml:3".
  std::string value_at;
};

// What a YAML file says, in its order: one map of keys to texts and lists of texts. INVALID_ARGUMENT, in one line with
// file and line: the file cannot be read, has more than kMaxConfigBytes or is no YAML, or has something else than this
// in it.
inline constexpr int kMaxConfigBytes = 1 << 20;
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

// The same for `text`; errors call it `name`.
absl::StatusOr<std::vector<ConfigEntry>> ParseConfig(const std::string& name, const std::string& text);

// One line of such a file: "key: value  # comment". Every text in quotes; numbers, true and false are written without
// (`is_text` false). ParseConfig reads the same values back, if they are UTF-8.
std::string ConfigLine(absl::string_view key, const std::string& value, bool is_text, const std::string& comment);
std::string ConfigLine(absl::string_view key, const std::vector<std::string>& items, const std::string& comment);

}  // namespace quire

#endif  // QUIRE_BASE_CONFIG_FILE_H_
