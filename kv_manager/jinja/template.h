// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_TEMPLATE_H_
#define QUIRE_KV_MANAGER_JINJA_TEMPLATE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv_manager/jinja/ast.h"
#include "kv_manager/jinja/budget.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

struct RenderOptions {
  RenderLimits limits;
  absl::Time now = absl::InfinitePast();  // strftime_now() prints it.
  absl::TimeZone time_zone = absl::UTCTimeZone();
};

// A template of the Jinja language, in the dialect in which Transformers renders chat templates: jinja2's immutable
// sandbox with trim_blocks, lstrip_blocks, break and continue, and the functions raise_exception and strftime_now. The
// rendered text equals that of jinja2. What is missing is refused by name: inheritance, imports, and the filters and
// tests that no chat template uses. Immutable; thread-safe.
class Template {
 public:
  // The longest template. Templates of models have up to 20 KB.
  static constexpr size_t kMaxSourceBytes = 1u << 20;

  // INVALID_ARGUMENT, beginning with "line N: " and with the construct, when the template is not one.
  static absl::StatusOr<std::unique_ptr<const Template>> Compile(std::string_view source);

  // Renders the template with these variables. INVALID_ARGUMENT, beginning with "line N: " and with the construct, when
  // the template raises an error or reaches a limit.
  absl::StatusOr<Text> Render(std::vector<std::pair<std::string, Value>> variables, const RenderOptions& options) const;

 private:
  explicit Template(std::vector<StatementPtr> body) : body_(std::move(body)) {}

  std::vector<StatementPtr> body_;
};

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_TEMPLATE_H_
