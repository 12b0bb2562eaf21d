// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_GLOBALS_H_
#define QUIRE_KV_MANAGER_JINJA_GLOBALS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// The functions that every template can call: range, dict, namespace, raise_exception and strftime_now. One object
// belongs to one rendering.
class Globals {
 public:
  // strftime_now() prints `now` in `time_zone`.
  Globals(absl::Time now, absl::TimeZone time_zone) : now_(now), time_zone_(time_zone) {}
  ~Globals();
  Globals(const Globals&) = delete;
  Globals& operator=(const Globals&) = delete;

  static bool Has(std::string_view name);
  // REQUIRES: Has(name).
  absl::StatusOr<Value> Call(std::string_view name, const Arguments& arguments, Budget* budget);

 private:
  const absl::Time now_;
  const absl::TimeZone time_zone_;
  // A namespace may refer to itself in a circle. It is emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_GLOBALS_H_
