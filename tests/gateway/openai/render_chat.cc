// SPDX-License-Identifier: Apache-2.0

// The other side of `tools/goldens/chat_goldens.py compare`: reads a JSON list of bodies of chats from the standard
// input, and writes a list with {"text": ...} or {"error": ...} for each.
//
//   render_chat TEMPLATE < BODIES

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "tests/gateway/openai/chat_rendering.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: render_chat TEMPLATE < BODIES\n";
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary);
  const auto model = quire::ModelWithTemplate(std::string(std::istreambuf_iterator<char>(in), {}));
  const auto bodies = quire::Json::parse(std::cin, nullptr, /*allow_exceptions=*/false);
  quire::Json results = quire::Json::array();
  for (const quire::Json& body : bodies) {
    const absl::StatusOr<std::string> text = quire::RenderBody(body, *model);
    results.push_back(text.ok() ? quire::Json{{"text", *text}}
                                : quire::Json{{"error", std::string(text.status().message())}});
  }
  std::cout << results.dump() << "\n";
  return bodies.is_array() ? 0 : 1;
}
