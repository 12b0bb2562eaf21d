// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_FIELDS_H_
#define QUIRE_WORKER_MODEL_GGUF_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/gguf.h"

namespace quire {

// Reads metadata of a GGUF file with their types and limits. Every error is one line with the key, its value and the
// allowed values. The contents must outlive the reader.
class GgufFields {
 public:
  explicit GgufFields(const GgufContents& contents) : contents_(contents) {}

  bool Has(const std::string& key) const { return Find(key) != nullptr; }

  // Each returns `fallback` when the key is missing, and an error when there is no fallback either. An array of equal
  // numbers counts as one number, because some files repeat a number for each layer.
  absl::StatusOr<int64_t> Int(const std::string& key, int64_t min, int64_t max,
                              std::optional<int64_t> fallback = {}) const;
  absl::StatusOr<double> Number(const std::string& key, double min, double max,
                                std::optional<double> fallback = {}) const;
  absl::StatusOr<bool> Bool(const std::string& key, std::optional<bool> fallback = {}) const;
  // The text is valid UTF-8.
  absl::StatusOr<std::string> String(const std::string& key, std::optional<std::string> fallback = {}) const;

  // Each returns an empty vector when the key is missing. Strings are valid UTF-8.
  absl::StatusOr<std::vector<std::string_view>> Strings(const std::string& key) const;
  absl::StatusOr<std::vector<double>> Numbers(const std::string& key) const;
  // Reads an array of `count` flags, which are true, false, 1 or 0. Returns an empty vector also for a single value.
  absl::StatusOr<std::vector<bool>> Flags(const std::string& key, size_t count) const;

  // Returns whether the value is the number 0, false, an empty string or an array of these.
  bool IsNeutral(const std::string& key) const;

  // Makes an error such as "llama.block_count is 0, must be an integer in 1 .. 1024".
  absl::Status Bad(const std::string& key, const std::string& allowed) const;

 private:
  const GgufValue* Find(const std::string& key) const;

  const GgufContents& contents_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_FIELDS_H_
