// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "base/number_text.h"
#include "client/commands/commands.h"
#include "client/commands/shared_options.h"

namespace quire {
namespace {

struct FlushOptions {
  std::string worker;
  bool ends_pins = false;
};

int RunFlush(const FlushOptions& options, const CommandContext& context) {
  v1::FlushPrefixCacheRequest request;
  request.set_worker(options.worker);
  request.set_end_pins(options.ends_pins);
  Client client(context.client);
  const absl::StatusOr<v1::FlushPrefixCacheResponse> response = client.FlushPrefixCache(request);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
    return kExitOk;
  }
  for (const v1::WorkerFlush& flush : response->workers()) {
    std::printf("worker %s: %s freed, %u still cached\n", flush.worker().c_str(),
                Counted(flush.freed_blocks(), "block").c_str(), flush.cached_blocks());
  }
  return kExitOk;
}

}  // namespace

void AddFlushCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "flush",
      "Empty the prefix cache. Blocks of running requests and of pins stay, all other cached blocks are freed at once.",
      RunFlush);
  AddWorkerOption(command, &options->worker);
  command->add_flag("--pins", options->ends_pins, "End all pins first");
}

}  // namespace quire
