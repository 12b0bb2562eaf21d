// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_RESPONSES_RESPONSE_SETTINGS_H_
#define QUIRE_GATEWAY_RESPONSES_RESPONSE_SETTINGS_H_

#include <string>

#include "absl/container/flat_hash_map.h"

namespace quire {

// A tool as the client knows it. The model knows functions with one name only.
struct ResponseTool {
  std::string name;
  std::string space = {};  // The name of its namespace, or empty.
  bool is_custom = false;  // Its input is a text. For the model it is a function with the one parameter `input`.
};

// What the answer to a call of /v1/responses needs besides the call.
struct ResponseSettings {
  std::string echo = {};        // The members of the answer that repeat the request, as JSON with commas between them.
  bool keeps_thoughts = false;  // Thoughts have `encrypted_content`, which a client can give back.
  // The keys are the names that the model knows. Functions outside of namespaces are not there.
  absl::flat_hash_map<std::string, ResponseTool> tools = {};
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_RESPONSES_RESPONSE_SETTINGS_H_
