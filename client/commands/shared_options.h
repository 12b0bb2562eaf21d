// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_SHARED_OPTIONS_H_
#define QUIRE_CLIENT_COMMANDS_SHARED_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"

// Arguments and options that several commands have. Everything that is passed is borrowed and outlives `command`.

namespace quire {

// An option. `text` describes its value.
template <typename T>
CLI::Option* AddOption(CLI::App* command, const char* flags, T* value, const std::string& text, const char* help) {
  return command->add_option(flags, *value, help)->option_text(text);
}
// The same in a group of --help.
template <typename T>
CLI::Option* AddOption(CLI::App* command, const char* group, const char* flags, T* value, const std::string& text,
                       const char* help) {
  return AddOption(command, flags, value, text, help)->group(group);
}

// The name of a request.
void AddRequestIdArgument(CLI::App* command, std::string* request_id);
// INVALID_ARGUMENT when the name is empty.
absl::Status CheckRequestId(const std::string& request_id);

// --worker: the address of the only worker that the command looks at; empty means all workers.
void AddWorkerOption(CLI::App* command, std::string* worker);
// The address of a worker as an argument.
void AddWorkerArgument(CLI::App* command, std::string* worker);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_SHARED_OPTIONS_H_
