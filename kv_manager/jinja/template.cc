// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/template.h"

#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/jinja/interpreter.h"
#include "kv_manager/jinja/parser.h"

namespace quire::jinja {

absl::StatusOr<std::unique_ptr<const Template>> Template::Compile(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("the template has ", source.size(), " bytes, the limit is ", kMaxSourceBytes);
  }
  QUIRE_RETURN_IF_ERROR(CheckUtf8(source, "the template"));
  QUIRE_ASSIGN_OR_RETURN(std::vector<StatementPtr> body, Parse(source));
  return std::unique_ptr<const Template>(new Template(std::move(body)));
}

absl::StatusOr<Text> Template::Render(std::vector<std::pair<std::string, Value>> variables,
                                      const RenderOptions& options) const {
  return Interpreter(options.limits, options.now, options.time_zone).Run(body_, std::move(variables));
}

}  // namespace quire::jinja
