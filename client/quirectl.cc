// quirectl: the command line of a Quire manager.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/version.h"
#include "client/client.h"
#include "client/generate_command.h"
#include "client/output.h"

namespace quire {
namespace {

constexpr char kDescription[] =
    "Talk to a Quire manager.\n\n"
    "Examples:\n"
    "  quirectl generate \"Once upon a time\" -n 200\n"
    "  quirectl generate \"Once upon a time\" -t 0 --stop \"The end\" --usage\n"
    "  echo \"One day\" | quirectl generate - -n 50 -o json\n"
    "  quirectl tokenize \"Once upon a time\"\n"
    "  quirectl status\n"
    "  quirectl health readiness && echo ready\n";

constexpr char kFooter[] =
    "Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 unavailable (try again), 4 rejected, 5 the stream broke after text.\n"
    "`quirectl COMMAND --help` describes a command.";

int RunTokenize(Client& client, const std::string& endpoint, OutputFormat format, const std::string& text,
                bool add_special_tokens) {
  v1::TokenizeRequest request;
  request.set_text(text);
  request.set_add_special_tokens(add_special_tokens);
  const absl::StatusOr<v1::TokenizeResponse> response = client.Tokenize(request);
  if (!response.ok()) return ReportError(response.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*response);
    return kExitOk;
  }
  for (int i = 0; i < response->token_ids_size(); ++i) {
    std::printf("%7u  %s\n", response->token_ids(i), response->pieces(i).c_str());
  }
  return kExitOk;
}

int RunDetokenize(Client& client, const std::string& endpoint, OutputFormat format, const std::vector<uint32_t>& ids,
                  bool skip_special_tokens) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Add(ids.begin(), ids.end());
  request.set_skip_special_tokens(skip_special_tokens);
  const absl::StatusOr<v1::DetokenizeResponse> response = client.Detokenize(request);
  if (!response.ok()) return ReportError(response.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    std::printf("%s\n", response->text().c_str());
  }
  return kExitOk;
}

int RunModel(Client& client, const std::string& endpoint, OutputFormat format) {
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  if (!model.ok()) return ReportError(model.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*model);
    return kExitOk;
  }
  std::printf(
      "name          %s\narchitecture  %s\nvocabulary    %u tokens\ncontext       %u tokens\nend tokens    %s\n",
      model->name().c_str(), model->architecture().c_str(), model->vocab_size(), model->max_context_tokens(),
      absl::StrJoin(model->eos_token_ids(), ", ").c_str());
  if (!model->has_tokenizer()) std::printf("tokenizer     none: prompts are token ids\n");
  return kExitOk;
}

int RunStatus(Client& client, const std::string& endpoint, OutputFormat format) {
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  if (!status.ok()) return ReportError(status.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*status);
    return kExitOk;
  }
  std::printf("quire-manager %s, up %s, model %s\n", status->version().c_str(),
              absl::FormatDuration(absl::Seconds(status->uptime_seconds())).c_str(),
              status->model_name().empty() ? "not known yet" : status->model_name().c_str());
  std::printf("%llu prompt tokens, %llu generated tokens since start\n\n",
              static_cast<unsigned long long>(status->prompt_tokens()),
              static_cast<unsigned long long>(status->completion_tokens()));
  std::printf("%-28s %-11s %8s %8s %8s %8s %9s\n", "WORKER", "STATE", "RUNNING", "WAITING", "USED", "FREE", "STEPS");
  for (const v1::WorkerStatus& worker : status->workers()) {
    const bool is_ready = worker.state() == v1::WORKER_STATE_READY;
    std::printf("%-28s %-11s %8u %8u %8u %8u %9llu\n", worker.address().c_str(), is_ready ? "ready" : "connecting",
                worker.running_requests(), worker.waiting_requests(), worker.blocks().used(), worker.blocks().free(),
                static_cast<unsigned long long>(worker.steps()));
    if (!worker.last_error().empty()) std::printf("  %s\n", worker.last_error().c_str());
  }
  std::printf("\nUSED and FREE count blocks of the worker's pool.\n");
  return kExitOk;
}

int RunHealth(Client& client, const std::string& endpoint, OutputFormat format, const std::string& service) {
  const absl::StatusOr<bool> is_serving = client.IsServing(service);
  if (!is_serving.ok()) return ReportError(is_serving.status(), endpoint);
  const char* text = *is_serving ? "SERVING" : "NOT_SERVING";
  std::printf(format == OutputFormat::kJson ? "{\"status\":\"%s\"}\n" : "%s\n", text);
  return *is_serving ? kExitOk : kExitUnavailable;
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "quirectl");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", kVersion);

  ClientOptions options;
  double rpc_timeout_s = 10;
  OutputFormat format = OutputFormat::kText;
  app.add_option("-e,--endpoint", options.endpoint, "The manager: host:port or unix:path")
      ->envname("QUIRE_ENDPOINT")
      ->capture_default_str();
  app.add_option("-o,--output", format, "text, or json with one line per message")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, OutputFormat>{{"text", OutputFormat::kText}, {"json", OutputFormat::kJson}}));
  app.add_option("--rpc-timeout", rpc_timeout_s, "Seconds that a call other than generate may take")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();

  GenerateCommand generate(app.add_subcommand("generate"));

  std::string text;
  bool no_special_tokens = false;
  CLI::App* tokenize = app.add_subcommand("tokenize", "Print the tokens of a text.");
  tokenize->add_option("text", text, "The text")->required();
  tokenize->add_flag("--no-special-tokens", no_special_tokens, "Do not add the begin-of-sequence token");

  std::vector<uint32_t> ids;
  bool keep_special_tokens = false;
  CLI::App* detokenize = app.add_subcommand("detokenize", "Print the text of tokens.");
  detokenize->add_option("ids", ids, "Token ids")->required()->delimiter(',');
  detokenize->add_flag("--keep-special-tokens", keep_special_tokens, "Print special tokens as text");

  std::string request_id;
  CLI::App* abort = app.add_subcommand("abort", "End a running request.");
  abort->add_option("request_id", request_id, "Its name")->required();

  std::string service;
  CLI::App* health = app.add_subcommand("health", "Exit with 0 when the manager serves, with 3 when it does not.");
  health->add_option("service", service, "liveness, readiness or a service's full name; empty: the whole server");

  CLI::App* model = app.add_subcommand("model", "Describe the model that is served.");
  CLI::App* status = app.add_subcommand("status", "Show workers, blocks and requests.");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  options.timeout = absl::Seconds(rpc_timeout_s);
  if (app.got_subcommand("generate")) return generate.Run(options, format);

  Client client(options);
  if (*tokenize) return RunTokenize(client, options.endpoint, format, text, !no_special_tokens);
  if (*detokenize) return RunDetokenize(client, options.endpoint, format, ids, !keep_special_tokens);
  if (*health) return RunHealth(client, options.endpoint, format, service);
  if (*model) return RunModel(client, options.endpoint, format);
  if (*status) return RunStatus(client, options.endpoint, format);
  if (*abort) {
    const absl::Status aborted = client.Abort(request_id);
    return aborted.ok() ? kExitOk : ReportError(aborted, options.endpoint);
  }
  return kExitUsage;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(argc, argv);
}
