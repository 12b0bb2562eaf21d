// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_JSON_READER_H_
#define QUIRE_WORKER_MODEL_JSON_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json_reader.h"
#include "nlohmann/json.hpp"

namespace quire {

// The name in error messages of the file that describes the model.
inline constexpr const char* kConfigFile = "config.json";

// Parses a JSON file of a model directory. It is stricter than JSON: an object may not repeat a key, and values may be
// nested at most 32 levels deep. Error messages call the text `file`.
absl::StatusOr<nlohmann::json> ParseModelJson(std::string_view text, const std::string& file);

// Reads fields of one JSON object with their types and limits. Every error is one line with the file, the field, its
// value and the allowed values. A field that is absent or null counts as missing. The object must outlive the reader.
class JsonFields {
 public:
  // `prefix` is the path to the object inside the file, for example "rope_scaling.".
  JsonFields(const nlohmann::json& object, const std::string& file, const std::string& prefix = "");

  // Returns a reader of an object inside of this one. `name` is its path.
  JsonFields Inner(const nlohmann::json& object, const std::string& name) const;

  const nlohmann::json& object() const { return object_; }
  bool Has(const char* name) const;
  // Returns whether the field is there and null, which can mean something else than a field that is absent.
  bool IsNull(const char* name) const;

  // Each returns `fallback` when the field is missing, and an error when there is no fallback either.
  absl::StatusOr<int64_t> Int(const char* name, int64_t min, int64_t max, std::optional<int64_t> fallback = {}) const;
  absl::StatusOr<double> Number(const char* name, double min, double max, std::optional<double> fallback = {}) const;
  absl::StatusOr<bool> Bool(const char* name, std::optional<bool> fallback = {}) const;
  absl::StatusOr<std::string> String(const char* name, std::optional<std::string> fallback = {}) const;
  // Reads one integer or an array of integers. Returns an empty vector when the field is missing.
  absl::StatusOr<std::vector<int64_t>> Ints(const char* name, int64_t min, int64_t max) const;
  // Reads an array of `count` numbers. There is no fallback.
  absl::StatusOr<std::vector<double>> Numbers(const char* name, double min, double max, int count) const;
  // Both return null when the field is missing.
  absl::StatusOr<const nlohmann::json*> Object(const char* name) const;
  const nlohmann::json* Find(const char* name) const;  // Of any type.

  // Makes an error such as "config.json: hidden_size is 0, must be an integer in 1 .. 65536".
  absl::Status Bad(const char* name, const std::string& allowed) const;

 private:
  const nlohmann::json& object_;
  const std::string file_;
  const std::string prefix_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_JSON_READER_H_
