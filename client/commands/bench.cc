// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/bench_options.h"
#include "client/commands/commands.h"
#include "client/load/progress_line.h"
#include "client/terminal/interrupt.h"
#include "client/terminal/terminal.h"

namespace quire {
namespace {

constexpr int kWarmUpConcurrency = 16;
constexpr double kSecondsPerLine = 5;

// Prints progress to standard error: on a terminal a bar that is redrawn, otherwise a line every few seconds.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(const LoadGoal& goal) : goal_(goal), is_terminal_(isatty(STDERR_FILENO) != 0) {}

  // The time between two calls of Print.
  absl::Duration interval() const { return is_terminal_ ? absl::Milliseconds(250) : absl::Seconds(1); }

  void Print(const LoadTestProgress& now) {
    if (is_terminal_) {
      const int columns = DescribeTerminal().columns - 1;
      std::fprintf(stderr, "\r\033[K%s", DrawProgress(before_, now, goal_, columns).c_str());
    } else if (now.elapsed_s >= next_line_s_) {
      std::fprintf(stderr, "%s\n", DescribeProgress(before_, now, goal_).c_str());
      next_line_s_ = now.elapsed_s + kSecondsPerLine;
    } else {
      return;
    }
    before_ = now;
  }

  void End() {
    if (is_terminal_) std::fputs("\r\033[K", stderr);
  }

 private:
  const LoadGoal goal_;
  const bool is_terminal_;
  double next_line_s_ = 1;  // Used if standard error is not a terminal.
  LoadTestProgress before_;
};

// The preemptions of all workers since the manager's start. Returns nothing when this caller may not call GetStatus.
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

// The clients that the generator needs, each with a connection of its own.
class Clients {
 public:
  Clients(const ClientOptions& options, int count) {
    for (int i = 0; i < std::max(count, 1); ++i) owned_.push_back(std::make_unique<Client>(options));
    for (const std::unique_ptr<Client>& client : owned_) all_.push_back(client.get());
  }

  Client& first() const { return *all_.front(); }
  const std::vector<Client*>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<Client>> owned_;
  std::vector<Client*> all_;
};

// Sends the requests that are not measured. Returns the first error.
absl::Status WarmUp(const BenchOptions& options, const LoadOptions& load, const Clients& clients,
                    const LoadPlan& plan) {
  if (options.num_warm_up == 0) return absl::OkStatus();
  LoadOptions warm_up = load;
  warm_up.max_requests = options.num_warm_up;
  warm_up.duration = absl::InfiniteDuration();
  warm_up.concurrency = std::min(options.num_warm_up, load.concurrency > 0 ? load.concurrency : kWarmUpConcurrency);
  LoadPlan warm_up_plan = plan.WarmUp();
  return LoadGenerator(clients.all(), warm_up).Run(&warm_up_plan).first_error;
}

// Returns when the load will be done, for the progress line.
LoadGoal GoalOf(const BenchOptions& options, const LoadOptions& load, const LoadPlan& plan) {
  LoadGoal goal = {.duration_s = options.duration_s};
  const int64_t num_planned = options.trace.empty() ? load.max_requests : plan.num_traced();
  const int64_t num_requests = std::min(num_planned, load.max_requests);
  if (num_requests < std::numeric_limits<int64_t>::max()) goal.num_requests = num_requests;
  return goal;
}

// Sends the load and prints progress. Ctrl-C ends it early.
LoadReport Measure(const BenchOptions& options, LoadOptions load, const Clients& clients, LoadPlan* plan,
                   Interrupt* interrupt) {
  ProgressPrinter progress(GoalOf(options, load, *plan));
  load.on_progress = [&](const LoadTestProgress& now) { progress.Print(now); };
  load.progress_interval = progress.interval();
  const std::optional<int64_t> preemptions_before = CountPreemptions(clients.first());
  LoadGenerator generator(clients.all(), load);
  interrupt->Watch([&] { generator.Stop(); });
  LoadReport report = generator.Run(plan);
  interrupt->Watch(std::function<void()>());
  progress.End();
  const std::optional<int64_t> preemptions = CountPreemptions(clients.first());
  if (preemptions_before.has_value() && preemptions.has_value()) {
    report.num_preemptions = std::max<int64_t>(*preemptions - *preemptions_before, 0);
  }
  return report;
}

absl::Status Save(const std::string& path, const std::string& json) {
  std::ofstream file(path);
  file << json << "\n";
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("--save: cannot write ", path));
}

// Prints the report and writes it to --save. Returns false, after an error message, when the file cannot be written.
bool PrintReport(const BenchOptions& options, const std::string& model, const LoadReport& report, OutputFormat format) {
  nlohmann::ordered_json json = options.DescribeLoad(model);
  json.update(ToJson(report));
  const auto dump = [&](int indent) {
    return json.dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace);
  };
  std::printf("%s\n", format == OutputFormat::kJson ? dump(-1).c_str() : ToText(report).c_str());
  FlushOutput();
  if (options.save_path.empty()) return true;
  const absl::Status saved = Save(options.save_path, dump(2));
  if (!saved.ok()) std::fprintf(stderr, "quirectl: %s\n", std::string(saved.message()).c_str());
  return saved.ok();
}

// Exits with 1 when a request failed. Ctrl-C cancels what runs, prints what was measured and then ends the process.
int RunBench(const BenchOptions& options, const CommandContext& context) {
  const absl::StatusOr<LoadShape> shape = options.MakeShape();
  if (!shape.ok()) return ReportUsage(shape.status().message());
  const absl::StatusOr<LoadOptions> load = options.MakeLoadOptions();
  if (!load.ok()) return ReportUsage(load.status().message());
  Interrupt interrupt;
  const Clients clients(context.client, load->num_clients());
  const absl::StatusOr<v1::GetModelResponse> model = clients.first().GetModel();
  if (!model.ok()) return ReportError(model.status(), context.client.endpoint);
  absl::StatusOr<LoadPlan> plan =
      LoadPlan::Make(*shape, static_cast<int>(model->vocab_size()), static_cast<int>(model->max_context_tokens()));
  if (!plan.ok()) return ReportUsage(plan.status().message());
  // Opening the file now reports an unwritable path before the load. Its content stays until there is a report.
  const std::ofstream reserved(options.save_path, std::ios::app);
  if (!options.save_path.empty() && !reserved) {
    return ReportUsage(absl::StrCat("--save: cannot write ", options.save_path));
  }
  if (const absl::Status warmed_up = WarmUp(options, *load, clients, *plan); !warmed_up.ok()) {
    return ReportError(warmed_up, context.client.endpoint);
  }
  const LoadReport report = Measure(options, *load, clients, &*plan, &interrupt);
  WarnOfCuts(*plan);
  const bool is_saved = PrintReport(options, model->name(), report, context.format);
  if (const int signal = interrupt.signal(); signal != 0) EndBySignal(signal);
  if (!is_saved) return kExitFailed;
  if (report.num_failed() == 0) return kExitOk;
  std::fprintf(stderr, "quirectl: %lld of %lld requests failed, the first one with:\n",
               static_cast<long long>(report.num_failed()), static_cast<long long>(report.num_sent));
  const int code = ReportError(report.first_error, context.client.endpoint);
  return report.num_completed == 0 ? code : kExitFailed;
}

}  // namespace

void AddBenchCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "bench",
      "Send requests to the manager and report what their callers see: throughput, time to first token, time between "
      "tokens, goodput. Prompts are random tokens of the model's vocabulary; outputs have their full length.",
      RunBench);
  AddBenchOptions(command, options);
}

}  // namespace quire
