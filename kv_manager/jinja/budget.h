// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_BUDGET_H_
#define QUIRE_KV_MANAGER_JINJA_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/status.h"

namespace quire::jinja {

// What one rendering may use. The defaults are far above what templates of real models need.
struct RenderLimits {
  int64_t max_steps = 20'000'000;         // Evaluated expressions, statements and elements of lists.
  int64_t max_built_bytes = 256ll << 20;  // The sum of the lengths of all strings and lists that are built.
  size_t max_output_bytes = 4u << 20;     // The rendered text, and every other string.
  int max_depth = 250;                    // Expressions, statements and macro calls inside each other.
};

// The deepest nesting of lists and dictionaries in each other.
inline constexpr int kMaxValueDepth = 100;
// Namespaces, and scopes that macros refer to, stay until the end of the rendering. They count as lists of this length.
inline constexpr size_t kKeptElements = 8;

// Counts what a rendering uses. Functions return INVALID_ARGUMENT that names the limit when it is reached.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits) {}

  const RenderLimits& limits() const { return limits_; }

  absl::Status Step(int64_t count = 1) {
    steps_ += count;
    if (steps_ <= limits_.max_steps) return absl::OkStatus();
    return InvalidArgument("rendering takes more than ", limits_.max_steps, " steps");
  }
  // A string or list of `num_bytes` is about to be built.
  absl::Status Build(size_t num_bytes) {
    if (num_bytes > limits_.max_output_bytes) {
      return InvalidArgument("a text has more than ", limits_.max_output_bytes, " bytes");
    }
    built_bytes_ += static_cast<int64_t>(num_bytes);
    if (built_bytes_ <= limits_.max_built_bytes) return absl::OkStatus();
    return InvalidArgument("rendering builds more than ", limits_.max_built_bytes, " bytes of text");
  }
  // A list of `count` elements is about to be built.
  absl::Status BuildList(size_t count) {
    constexpr int64_t kBytesPerElement = 32;
    QUIRE_RETURN_IF_ERROR(Step(static_cast<int64_t>(count)));
    built_bytes_ += kBytesPerElement * static_cast<int64_t>(count);
    if (built_bytes_ <= limits_.max_built_bytes) return absl::OkStatus();
    return InvalidArgument("rendering builds more than ", limits_.max_built_bytes, " bytes of lists and text");
  }

 private:
  RenderLimits limits_;
  int64_t steps_ = 0;
  int64_t built_bytes_ = 0;
};

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_BUDGET_H_
