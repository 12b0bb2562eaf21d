#include "client/bench_command.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/version.h"
#include "client/interrupt.h"
#include "client/load/progress_line.h"
#include "client/terminal.h"

namespace quire {
namespace {

constexpr int64_t kDefaultRequests = 100;
constexpr int kWarmUpConcurrency = 16;
constexpr char kExamples[] =
    "Examples:\n"
    "  quirectl bench --rate 10 --requests 500                     Poisson arrivals, 10 requests/s on average\n"
    "  quirectl bench --rate 20 --duration 60 --slo ttft:500ms,itl:100ms\n"
    "  quirectl bench --concurrency 32 --input-tokens 32..512 --output-tokens 16..256\n"
    "  quirectl bench --trace azure_conv.csv --rate 5 --requests 1000\n"
    "  quirectl bench --trace mooncake.jsonl --trace-scale 0.05    prompts that share prefixes as the trace's do\n"
    "  quirectl -o json bench --rate 10 --save run.json\n\n"
    "Latencies count from the time at which a request was to be sent, whether or not the generator or --max-in-flight\n"
    "held it back: a server that stands still is charged for all who arrive meanwhile. A closed loop (--concurrency)\n"
    "cannot show that, for its callers wait with it.\n"
    "The same options and seed give the same requests at the same times. A second run therefore finds the prompts of\n"
    "the first in the prefix cache: vary --seed, or take --no-prefix-cache.\n"
    "From `vllm bench serve`: --request-rate, --burstiness, --num-prompts, --goodput and --seed are the same;\n"
    "--random-input-len N is --input-tokens N, --max-concurrency N is --concurrency N, or with --rate --max-in-flight "
    "N.\n"
    "Exit codes: 0 all requests ended well, 1 some failed; when all failed the code of the first one's error (3\n"
    "unavailable, 4 rejected); 130 Ctrl-C, after the report.";

// The progress on standard error: a bar that is drawn again and again on a terminal, else a line now and then.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(const LoadGoal& goal) : goal_(goal), is_terminal_(isatty(STDERR_FILENO) != 0) {}

  absl::Duration interval() const { return is_terminal_ ? absl::Milliseconds(250) : absl::Seconds(5); }

  void Print(const LoadProgress& now) {
    if (is_terminal_) {
      const int columns = DescribeTerminal().columns - 1;
      std::fprintf(stderr, "\r\033[K%s", DrawProgress(before_, now, goal_, columns).c_str());
    } else if (now.elapsed_s >= 1) {
      std::fprintf(stderr, "%s\n", DescribeProgress(before_, now, goal_).c_str());
    }
    before_ = now;
  }

  void End() {
    if (is_terminal_) std::fputs("\r\033[K", stderr);
  }

 private:
  const LoadGoal goal_;
  const bool is_terminal_;
  LoadProgress before_;
};

// Of all workers since the manager's start; nothing when this caller may not ask.
std::optional<int64_t> CountPreemptions(Client& client) {
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  if (!status.ok()) return std::nullopt;
  int64_t count = 0;
  for (const v1::WorkerStatus& worker : status->workers()) count += static_cast<int64_t>(worker.preemptions());
  return count;
}

void WarnOfCuts(const LoadPlan& plan) {
  if (plan.num_left_out() > 0) {
    std::fprintf(stderr, "quirectl: %lld requests of the trace are left out: they exceed the model's context\n",
                 static_cast<long long>(plan.num_left_out()));
  }
  if (plan.num_cut() > 0) {
    std::fprintf(stderr, "quirectl: %lld requests were cut to the model's context\n",
                 static_cast<long long>(plan.num_cut()));
  }
}

}  // namespace

BenchCommand::BenchCommand(CLI::App* command) {
  command->description(
      "Send requests to the manager and report what their callers see: throughput, time to first token, time between "
      "tokens, goodput. Prompts are random tokens of the model's vocabulary; outputs have their full length.");
  command->footer(kExamples);
  AddLoadOptions(command);
  AddRequestOptions(command);
  AddReportOptions(command);
}

void BenchCommand::AddLoadOptions(CLI::App* command) {
  const char* load = "Load";
  command
      ->add_option("--rate,--request-rate", rate_,
                   "Requests per second on average, however the server does; inf: "
                   "all at once. A trace has its own rate, which this replaces")
      ->option_text("RATE [inf]")
      ->group(load);
  command->add_option("--burstiness", burstiness_, "Of the gaps between requests: 1 is Poisson, less comes in bursts")
      ->check(CLI::Range(0.001, 1e6))
      ->option_text("SHAPE [1]")
      ->group(load);
  command
      ->add_option("--concurrency", concurrency_,
                   "A closed loop instead: so many callers, each sends when its request before has ended")
      ->check(CLI::Range(1, 1 << 14))
      ->option_text("N")
      ->excludes("--rate")
      ->group(load);
  command->add_option("--max-in-flight", max_in_flight_, "Requests beyond so many wait here; the report says so")
      ->check(CLI::Range(1, 1 << 14))
      ->option_text("N [1024]")
      ->group(load);
  command
      ->add_option("--requests,--num-prompts", num_requests_,
                   "How many to send; unless said, a trace's end or --duration bounds them")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->option_text("N [100]")
      ->group(load);
  command
      ->add_option("--duration", duration_s_,
                   "Send nothing after this time, the rest is unsent; what runs comes to its end")
      ->check(CLI::Range(0.001, 1e6))
      ->option_text("SECONDS")
      ->group(load);
  command->add_option("--warmup", num_warm_up_, "Requests that go first and are not measured")
      ->check(CLI::Range(0, 1 << 20))
      ->option_text("N [0]")
      ->group(load);
  command->add_option("--seed", seed_, "Of lengths, arrivals and prompts")->option_text("SEED [0]")->group(load);
}

void BenchCommand::AddRequestOptions(CLI::App* command) {
  const char* requests = "Requests";
  command->add_option("--input-tokens", input_tokens_, "Of a prompt: 128, 32..512 (uniform), lognormal:128 (mean)")
      ->option_text("LENGTHS [128]")
      ->group(requests);
  command->add_option("--output-tokens", output_tokens_, "Of an output, likewise")
      ->option_text("LENGTHS [64]")
      ->group(requests);
  command
      ->add_option("--shared-prefix-tokens", shared_prefix_tokens_,
                   "With which every prompt begins, before its own tokens")
      ->check(CLI::Range(0, 1 << 24))
      ->option_text("N [0]")
      ->group(requests);
  CLI::Option* trace =
      command
          ->add_option("--trace", trace_,
                       "Lengths and arrivals from an Azure trace (CSV) or a Mooncake trace (JSON lines; prompts "
                       "share prefixes as its hash_ids say)")
          ->option_text("FILE")
          ->excludes("--input-tokens", "--output-tokens")
          ->group(requests);
  command->add_option("--trace-scale", trace_scale_, "Of the trace's lengths, for a model with a smaller context")
      ->check(CLI::Range(1e-4, 1.0))
      ->option_text("FACTOR [1]")
      ->needs(trace)
      ->group(requests);
  CLI::Option* samples = command->add_option("--n", num_samples_, "Samples of each prompt")
                             ->check(CLI::Range(1, 256))
                             ->option_text("N [1]")
                             ->group(requests);
  command->add_option("--beams", beam_width_, "Beam search of this width")
      ->check(CLI::Range(1, 256))
      ->option_text("WIDTH")
      ->excludes(samples)
      ->group(requests);
  command->add_option("-t,--temperature", temperature_, "0 is greedy [0; 1 with --n]")
      ->option_text("T")
      ->excludes("--beams")
      ->group(requests);
  command->add_option("--tenant", tenant_, "For whom, under --policy=fair-share")->option_text("NAME")->group(requests);
  command->add_option("--cache-salt", cache_salt_, "Share computed prefixes under the same salt only")
      ->option_text("TEXT")
      ->group(requests);
  command->add_flag("--no-prefix-cache", no_prefix_cache_, "Neither use computed prefixes nor leave any")
      ->group(requests);
  command->add_flag("--multiplex", multiplexes_, "All over one GenerateBatch stream, as a gateway would")
      ->group(requests);
  command->add_option("--timeout", timeout_s_, "After which a request is given up")
      ->check(CLI::Range(0.001, 1e6))
      ->option_text("SECONDS [600]")
      ->group(requests);
}

void BenchCommand::AddReportOptions(CLI::App* command) {
  const char* report = "Report";
  command
      ->add_option("--slo,--goodput", service_level_,
                   "What a good request keeps, of ttft, tpot, itl (every gap) and e2el: ttft:500ms,itl:100ms")
      ->option_text("NAME:TIME,...")
      ->group(report);
  command->add_option("--save", save_path_, "Write the report there as JSON, too")->option_text("FILE")->group(report);
}

absl::StatusOr<LoadShape> BenchCommand::MakeShape() const {
  LoadShape shape;
  const absl::StatusOr<LengthDistribution> input = ParseLengths(input_tokens_);
  if (!input.ok()) return absl::InvalidArgumentError(absl::StrCat("--input-tokens ", input.status().message()));
  const absl::StatusOr<LengthDistribution> output = ParseLengths(output_tokens_);
  if (!output.ok()) return absl::InvalidArgumentError(absl::StrCat("--output-tokens ", output.status().message()));
  shape.input = *input;
  shape.output = *output;
  shape.trace = trace_;
  shape.length_scale = trace_scale_;
  if (!rate_.empty()) {
    double rate = 0;
    if (!absl::SimpleAtod(rate_, &rate) || !(rate >= 1e-3)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rate is \"", rate_, "\", expected requests per second, at least 0.001, or inf"));
    }
    shape.rate = rate;
  }
  shape.burstiness = burstiness_;
  shape.shared_prefix_tokens = shared_prefix_tokens_;
  shape.seed = seed_;
  v1::GenerateRequest& request = shape.request;
  if (beam_width_ > 0) {
    request.mutable_beam()->set_width(beam_width_);
  } else {
    request.mutable_sampling()->set_temperature(temperature_.value_or(num_samples_ > 1 ? 1.0f : 0.0f));
    request.mutable_sampling()->set_seed(seed_);
    if (num_samples_ > 1) request.set_n(num_samples_);
  }
  request.set_tenant(tenant_);
  request.set_cache_salt(cache_salt_);
  request.set_bypass_prefix_cache(no_prefix_cache_);
  return shape;
}

absl::StatusOr<LoadOptions> BenchCommand::MakeOptions() const {
  LoadOptions options;
  if (num_requests_.has_value()) {
    options.max_requests = *num_requests_;
  } else if (duration_s_ == 0 && trace_.empty()) {
    options.max_requests = kDefaultRequests;
  } else if (trace_.empty() && rate_.empty() && concurrency_ == 0) {
    return absl::InvalidArgumentError("--duration needs --rate, --concurrency or --requests: all at once has no end");
  }
  if (duration_s_ > 0) options.duration = absl::Seconds(duration_s_);
  options.concurrency = concurrency_;
  options.max_in_flight = max_in_flight_;
  options.timeout = absl::Seconds(timeout_s_);
  options.multiplex = multiplexes_;
  if (!service_level_.empty()) {
    const absl::StatusOr<ServiceLevel> level = ParseServiceLevel(service_level_);
    if (!level.ok()) return absl::InvalidArgumentError(absl::StrCat("--slo ", level.status().message()));
    options.service_level = *level;
  }
  return options;
}

nlohmann::ordered_json BenchCommand::DescribeLoad(const std::string& model) const {
  nlohmann::ordered_json json = {{"date", absl::FormatTime(absl::Now(), absl::UTCTimeZone())},
                                 {"backend", "quire"},
                                 {"version", kVersion},
                                 {"model_id", model},
                                 {"request_rate", rate_.empty() ? (trace_.empty() ? "inf" : "trace") : rate_},
                                 {"burstiness", burstiness_},
                                 {"max_concurrency", nullptr},
                                 {"max_in_flight", max_in_flight_},
                                 {"input_tokens", input_tokens_},
                                 {"output_tokens", output_tokens_},
                                 {"shared_prefix_tokens", shared_prefix_tokens_},
                                 {"n", num_samples_},
                                 {"beams", beam_width_},
                                 {"warmup", num_warm_up_},
                                 {"seed", seed_}};
  if (concurrency_ > 0) {
    json["max_concurrency"] = concurrency_;
    json["request_rate"] = nullptr;
  }
  if (!trace_.empty()) {
    json["trace"] = trace_;
    json["trace_scale"] = trace_scale_;
    json.erase("input_tokens");
    json.erase("output_tokens");
  }
  if (!service_level_.empty()) json["goodput"] = service_level_;
  return json;
}

absl::Status BenchCommand::Save(const std::string& json) const {
  std::ofstream file(save_path_);
  file << json << "\n";
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("--save: cannot write ", save_path_));
}

int BenchCommand::Run(const ClientOptions& client_options, OutputFormat format) const {
  const absl::StatusOr<LoadShape> shape = MakeShape();
  if (!shape.ok()) return ReportUsage(shape.status().message());
  absl::StatusOr<LoadOptions> options = MakeOptions();
  if (!options.ok()) return ReportUsage(options.status().message());
  Interrupt interrupt;
  std::vector<std::unique_ptr<Client>> owned;
  std::vector<Client*> clients;
  for (int i = 0; i < std::max(options->num_clients(), 1); ++i) {
    clients.push_back(owned.emplace_back(std::make_unique<Client>(client_options)).get());
  }
  Client& client = *clients.front();
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  if (!model.ok()) return ReportError(model.status(), client_options.endpoint);
  absl::StatusOr<LoadPlan> plan =
      LoadPlan::Make(*shape, static_cast<int>(model->vocab_size()), static_cast<int>(model->max_context_tokens()));
  if (!plan.ok()) return ReportUsage(plan.status().message());
  // What it has stays there until there is a report.
  const std::ofstream reserved(save_path_, std::ios::app);
  if (!save_path_.empty() && !reserved) return ReportUsage(absl::StrCat("--save: cannot write ", save_path_));

  if (num_warm_up_ > 0) {
    LoadOptions warm_up = *options;
    warm_up.max_requests = num_warm_up_;
    warm_up.duration = absl::InfiniteDuration();
    warm_up.concurrency = std::min(num_warm_up_, concurrency_ > 0 ? concurrency_ : kWarmUpConcurrency);
    LoadPlan warm_up_plan = plan->WarmUp();
    const LoadReport report = LoadGenerator(clients, warm_up).Run(&warm_up_plan);
    if (report.num_failed() > 0) return ReportError(report.first_error, client_options.endpoint);
  }

  LoadGoal goal = {.duration_s = duration_s_};
  const int64_t last_of_trace = trace_.empty() ? options->max_requests : plan->num_traced();
  if (std::min(last_of_trace, options->max_requests) < std::numeric_limits<int64_t>::max()) {
    goal.num_requests = std::min(last_of_trace, options->max_requests);
  }
  ProgressPrinter progress(goal);
  options->on_progress = [&](const LoadProgress& now) { progress.Print(now); };
  options->progress_interval = progress.interval();
  const std::optional<int64_t> preemptions_before = CountPreemptions(client);
  LoadGenerator generator(clients, *options);
  interrupt.Watch([&] { generator.Stop(); });
  LoadReport report = generator.Run(&*plan);
  interrupt.Watch(std::function<void()>());
  progress.End();
  const std::optional<int64_t> preemptions = CountPreemptions(client);
  if (preemptions_before.has_value() && preemptions.has_value()) {
    report.num_preemptions = std::max<int64_t>(*preemptions - *preemptions_before, 0);
  }
  WarnOfCuts(*plan);

  nlohmann::ordered_json json = DescribeLoad(model->name());
  json.update(ToJson(report));
  const auto dump = [&](int indent) {
    return json.dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace);
  };
  std::printf("%s\n", format == OutputFormat::kJson ? dump(-1).c_str() : ToText(report).c_str());
  FlushOutput();
  const absl::Status saved = save_path_.empty() ? absl::OkStatus() : Save(dump(2));
  if (!saved.ok()) std::fprintf(stderr, "quirectl: %s\n", std::string(saved.message()).c_str());
  if (const int signal = interrupt.signal(); signal != 0) EndBySignal(signal);
  if (!saved.ok()) return kExitFailed;
  if (report.num_failed() == 0) return kExitOk;
  std::fprintf(stderr, "quirectl: %lld of %lld requests failed, the first one with:\n",
               static_cast<long long>(report.num_failed()), static_cast<long long>(report.num_sent));
  const int code = ReportError(report.first_error, client_options.endpoint);
  return report.num_completed == 0 ? code : kExitFailed;
}

}  // namespace quire
