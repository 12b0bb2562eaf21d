// SPDX-License-Identifier: Apache-2.0

// The other side of `tools/goldens/jinja_goldens.py compare`: renders a template with the variables that it reads as
// JSON from the standard input.
//
//   render_template TEMPLATE < VARIABLES

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "absl/time/civil_time.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/template.h"

namespace quire::jinja {
namespace {

int Run(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const auto compiled = Template::Compile(std::string(std::istreambuf_iterator<char>(in), {}));
  const auto variables = ParseJson(std::string(std::istreambuf_iterator<char>(std::cin), {}), /*from_user=*/true);
  if (!compiled.ok() || !variables.ok() || variables->as_dict() == nullptr) {
    std::cerr << compiled.status() << " " << variables.status() << "\n";
    return 1;
  }
  std::vector<std::pair<std::string, Value>> named;
  for (const auto& [key, value] : variables->as_dict()->entries) named.emplace_back(key.as_text()->bytes, value);
  RenderOptions options;
  options.now = absl::FromCivil(absl::CivilSecond(2026, 7, 4, 13, 5, 9), absl::UTCTimeZone());
  const auto text = (*compiled)->Render(std::move(named), options);
  if (!text.ok()) {
    std::cerr << text.status() << "\n";
    return 1;
  }
  std::cout << text->bytes;
  return 0;
}

}  // namespace
}  // namespace quire::jinja

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: render_template TEMPLATE < VARIABLES\n";
    return 2;
  }
  return quire::jinja::Run(argv[1]);
}
