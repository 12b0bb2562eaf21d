#ifndef QUIRE_CLIENT_DOCTOR_COMMAND_H_
#define QUIRE_CLIENT_DOCTOR_COMMAND_H_

#include <CLI/CLI.hpp>
#include <string>

#include "client/client.h"
#include "client/output.h"

namespace quire {

// `quirectl doctor`: what an operator would look at when something does not work.
class DoctorCommand {
 public:
  // Declares the flags on `command`, which is borrowed and outlives this.
  explicit DoctorCommand(CLI::App* command);

  // Prints a line for each finding. Returns the exit code: 0 when nothing fails, 3 when the manager cannot be reached,
  // else 1.
  int Run(const ClientOptions& client_options, OutputFormat format) const;

 private:
  bool no_generate_ = false;
  std::string metrics_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_DOCTOR_COMMAND_H_
