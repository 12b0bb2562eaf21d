// SPDX-License-Identifier: Apache-2.0

#include "client/commands/bench_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/version.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"

namespace quire {
namespace {

constexpr int64_t kDefaultRequests = 100;
constexpr char kExamples[] =
    "Examples:\n"
    "  quirectl bench --rate 10 --requests 500\n"
    "  quirectl bench --rate 20 --duration 60 --slo ttft:500ms,itl:100ms\n"
    "  quirectl bench --concurrency 32 --input-tokens 32..512\n"
    "  quirectl bench --trace azure_conv.csv --rate 5 --requests 1000\n"
    "  quirectl bench --trace mooncake.jsonl --trace-scale 0.05\n"
    "  quirectl -o json bench --rate 10 --save run.json\n"
    "\n"
    "Latencies count from the time at which a request was due, even if the generator or --max-in-flight held it "
    "back. A server that stalls is therefore charged for all requests that arrive meanwhile. A closed loop "
    "(--concurrency) cannot show that, because its callers wait as well.\n"
    "\n"
    "The same options and seed give the same requests at the same times. A second run therefore finds the prompts "
    "of the first one in the prefix cache: change --seed or use --no-prefix-cache.\n"
    "\n"
    "These options of `vllm bench serve` have the same name: --request-rate, --burstiness, --num-prompts, --goodput "
    "and --seed. Instead of --random-input-len N use --input-tokens N, instead of --max-concurrency N use "
    "--concurrency N, or with --rate --max-in-flight N.\n"
    "\n"
    "Exit codes: 0 all requests succeeded, 1 some failed. When all failed, the code comes from the first error (3 "
    "unavailable, 4 rejected). Ctrl-C prints the report and exits with 130.";

void AddLoadOptions(CLI::App* command, BenchOptions* options) {
  const char* const group = "Load";
  AddOption(command, group, "--rate,--request-rate", &options->rate, "RATE [inf]",
            "Average number of requests per second, however fast the server is; inf sends all at once. With a "
            "trace this replaces the trace's own rate");
  AddOption(command, group, "--burstiness", &options->burstiness, "SHAPE [1]",
            "Shape of the gaps between requests: 1 is a Poisson process, smaller values give bursts")
      ->check(InRange<double>(0.001, 1e6));
  AddOption(command, group, "--concurrency", &options->concurrency, "N",
            "Run a closed loop of N callers instead: each sends its next request when its last one has ended")
      ->check(InRange<int>(1, 1 << 14))
      ->excludes("--rate");
  AddOption(command, group, "--max-in-flight", &options->max_in_flight, "N [1024]",
            "Delay requests while N are in flight; the report then says so")
      ->check(InRange<int>(1, 1 << 14));
  AddOption(command, group, "--requests,--num-prompts", &options->num_requests, "N [100]",
            "Send N requests; without it the end of the trace or --duration is the limit")
      ->check(InRange<int64_t>(1, int64_t{1} << 40));
  AddOption(command, group, "--duration", &options->duration_s, "SECONDS",
            "Send nothing after this time; requests that are running finish, the others are reported as unsent")
      ->transform(InSeconds<double>(0.001, 1e6));
  AddOption(command, group, "--warmup", &options->num_warm_up, "N [0]", "First send N requests that are not measured")
      ->check(InRange<int>(0, 1 << 20));
  AddOption(command, group, "--seed", &options->seed, "SEED [0]", "Seed of lengths, arrival times and prompts")
      ->check(InRange<uint32_t>());
}

void AddLengthOptions(CLI::App* command, BenchOptions* options) {
  const char* const group = "Requests";
  AddOption(command, group, "--input-tokens", &options->input_tokens, "LENGTHS [128]",
            "Length of the prompts: 128, 32..512 (uniform) or lognormal:128 (mean)");
  AddOption(command, group, "--output-tokens", &options->output_tokens, "LENGTHS [64]",
            "Length of the outputs, in the same form");
  AddOption(command, group, "--shared-prefix-tokens", &options->shared_prefix_tokens, "N [0]",
            "Begin every prompt with the same N tokens, before its own tokens")
      ->check(InRange<int>(0, 1 << 24));
  CLI::Option* const trace = AddOption(command, group, "--trace", &options->trace, "FILE",
                                       "Take lengths and arrival times from an Azure trace (CSV) or a Mooncake "
                                       "trace (JSON lines; its hash_ids define which prefixes prompts share)")
                                 ->excludes("--input-tokens", "--output-tokens");
  AddOption(command, group, "--trace-scale", &options->trace_scale, "FACTOR [1]",
            "Multiply the trace's lengths by this, for a model with a smaller context")
      ->check(InRange<double>(1e-4, 1.0))
      ->needs(trace);
}

void AddRequestOptions(CLI::App* command, BenchOptions* options) {
  const char* const group = "Requests";
  CLI::Option* const samples =
      AddOption(command, group, "--n", &options->num_samples, "N [1]", "Samples of each prompt")
          ->check(InRange<uint32_t>(1, 256));
  AddOption(command, group, "--beams", &options->beam_width, "WIDTH", "Use beam search with this width")
      ->check(InRange<uint32_t>(1, 256))
      ->excludes(samples);
  AddOption(command, group, "-t,--temperature", &options->temperature, "T",
            "0 always takes the likeliest token [0; 1 with --n]")
      ->check(IsNumber())
      ->excludes("--beams");
  AddOption(command, group, "--tenant", &options->tenant, "NAME", "Tenant of the requests, for --policy=fair-share");
  AddOption(command, group, "--cache-salt", &options->cache_salt, "TEXT",
            "Share cached prefixes only with requests that have the same salt");
  command->add_flag("--no-prefix-cache", options->no_prefix_cache, "Neither use cached prefixes nor store any")
      ->group(group);
  command
      ->add_flag("--multiplex", options->multiplexes,
                 "Send all requests over one GenerateBatch stream, as a gateway would")
      ->group(group);
  AddOption(command, group, "--timeout", &options->timeout_s, "SECONDS [600]", "Cancel a request after this time")
      ->transform(InSeconds<double>(0.001, 1e6));
}

void AddReportOptions(CLI::App* command, BenchOptions* options) {
  const char* const group = "Report";
  AddOption(command, group, "--slo,--goodput", &options->service_level, "NAME:TIME,...",
            "A request is good if it keeps these limits of ttft, tpot, itl (every gap) and e2el: "
            "ttft:500ms,itl:100ms");
  AddOption(command, group, "--save", &options->save_path, "FILE", "Also write the report to this file as JSON");
}

}  // namespace

void AddBenchOptions(CLI::App* command, BenchOptions* options) {
  command->footer(kExamples);
  AddLoadOptions(command, options);
  AddLengthOptions(command, options);
  AddRequestOptions(command, options);
  AddReportOptions(command, options);
}

absl::StatusOr<LoadShape> BenchOptions::MakeShape() const {
  LoadShape shape;
  const absl::StatusOr<LengthDistribution> input = ParseLengths(input_tokens);
  if (!input.ok()) return absl::InvalidArgumentError(absl::StrCat("--input-tokens ", input.status().message()));
  const absl::StatusOr<LengthDistribution> output = ParseLengths(output_tokens);
  if (!output.ok()) return absl::InvalidArgumentError(absl::StrCat("--output-tokens ", output.status().message()));
  shape.input = *input;
  shape.output = *output;
  shape.trace = trace;
  shape.length_scale = trace_scale;
  if (!rate.empty()) {
    double per_second = 0;
    if (!absl::SimpleAtod(rate, &per_second) || !(per_second >= 1e-3)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rate is \"", rate, "\", expected requests per second, at least 0.001, or inf"));
    }
    shape.rate = per_second;
  }
  shape.burstiness = burstiness;
  shape.shared_prefix_tokens = shared_prefix_tokens;
  shape.seed = seed;
  v1::GenerateRequest& request = shape.request;
  if (beam_width > 0) {
    request.mutable_beam()->set_width(beam_width);
  } else {
    request.mutable_sampling()->set_temperature(temperature.value_or(num_samples > 1 ? 1.0f : 0.0f));
    request.mutable_sampling()->set_seed(seed);
    if (num_samples > 1) request.set_n(num_samples);
  }
  request.set_tenant(tenant);
  request.set_cache_salt(cache_salt);
  request.set_bypass_prefix_cache(no_prefix_cache);
  return shape;
}

absl::StatusOr<LoadOptions> BenchOptions::MakeLoadOptions() const {
  LoadOptions options;
  if (num_requests.has_value()) {
    options.max_requests = *num_requests;
  } else if (duration_s == 0 && trace.empty()) {
    options.max_requests = kDefaultRequests;
  } else if (trace.empty() && rate.empty() && concurrency == 0) {
    return absl::InvalidArgumentError("--duration needs --rate, --concurrency or --requests: all at once has no end");
  }
  if (duration_s > 0) options.duration = absl::Seconds(duration_s);
  options.concurrency = concurrency;
  options.max_in_flight = max_in_flight;
  options.timeout = absl::Seconds(timeout_s);
  options.multiplex = multiplexes;
  if (!service_level.empty()) {
    const absl::StatusOr<ServiceLevel> level = ParseServiceLevel(service_level);
    if (!level.ok()) return absl::InvalidArgumentError(absl::StrCat("--slo ", level.status().message()));
    options.service_level = *level;
  }
  return options;
}

nlohmann::ordered_json BenchOptions::DescribeLoad(const std::string& model) const {
  nlohmann::ordered_json json = {{"date", absl::FormatTime(absl::Now(), absl::UTCTimeZone())},
                                 {"backend", "quire"},
                                 {"version", kVersion},
                                 {"model_id", model},
                                 {"request_rate", rate.empty() ? (trace.empty() ? "inf" : "trace") : rate},
                                 {"burstiness", burstiness},
                                 {"max_concurrency", nullptr},
                                 {"max_in_flight", max_in_flight},
                                 {"input_tokens", input_tokens},
                                 {"output_tokens", output_tokens},
                                 {"shared_prefix_tokens", shared_prefix_tokens},
                                 {"n", num_samples},
                                 {"beams", beam_width},
                                 {"warmup", num_warm_up},
                                 {"seed", seed}};
  if (concurrency > 0) {
    json["max_concurrency"] = concurrency;
    json["request_rate"] = nullptr;
  }
  if (!trace.empty()) {
    json["trace"] = trace;
    json["trace_scale"] = trace_scale;
    json.erase("input_tokens");
    json.erase("output_tokens");
  }
  if (!service_level.empty()) json["goodput"] = service_level;
  return json;
}

}  // namespace quire
