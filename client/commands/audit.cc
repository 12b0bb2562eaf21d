// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "client/commands/commands.h"
#include "client/commands/shared_options.h"
#include "client/terminal/terminal.h"

namespace quire {
namespace {

struct AuditOptions {
  std::string worker;
  bool repairs = false;
};

const char* KindName(v1::AuditDifference::Kind kind) {
  switch (kind) {
    case v1::AuditDifference::KIND_REFERENCES:
      return "references to block";
    case v1::AuditDifference::KIND_COPIES:
      return "copies in flight of block";
    case v1::AuditDifference::KIND_HOST_REFERENCES:
      return "references to host block";
    case v1::AuditDifference::KIND_CACHED:
      return "cache's mark of block";
    default:
      return "block";
  }
}

const char* KindName(v1::RowDifference::Kind kind) {
  switch (kind) {
    case v1::RowDifference::KIND_SEQUENCE:
      return "its sequence";
    case v1::RowDifference::KIND_COMPUTED_TOKENS:
      return "tokens computed";
    case v1::RowDifference::KIND_TABLE_LENGTH:
      return "length of its block table";
    case v1::RowDifference::KIND_BLOCK:
      return "block";
    default:
      return "it";
  }
}

void PrintDifference(const v1::RowDifference& difference) {
  std::string what = KindName(difference.kind());
  if (difference.kind() == v1::RowDifference::KIND_BLOCK) absl::StrAppend(&what, " ", difference.index());
  std::printf("  row %u of %s: %s is %llu, should be %llu\n", difference.row(),
              Printable(difference.request_id()).c_str(), what.c_str(), Big(difference.found()),
              Big(difference.expected()));
}

void PrintAudit(const v1::WorkerAudit& audit) {
  if (audit.num_blocks() == 0) {
    std::printf("worker %s has not joined yet\n", audit.worker().c_str());
    return;
  }
  std::printf("worker %s, step %llu: %s, %s, %s%s\n", audit.worker().c_str(), Big(audit.step()),
              Counted(audit.num_blocks(), "block").c_str(), Counted(audit.num_references(), "reference").c_str(),
              Counted(audit.num_differences(), "difference").c_str(), audit.is_repaired() ? ", repaired" : "");
  for (const v1::AuditDifference& difference : audit.differences()) {
    std::printf("  %s %u: counted %d, found %d\n", KindName(difference.kind()), difference.block(),
                difference.counted(), difference.recomputed());
  }
  if (!audit.contradiction().empty()) std::printf("  %s\n", audit.contradiction().c_str());
  if (!audit.rows_not_compared().empty()) {
    std::printf("  its rows were not compared: %s\n", audit.rows_not_compared().c_str());
    return;
  }
  std::printf("  %u rows of the worker compared, %u differ\n", audit.num_rows(), audit.num_row_differences());
  for (const v1::RowDifference& difference : audit.row_differences()) PrintDifference(difference);
}

bool IsClean(const v1::WorkerAudit& audit) {
  return audit.is_repaired() ||
         (audit.num_differences() == 0 && audit.num_row_differences() == 0 && audit.contradiction().empty());
}

// True if the worker answered too.
bool IsWhole(const v1::WorkerAudit& audit) {
  return audit.rows_not_compared().empty();
}

int RunAudit(const AuditOptions& options, const CommandContext& context) {
  v1::AuditRequest request;
  request.set_worker(options.worker);
  request.set_repair(options.repairs);
  Client client(context.client);
  const absl::StatusOr<v1::AuditResponse> response = client.Audit(request);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  const auto& audits = response->workers();
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    for (const v1::WorkerAudit& audit : audits) PrintAudit(audit);
  }
  if (!std::all_of(audits.begin(), audits.end(), IsClean)) return kExitFailed;
  return std::all_of(audits.begin(), audits.end(), IsWhole) ? kExitOk : kExitUnavailable;
}

}  // namespace

void AddAuditCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "audit",
      "Recount the references to every block and compare them with the manager's counts, and compare the block tables "
      "of the worker's rows with the manager's. Exit with 1 when something differs and was not repaired, with 3 when a "
      "worker could not be asked. Steps wait for the audit, about 20 ms for 100,000 blocks.",
      RunAudit);
  AddWorkerOption(command, &options->worker);
  command->add_flag("--repair", options->repairs, "Correct the counts, and send the tables that differ again");
}

}  // namespace quire
