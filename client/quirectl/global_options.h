// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_QUIRECTL_GLOBAL_OPTIONS_H_
#define QUIRE_CLIENT_QUIRECTL_GLOBAL_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "client/library/client.h"
#include "client/terminal/output.h"

namespace quire {

// The options that all commands of quirectl have: where the manager is, how to reach it, and how to print. They may
// come before or after the command.
class GlobalOptions {
 public:
  // Declares the options on `app`, which is borrowed and outlives this.
  explicit GlobalOptions(CLI::App* app);
  GlobalOptions(const GlobalOptions&) = delete;
  GlobalOptions& operator=(const GlobalOptions&) = delete;

  // INVALID_ARGUMENT, in one line that names the option, when the connection options do not fit together or a file
  // cannot be used.
  absl::Status CheckConnection() const;

  // The values, once the app has parsed the command line.
  ClientOptions client() const;
  OutputFormat format() const { return format_name_ == "json" ? OutputFormat::kJson : OutputFormat::kText; }

 private:
  ClientOptions client_;
  double rpc_timeout_s_ = 10;
  std::string format_name_ = "text";
};

}  // namespace quire

#endif  // QUIRE_CLIENT_QUIRECTL_GLOBAL_OPTIONS_H_
