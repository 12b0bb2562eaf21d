#include "client/admin_commands.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/input.h"
#include "client/worker_text.h"

namespace quire {
namespace {

// One line for people; a part that says nothing is left out.
std::string BlocksInWords(const v1::WorkerStatus& worker) {
  const v1::BlockCounts& blocks = worker.blocks();
  std::string words;
  if (blocks.pinned() > 0) absl::StrAppend(&words, "  ", blocks.pinned(), " blocks are pinned\n");
  if (blocks.host_total() > 0) {
    absl::StrAppend(&words, "  host tier: ", blocks.host_used(), " of ", blocks.host_total(), " blocks, ",
                    worker.swapped_requests(), " requests are swapped out\n");
  }
  return words;
}

// The numbers behind the sentence, for a request that waits on a worker.
void PrintWait(const v1::ExplainWaitResponse& wait) {
  if (wait.worker().empty() || wait.reason() == v1::WAIT_REASON_RUNS) return;
  std::printf("  ahead of it   %u requests\n  rows          %u wanted, %u free\n", wait.requests_ahead(),
              wait.rows_needed(), wait.rows_free());
  std::printf("  blocks        %u wanted, %u free; %u stay free for running requests to grow; %u are pinned\n",
              wait.blocks_needed(), wait.blocks_free(), wait.blocks_kept(), wait.blocks_pinned());
  std::printf("  prefix cache  %u tokens of its prompt\n", wait.cached_prompt_tokens());
  if (wait.is_swapped()) std::printf("  it was preempted; its blocks are in the host tier\n");
}

void PrintWorker(const v1::WorkerStatus& worker, int address_width) {
  const v1::BlockCounts& blocks = worker.blocks();
  std::printf("%-*s %-11s %8u %8u %8u %8u %8u %9llu\n", address_width, worker.address().c_str(), StateOf(worker),
              worker.running_requests(), worker.waiting_requests(), blocks.used(), blocks.evictable(), blocks.free(),
              Big(worker.steps()));
  std::printf("%s", BlocksInWords(worker).c_str());
  if (!worker.last_error().empty()) std::printf("  %s\n", worker.last_error().c_str());
}

}  // namespace

AdminCommands::AdminCommands(CLI::App* app) {
  status_ = app->add_subcommand("status", "Show workers, blocks and requests.");

  CLI::App* explain = app->add_subcommand("explain", "Say why a request does not run.");
  explain->add_option("request_id", request_id_, "Its name")->required()->option_text(" ");
  explain_ = explain;

  CLI::App* pin = app->add_subcommand(
      "pin",
      "Keep what is cached of a prompt for some time. A prompt is cached once a request with it has run; only whole "
      "blocks are. Exit with 1 when nothing of it is cached.");
  AddPromptOptions(pin);
  pin->add_option("--ttl", ttl_seconds_, "For how long, 1 .. 86400")->option_text("SECONDS [600]");
  pin_ = pin;

  CLI::App* unpin = app->add_subcommand("unpin", "End the pin of a prompt.");
  AddPromptOptions(unpin);
  unpin_ = unpin;
}

void AdminCommands::AddPromptOptions(CLI::App* command) {
  command->add_option("prompt", text_, "The prompt; \"-\" reads standard input")->required()->option_text(" ");
  command->add_option("--cache-salt", cache_salt_, "That of the requests which share the prompt")->option_text("SALT");
  command->add_flag("--no-special-tokens", no_special_tokens_, "Do not add the begin-of-sequence token");
}

template <typename Request>
absl::Status AdminCommands::ReadPrompt(Request* request) const {
  QUIRE_ASSIGN_OR_RETURN(*request->mutable_text(), ReadText(text_, "prompt"));
  request->set_add_special_tokens(!no_special_tokens_);
  request->set_cache_salt(cache_salt_);
  return absl::OkStatus();
}

int AdminCommands::Run(Client& client, const std::string& endpoint, OutputFormat format) const {
  if (*status_) return RunStatus(client, endpoint, format);
  if (*explain_) return RunExplain(client, endpoint, format);
  if (*pin_) return RunPin(client, endpoint, format);
  if (*unpin_) return RunUnpin(client, endpoint, format);
  return kExitUsage;
}

int AdminCommands::RunStatus(Client& client, const std::string& endpoint, OutputFormat format) const {
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  if (!status.ok()) return ReportError(status.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*status);
    return kExitOk;
  }
  std::printf("quire-manager %s, up %s, model %s\n", status->version().c_str(),
              absl::FormatDuration(absl::Seconds(status->uptime_seconds())).c_str(),
              status->model_name().empty() ? "not known yet" : status->model_name().c_str());
  if (status->is_draining()) std::printf("draining: new requests are refused\n");
  std::printf("%llu prompt tokens, %llu of them cached, %llu generated tokens since start\n\n",
              Big(status->prompt_tokens()), Big(status->cached_prompt_tokens()), Big(status->completion_tokens()));
  const int width = AddressWidth(*status);
  std::printf("%-*s %-11s %8s %8s %8s %8s %8s %9s\n", width, "WORKER", "STATE", "RUNNING", "WAITING", "USED", "CACHED",
              "FREE", "STEPS");
  for (const v1::WorkerStatus& worker : status->workers()) PrintWorker(worker, width);
  std::printf(
      "\nUSED, CACHED and FREE count blocks of the worker's pool; CACHED ones are free as soon as they are needed.\n");
  return kExitOk;
}

int AdminCommands::RunExplain(Client& client, const std::string& endpoint, OutputFormat format) const {
  if (request_id_.empty()) return ReportUsage("request_id is empty; it is the name that generate's --request-id gave");
  const absl::StatusOr<v1::ExplainWaitResponse> wait = client.ExplainWait(request_id_);
  if (!wait.ok()) return ReportError(wait.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*wait);
  } else if (wait->worker().empty()) {
    std::printf("%s %s\n", request_id_.c_str(), wait->explanation().c_str());
  } else {
    std::printf("%s, on worker %s, %s\n", request_id_.c_str(), wait->worker().c_str(), wait->explanation().c_str());
    PrintWait(*wait);
  }
  return kExitOk;
}

int AdminCommands::RunPin(Client& client, const std::string& endpoint, OutputFormat format) const {
  v1::PinPrefixRequest request;
  if (const absl::Status status = ReadPrompt(&request); !status.ok()) return ReportUsage(status.message());
  request.set_ttl_seconds(ttl_seconds_);
  const absl::StatusOr<v1::PinPrefixResponse> response = client.PinPrefix(request);
  if (!response.ok()) return ReportError(response.status(), endpoint);
  const auto& workers = response->workers();
  const bool is_pinned = std::any_of(workers.begin(), workers.end(),
                                     [](const v1::WorkerPin& worker) { return worker.pinned_tokens() > 0; });
  if (format == OutputFormat::kJson) {
    PrintJson(*response);
    return is_pinned ? kExitOk : kExitFailed;
  }
  for (const v1::WorkerPin& worker : workers) {
    std::printf("worker %s: %u of %u prompt tokens pinned%s%s\n", worker.address().c_str(), worker.pinned_tokens(),
                response->prompt_tokens(), worker.refusal().empty() ? "" : "; ", worker.refusal().c_str());
  }
  if (is_pinned) return kExitOk;
  std::fprintf(stderr,
               "quirectl: nothing is pinned: no whole block of this prompt is cached; generate with it first\n");
  return kExitFailed;
}

int AdminCommands::RunUnpin(Client& client, const std::string& endpoint, OutputFormat format) const {
  v1::UnpinPrefixRequest request;
  if (const absl::Status status = ReadPrompt(&request); !status.ok()) return ReportUsage(status.message());
  const absl::StatusOr<v1::UnpinPrefixResponse> response = client.UnpinPrefix(request);
  if (!response.ok()) return ReportError(response.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    std::printf("unpinned on %u %s\n", response->num_workers(), response->num_workers() == 1 ? "worker" : "workers");
  }
  return kExitOk;
}

}  // namespace quire
