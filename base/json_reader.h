// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_JSON_READER_H_
#define QUIRE_BASE_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire {

// Limits of a JSON text. They hold before the values take memory.
struct JsonLimits {
  size_t max_depth = 64;              // Levels of objects and lists. Parsers and destructors of values recurse.
  size_t max_members = SIZE_MAX;      // In one object.
  size_t max_all_members = SIZE_MAX;  // In all objects.
  size_t max_numbers = SIZE_MAX;
  size_t max_others = SIZE_MAX;      // Values that are no numbers.
  bool allows_repeated_keys = true;  // In one object. The last value of a key counts.
};

// Why a JSON text is refused.
struct JsonFault {
  std::string reason;  // For example "is nested deeper than 64 levels".
  // The first byte that is not JSON, or the size of a text that ends too early. Nothing if the reason is another one.
  std::optional<size_t> wrong_byte;
};

// Makes something of the values of a JSON text. Overrides return Stop() to refuse the text.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  // Reads the text once. Returns why it was refused, or nothing.
  std::optional<JsonFault> Read(std::string_view text, const JsonLimits& limits);

 protected:
  bool Stop(std::string reason);
  // Returns the number of values in the object or list that begins now, but 1 if it is empty. Call it once for each.
  size_t TakeSize();

 private:
  bool binary(nlohmann::json::binary_t& bytes) final;
  bool parse_error(size_t num_read, const std::string& token, const nlohmann::detail::exception& error) final;

  std::vector<uint32_t> sizes_;  // What TakeSize returns, in the order in which lists and objects begin.
  size_t num_opened_ = 0;
  size_t text_size_ = 0;
  JsonFault fault_;
};

// Reads a JSON text in UTF-8 from anyone; `Json` is nlohmann::json, or ordered_json to keep the order of members.
// INVALID_ARGUMENT, in one line that begins with `name`, when the text is not JSON (with the byte), or beyond a limit.
template <typename Json>
absl::StatusOr<Json> ReadJson(std::string_view text, std::string_view name, const JsonLimits& limits = {});
// The same. Returns why the text is refused, or nothing.
template <typename Json>
std::optional<JsonFault> ReadJson(std::string_view text, const JsonLimits& limits, Json* value);

// Returns at most 80 characters of a value, for error messages.
std::string Shown(const nlohmann::json& value);

}  // namespace quire

#endif  // QUIRE_BASE_JSON_READER_H_
