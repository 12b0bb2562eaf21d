// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/quirectl.h"

#include "absl/strings/str_cat.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/process.h"

namespace quire {
namespace {

Ended Run(const std::vector<std::string>& arguments) {
  Process process(arguments);
  const int exit_code = process.Wait();
  return {exit_code, process.Output()};
}

}  // namespace

Ended Quirectl(const std::string& endpoint, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {Binary("quirectl"), "--endpoint", endpoint});
  return Run(arguments);
}

Ended Shell(const std::string& endpoint, const std::string& line) {
  return Run(
      {"/bin/sh", "-c",
       absl::StrCat("quirectl() { \"", Binary("quirectl"), "\" --endpoint \"", endpoint, "\" \"$@\"; }\n", line)});
}

}  // namespace quire
