// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_SETTINGS_H_
#define QUIRE_BASE_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire {

// A setting is a flag of the command line and, for services, a variable of the environment and a key of a file.
struct Setting {
  enum class Kind { kSwitch, kNumber, kSize, kReal, kTime, kText, kList };

  std::string name;  // With underscores, such as "max_step_ms".
  Kind kind;
  std::string help;
  std::string default_text;
  std::function<bool(const std::string&)> parse;  // Sets the value. False: the text is of another kind.
  std::function<std::string()> text;              // The value, in a form that `parse` reads.
  // Checks the final value. Empty: every value is valid.
  std::function<absl::Status()> check = nullptr;
};

struct SettingGroup {
  std::string title;
  std::vector<Setting> settings;
};

struct WholeRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

// For a setting whose range depends on other settings. The program checks it when all settings have their values.
inline constexpr WholeRange kAnyNumber;

struct RealRange {
  double min;
  double max;
  const char* text;     // What an error says that the value must be, such as "in [0, 1)".
  bool has_min = true;  // The range includes `min`.
  bool has_max = true;
};

enum class TimeRange {
  kAny,
  kAboveZero,  // And at most 24h.
  kFromZero,   // 0 to 24h.
};

// Return the error about the value of a setting, or OK.
using TextRule = absl::Status (*)(absl::string_view name, const std::string& value);
using ListRule = absl::Status (*)(const std::vector<std::string>& values);

// The table of a program's settings. Each is declared by one call of Add, with a name, the member that it sets, a
// range, and a help text. Flags, variables of the environment, keys of files, --help, the checks and the tables of
// docs/configuration.md follow from it. The default is what the member has when it is declared. The members must
// outlive the table.
//   table.Group("Steps:");
//   table.Add("max_chunk_tokens", &options->max_chunk_tokens, {1, 1 << 30}, "Largest number of tokens ...");
struct Settings {
  std::string program;
  std::string purpose;  // A paragraph.
  std::string usage;    // The arguments of its simplest use.
  std::vector<SettingGroup> groups = {};
  std::vector<std::shared_ptr<void>> kept = {};  // Members that the table itself keeps alive.

  // Begins the group to which the next settings belong. --help shows it under this title.
  void Group(std::string title);

  void Add(const char* name, bool* value, const char* help);
  // A number whose name ends with _bytes may have a unit (ParseBytes). The text of an int is refused as no number when
  // it does not fit into 32 bits.
  void Add(const char* name, int* value, WholeRange range, const char* help);
  void Add(const char* name, int64_t* value, WholeRange range, const char* help);
  void Add(const char* name, size_t* value, WholeRange range, const char* help);
  void Add(const char* name, double* value, RealRange range, const char* help);
  void Add(const char* name, absl::Duration* value, TimeRange range, const char* help);
  void Add(const char* name, std::string* value, const char* help, TextRule rule = nullptr);
  // The values of a list are separated by commas. Empty ones are dropped, unless `keeps_empty`.
  void AddList(const char* name, std::vector<std::string>* values, const char* help, ListRule rule = nullptr,
               bool keeps_empty = false);
  // A word out of `choices`, such as {{"model", true}, {"none", false}}.
  template <typename T>
  void AddChoice(const char* name, T* value, const std::vector<std::pair<const char*, T>>& choices, const char* help) {
    std::vector<const char*> words;
    const char* word = "";
    for (auto choice = choices.rbegin(); choice != choices.rend(); ++choice) {
      words.insert(words.begin(), choice->first);
      if (choice->second == *value) word = choice->first;
    }
    AddWord(
        name, word, std::move(words), [value, choices](size_t i) { *value = choices[i].second; }, help);
  }
  // The part of AddChoice that does not depend on the type. `set` gets the index of the word.
  void AddWord(const char* name, const char* word, std::vector<const char*> words, std::function<void(size_t)> set,
               const char* help);
  Setting& Add(Setting setting);

  // Returns null when there is no such setting. The name may have dashes. The pointer is valid until the next Add.
  const Setting* Find(absl::string_view name) const;
  std::vector<std::string> Names() const;  // In the order of their declarations.
  // Returns the first error of a value that is out of its range. Call it once, when all values are set.
  absl::Status Check() const;
};

// The rules of addresses: host:port or unix:path, and host:port or empty.
absl::Status CheckListenAddress(absl::string_view name, const std::string& value);
absl::Status CheckOptionalTcpAddress(absl::string_view name, const std::string& value);

// Turns "kv_bytes" into "--kv-bytes".
std::string FlagAsTyped(absl::string_view name);

// Returns an error such as "--threads is -1, it must be 0 .. 1024" when the value is outside [min, max].
absl::Status CheckFlagRange(absl::string_view name, int64_t value, int64_t min, int64_t max);

}  // namespace quire

#endif  // QUIRE_BASE_SETTINGS_H_
