// SPDX-License-Identifier: Apache-2.0

#include "client/views/doctor.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/commands.h"
#include "client/commands/shared_options.h"
#include "client/library/endpoint.h"
#include "client/terminal/terminal.h"

namespace quire {
namespace {

struct DoctorCommandOptions {
  bool no_generate = false;
  std::string metrics;
};

const char* NameOf(Finding::Result result) {
  switch (result) {
    case Finding::Result::kOk:
      return "ok";
    case Finding::Result::kWarn:
      return "warn";
    default:
      return "fail";
  }
}

// The terminal's sequence for green, yellow or red.
const char* ColorOf(Finding::Result result) {
  switch (result) {
    case Finding::Result::kOk:
      return "\033[32m";
    case Finding::Result::kWarn:
      return "\033[33m";
    default:
      return "\033[31m";
  }
}

void PrintFinding(const Finding& finding, bool has_color) {
  // The lines of an error become parts of one line.
  const std::string message = Printable(absl::StrReplaceAll(finding.message, {{"\n  ", "; "}, {"\n", "; "}}));
  std::printf("%s%-4s%s  %-11s %s\n", has_color ? ColorOf(finding.result) : "", NameOf(finding.result),
              has_color ? "\033[0m" : "", finding.name.c_str(), message.c_str());
  if (!finding.advice.empty()) std::printf("      %-11s %s\n", "", finding.advice.c_str());
  FlushOutput();
}

void PrintFindings(const std::vector<Finding>& findings) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"check", finding.name},
                      {"result", NameOf(finding.result)},
                      {"message", finding.message},
                      {"advice", finding.advice}});
  }
  const nlohmann::ordered_json json = {{"checks", checks}};
  std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

int RunDoctor(const DoctorCommandOptions& options, const CommandContext& context) {
  if (!options.metrics.empty()) {
    if (const absl::Status valid = CheckEndpoint(options.metrics); !valid.ok()) {
      return ReportUsage(absl::StrCat("--metrics: ", valid.message()));
    }
  }
  const bool has_color = DescribeTerminal().has_color;
  std::vector<Finding> findings;
  const auto tell = [&](const Finding& finding) {
    if (context.format == OutputFormat::kText) PrintFinding(finding, has_color);
    findings.push_back(finding);
  };
  DoctorOptions doctor = {
      .client = context.client, .metrics = options.metrics, .has_generation_check = !options.no_generate};
  bool is_reached = false;
  bool has_standby = false;
  bool has_leader = false;
  for (const std::string& endpoint : SplitEndpoints(context.client.endpoint)) {
    doctor.client.endpoint = endpoint;
    const Examined examined = Examine(doctor, tell);
    is_reached |= examined != Examined::kUnreached;
    has_standby |= examined == Examined::kStandsBy;
    has_leader |= examined == Examined::kReached;
  }
  if (has_standby && !has_leader) {
    tell({Finding::Result::kFail, "leadership", "none of the managers in --endpoint leads",
          "give the addresses of all managers; their logs say who leads, or why none does"});
  }
  if (context.format == OutputFormat::kJson) PrintFindings(findings);
  const bool fails = std::any_of(findings.begin(), findings.end(),
                                 [](const Finding& finding) { return finding.result == Finding::Result::kFail; });
  if (!fails) return kExitOk;
  return is_reached ? kExitFailed : kExitUnavailable;
}

}  // namespace

void AddDoctorCommand(CommandList* list) {
  const auto [command, options] =
      list->Add("doctor",
                "Check the manager from the outside in: address, connection, TLS and certificates, access rights, "
                "version, health, "
                "model, workers, blocks, and whether it generates a token. Each line is ok, warn or fail, and says "
                "what to do. Exit "
                "with 0 when nothing fails, with 3 when the manager cannot be reached, else with 1.",
                RunDoctor);
  command->add_flag("--no-generate", options->no_generate, "Do not generate a token");
  AddOption(command, "--metrics", &options->metrics, "HOST:PORT",
            "Address of the manager's metrics, to check for refusals and for workers that are stuck in a step");
}

}  // namespace quire
