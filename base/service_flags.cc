// SPDX-License-Identifier: Apache-2.0

#include "base/service_flags.h"

namespace quire {

void AddMaxConnectionsFlag(int* max_connections, Settings* table) {
  table->Add("max_connections", max_connections, {1, 100'000},
             "Largest number of connections at --listen, 1 to 100000. Further connections are closed at once, and the "
             "log says so.");
}

void AddLogFlags(LogOptions* options, Settings* table) {
  table->Group("Log (on standard error):");
  table->AddChoice("log_level", &options->level,
                   {{"debug", LogLevel::kDebug},
                    {"info", LogLevel::kInfo},
                    {"warning", LogLevel::kWarning},
                    {"error", LogLevel::kError}},
                   "Lowest level that is logged: debug, info, warning or error.");
  table->AddChoice("log_format", &options->format, {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
                   "Format of the log: text or json. With json, every line is one object, including the lines that "
                   "are printed at the start and errors that end the process.");
}

}  // namespace quire
