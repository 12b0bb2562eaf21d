// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "client/commands/commands.h"
#include "client/commands/shared_options.h"
#include "client/terminal/terminal.h"
#include "client/views/request_tree.h"
#include "client/views/state_text.h"

namespace quire {
namespace {

struct TreeOptions {
  std::string request_id;
};

int RunTree(const TreeOptions& options, const CommandContext& context) {
  if (const absl::Status valid = CheckRequestId(options.request_id); !valid.ok()) return ReportUsage(valid.message());
  Client client(context.client);
  const absl::StatusOr<v1::DescribeRequestResponse> request = client.DescribeRequest(options.request_id);
  if (!request.ok()) return ReportError(request.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*request);
    return kExitOk;
  }
  const absl::StatusOr<std::string> tree = DrawTree(*request);
  if (!tree.ok()) return ReportError(tree.status(), context.client.endpoint);
  const v1::RequestSummary& summary = request->summary();
  std::printf("%s, on worker %s, %s for %s: %u prompt tokens, %llu generated, %u blocks of %u tokens%s, %u shared\n",
              Printable(options.request_id).c_str(), summary.worker().c_str(), StateOf(summary.state()),
              DescribeAge(summary.age_ms()).c_str(), summary.prompt_tokens(), Big(summary.generated_tokens()),
              summary.blocks(), request->block_size(),
              summary.state() == v1::REQUEST_STATE_SWAPPED ? " in the host tier" : "", summary.shared_blocks());
  std::printf("%s", tree->c_str());
  if (!request->sharers().empty()) std::printf("in common with other requests:\n");
  for (const v1::BlockSharer& sharer : request->sharers()) {
    std::printf("  %s: %u blocks\n", Printable(sharer.request_id()).c_str(), sharer.num_blocks());
  }
  return kExitOk;
}

}  // namespace

void AddTreeCommand(CommandList* list) {
  const auto [command, options] =
      list->Add("tree",
                "Show how the samples or beams of a request share blocks. Entries of their block tables that several "
                "share are one "
                "line, and the entries of each sample or beam are indented below it. Block ids follow the colon.",
                RunTree);
  AddRequestIdArgument(command, &options->request_id);
}

}  // namespace quire
