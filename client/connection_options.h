#ifndef QUIRE_CLIENT_CONNECTION_OPTIONS_H_
#define QUIRE_CLIENT_CONNECTION_OPTIONS_H_

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "client/client.h"

namespace quire {

// Declares quirectl's options that say where the manager is and how it is reached. Both are borrowed.
void AddConnectionOptions(CLI::App* app, ClientOptions* options);

// INVALID_ARGUMENT, in one line that names the option, when they do not fit together or a file cannot be used.
absl::Status CheckConnection(const ClientOptions& options);

}  // namespace quire

#endif  // QUIRE_CLIENT_CONNECTION_OPTIONS_H_
