// Load on a running manager: requests of a trace or a Poisson process, and what their callers saw.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/bench_main.h"
#include "bench/load_generator.h"
#include "bench/random.h"
#include "client/client.h"
#include "client/endpoint.h"

ABSL_FLAG(std::string, endpoint, "127.0.0.1:50051", "The manager: host:port or unix:path.");
ABSL_FLAG(int32_t, requests, 100, "Requests to send.");
ABSL_FLAG(double, rate, 0, "Requests per second on average; 0: all at once, and of a trace as it says.");
ABSL_FLAG(std::string, trace, "",
          "Lengths and arrivals from an Azure LLM inference trace (TIMESTAMP,ContextTokens,GeneratedTokens), without "
          "the requests that exceed the model's context. Empty: log-normal lengths, Poisson arrivals.");
ABSL_FLAG(double, mean_prompt, 128, "Tokens of a prompt on average, without a trace.");
ABSL_FLAG(double, mean_output, 64, "Tokens of an output on average, without a trace.");
ABSL_FLAG(int32_t, shared_prefix, 0, "Tokens with which every prompt begins.");
ABSL_FLAG(int32_t, max_concurrency, 0, "Requests that are open at the same time at most; 0: no limit.");
ABSL_FLAG(bool, multiplex, false, "Send all requests over one GenerateBatch stream, as a gateway would.");
ABSL_FLAG(int32_t, seed, 1, "Of lengths, arrivals and prompts. Equal prompts hit the prefix cache: vary it.");
ABSL_FLAG(absl::Duration, timeout, absl::Minutes(10), "After which a request is given up.");
ABSL_FLAG(std::string, json, "", "File for the report as JSON, with the names of `vllm bench serve`; -: print it.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "serve",
      "sends requests to a manager at their arrival times and reports throughput, time to first token and time between "
      "tokens.",
      "--endpoint=host:port [flags]",
      {{"Manager:", {"endpoint", "timeout"}},
       {"Load:",
        {"requests", "rate", "trace", "mean_prompt", "mean_output", "shared_prefix", "max_concurrency", "multiplex",
         "seed"}},
       {"Report:", {"json"}}}};
  return *flags;
}

absl::StatusOr<std::vector<RequestLengths>> MakeRequests(int max_context_tokens) {
  const int count = absl::GetFlag(FLAGS_requests);
  const double rate = absl::GetFlag(FLAGS_rate);
  const std::string trace = absl::GetFlag(FLAGS_trace);
  if (!trace.empty()) {
    if (!std::ifstream(trace)) return absl::NotFoundError(absl::StrCat("--trace: there is no ", trace));
    QUIRE_ASSIGN_OR_RETURN(Conversations conversations, LoadConversations(trace, 1 << 30, max_context_tokens));
    std::vector<RequestLengths>& requests = conversations.requests;
    requests.resize(std::min<size_t>(count, requests.size()));
    if (requests.empty()) return absl::InvalidArgumentError(absl::StrCat(trace, " has no request that fits"));
    if (rate == 0) return requests;
    const double span_s = requests.back().arrival_s - requests.front().arrival_s;
    for (RequestLengths& request : requests) {
      request.arrival_s *= span_s > 0 ? static_cast<double>(requests.size()) / rate / span_s : 0;
    }
    return requests;
  }
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  std::vector<RequestLengths> requests =
      DrawLogNormal(absl::GetFlag(FLAGS_mean_prompt), absl::GetFlag(FLAGS_mean_output), count, seed);
  BenchRandom random(seed);
  double now_s = 0;
  int num_cut = 0;
  for (RequestLengths& request : requests) {
    request.arrival_s = now_s;
    num_cut += std::max(request.prompt, request.output) > max_context_tokens / 2;
    request.prompt = std::min(request.prompt, max_context_tokens / 2);
    request.output = std::min(request.output, max_context_tokens / 2);
    if (rate > 0) now_s += random.Exponential() / rate;
  }
  if (num_cut > 0) {
    std::fprintf(stderr, "serve: prompt or output of %d of %d requests cut to half of the model's context, %d tokens\n",
                 num_cut, count, max_context_tokens / 2);
  }
  return requests;
}

absl::Status CheckFlags() {
  QUIRE_RETURN_IF_ERROR(CheckEndpoint(absl::GetFlag(FLAGS_endpoint)));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("requests", absl::GetFlag(FLAGS_requests), 1, 1 << 24));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_concurrency", absl::GetFlag(FLAGS_max_concurrency), 0, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("shared_prefix", absl::GetFlag(FLAGS_shared_prefix), 0, 1 << 24));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("seed", absl::GetFlag(FLAGS_seed), 0, 1 << 30));
  const struct {
    const char* name;
    double value;
    double least;
  } numbers[] = {{"--rate", absl::GetFlag(FLAGS_rate), 0},
                 {"--mean-prompt", absl::GetFlag(FLAGS_mean_prompt), 1},
                 {"--mean-output", absl::GetFlag(FLAGS_mean_output), 1}};
  for (const auto& number : numbers) {
    if (number.value >= number.least && number.value <= 1e6) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(number.name, " is ", number.value, ", it must be ", number.least, " .. 1000000"));
  }
  return absl::OkStatus();
}

absl::Status WriteReport(const LoadReport& report) {
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path == "-") {
    std::fputs(ToJson(report).c_str(), stdout);
    return absl::OkStatus();
  }
  std::fputs(ToText(report).c_str(), stdout);
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << ToJson(report);
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("--json: cannot write ", path));
}

absl::Status Run() {
  QUIRE_RETURN_IF_ERROR(CheckFlags());
  Client client({.endpoint = absl::GetFlag(FLAGS_endpoint)});
  QUIRE_ASSIGN_OR_RETURN(const v1::GetModelResponse model, client.GetModel());
  LoadOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.requests, MakeRequests(static_cast<int>(model.max_context_tokens())));
  options.vocab_size = model.vocab_size();
  options.max_concurrency = absl::GetFlag(FLAGS_max_concurrency);
  options.shared_tokens = absl::GetFlag(FLAGS_shared_prefix);
  options.seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)) << 32;
  options.timeout = absl::GetFlag(FLAGS_timeout);
  options.multiplex = absl::GetFlag(FLAGS_multiplex);
  const LoadReport report = GenerateLoad(&client, options);
  QUIRE_RETURN_IF_ERROR(WriteReport(report));
  if (report.num_failed == 0) return absl::OkStatus();
  return absl::Status(
      report.first_error.code(),
      absl::StrCat(report.num_failed, " requests failed, the first with: ", report.first_error.message()));
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::BenchMain(quire::Flags(), argc, argv, quire::Run);
}
