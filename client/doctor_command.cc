#include "client/doctor_command.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/doctor.h"
#include "client/endpoint.h"
#include "client/terminal.h"

namespace quire {
namespace {

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

// Green, yellow, red.
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

void Print(const Finding& finding, bool has_color) {
  const std::string message = Printable(absl::StrReplaceAll(finding.message, {{"\n", " "}}));
  std::printf("%s%-4s%s  %-11s %s\n", has_color ? ColorOf(finding.result) : "", NameOf(finding.result),
              has_color ? "\033[0m" : "", finding.name.c_str(), message.c_str());
  if (!finding.advice.empty()) std::printf("      %-11s %s\n", "", finding.advice.c_str());
  FlushOutput();
}

}  // namespace

DoctorCommand::DoctorCommand(CLI::App* command) {
  command->description(
      "Check the manager from the outside in: address, connection, TLS and certificates, what may be called, version, "
      "health, model, workers, blocks, and whether a token comes. Each line is ok, warn or fail, and says what to do. "
      "Exit with 0 when nothing fails, 3 when the manager cannot be reached, else 1.");
  command->add_flag("--no-generate", no_generate_, "Do not generate a token");
  command->add_option("--metrics", metrics_, "The manager's metrics: refusals, and workers that are stuck at a step")
      ->option_text("HOST:PORT");
}

int DoctorCommand::Run(const ClientOptions& client_options, OutputFormat format) const {
  if (!metrics_.empty()) {
    if (const absl::Status valid = CheckEndpoint(metrics_); !valid.ok()) {
      return ReportUsage(absl::StrCat("--metrics: ", valid.message()));
    }
  }
  const bool has_color = DescribeTerminal().has_color;
  std::vector<Finding> findings;
  const DoctorOptions options = {.client = client_options, .metrics = metrics_, .generates = !no_generate_};
  const bool is_reached = Examine(options, [&](const Finding& finding) {
    if (format == OutputFormat::kText) Print(finding, has_color);
    findings.push_back(finding);
  });
  if (format == OutputFormat::kJson) {
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
  const bool fails = std::any_of(findings.begin(), findings.end(),
                                 [](const Finding& finding) { return finding.result == Finding::Result::kFail; });
  if (!fails) return kExitOk;
  return is_reached ? kExitFailed : kExitUnavailable;
}

}  // namespace quire
