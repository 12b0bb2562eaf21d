// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_GUIDE_OPTIONS_H_
#define QUIRE_CLIENT_COMMANDS_GUIDE_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// The options that say what the output must be.
struct GuideOptions {
  std::string json_schema;
  bool json_object = false;
  std::string regex;
  std::vector<std::string> choices;
  std::string grammar;

  // Sets guided of the request, unless no option was given. Values that begin with @ are names of files.
  // INVALID_ARGUMENT when several options were given, or when a value or a file is empty; UNAVAILABLE when a file
  // cannot be read.
  absl::Status Set(v1::GenerateRequest* request) const;

  // Returns a name for the whole output, such as "a whole JSON object", or an empty text without a guide.
  std::string Description() const;

  // An option tells whether it was given with an empty value or not at all.
  const CLI::Option* json_schema_option = nullptr;
  const CLI::Option* regex_option = nullptr;
  const CLI::Option* grammar_option = nullptr;
};

void AddGuideOptions(CLI::App* command, GuideOptions* options);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_GUIDE_OPTIONS_H_
