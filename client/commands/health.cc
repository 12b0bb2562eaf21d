#include <cstdio>

#include "absl/strings/escaping.h"
#include "client/commands/commands.h"

namespace quire {
namespace {

struct HealthOptions {
  std::string service;
};

int RunHealth(const HealthOptions& options, const CommandContext& context) {
  Client client(context.client);
  const absl::StatusOr<bool> is_serving = client.IsServing(options.service);
  if (is_serving.status().code() == absl::StatusCode::kNotFound) {
    std::fprintf(stderr, "quirectl: the manager has no service \"%s\"; there are liveness, readiness, %s and %s\n",
                 absl::Utf8SafeCHexEscape(options.service).c_str(), v1::InferenceService::service_full_name(),
                 v1::AdminService::service_full_name());
    return kExitRejected;
  }
  if (!is_serving.ok()) return ReportError(is_serving.status(), context.client.endpoint);
  const char* const text = *is_serving ? "SERVING" : "NOT_SERVING";
  std::printf(context.format == OutputFormat::kJson ? "{\"status\":\"%s\"}\n" : "%s\n", text);
  return *is_serving ? kExitOk : kExitUnavailable;
}

}  // namespace

void AddHealthCommand(CommandList* list) {
  const auto [command, options] =
      list->Add("health", "Exit with 0 when the manager serves, with 3 when it does not.", RunHealth);
  command
      ->add_option("service", options->service,
                   "liveness, readiness or the full name of a service; empty means the whole server")
      ->option_text(" ");
}

}  // namespace quire
