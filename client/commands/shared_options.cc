// SPDX-License-Identifier: Apache-2.0

#include "client/commands/shared_options.h"

namespace quire {

void AddRequestIdArgument(CLI::App* command, std::string* request_id) {
  AddOption(command, "request_id", request_id, " ",
            "Name of the request, as --request-id of generate gave it or as `quirectl requests` lists it")
      ->required();
}

absl::Status CheckRequestId(const std::string& request_id) {
  if (!request_id.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("request_id is empty; `quirectl requests` lists the names");
}

void AddWorkerOption(CLI::App* command, std::string* worker) {
  AddOption(command, "-w,--worker", worker, "ADDRESS", "Look only at the worker with this address, as status shows it");
}

void AddWorkerArgument(CLI::App* command, std::string* worker) {
  command->add_option("worker", *worker, "Address of the worker, as status shows it")->required()->option_text(" ");
}

}  // namespace quire
