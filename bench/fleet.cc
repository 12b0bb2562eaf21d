// SPDX-License-Identifier: Apache-2.0

#include "bench/fleet.h"

#include <stdlib.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "tests/serving/sockets.h"

namespace quire {
namespace {

constexpr absl::Duration kStartTimeout = absl::Minutes(2);

absl::StatusOr<std::string> Get(int port, const std::string& path) {
  TestSocket client;
  if (!client.Connect(port)) return absl::UnavailableError(absl::StrCat("no answer at port ", port));
  for (const char c : absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n")) client.Send(c);
  std::string text;
  char buffer[65536];
  for (ssize_t n; (n = read(client.fd(), buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  return text;
}

// Returns the value of `label` in a line such as `name{label="value",...} 3`.
std::string Label(absl::string_view line, absl::string_view label) {
  const std::string begin = absl::StrCat(label, "=\"");
  const size_t at = line.find(begin);
  if (at == line.npos) return "";
  const size_t first = at + begin.size();
  return std::string(line.substr(first, line.find('"', first) - first));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Start(const FleetOptions& options) {
  auto fleet = absl::WrapUnique(new Fleet(options));
  for (int i = 0; i < options.num_workers; ++i) fleet->workers_.push_back(fleet->StartWorker(i));
  QUIRE_RETURN_IF_ERROR(fleet->StartManager());
  return fleet;
}

Fleet::Fleet(const FleetOptions& options) : options_(options) {
  char directory[] = "/tmp/quire-fleet.XXXXXX";
  if (mkdtemp(directory) != nullptr) directory_ = directory;
  std::ofstream(Path("times.yaml")) << "step: " << absl::FormatDuration(options.step) << "\n";
}

Fleet::~Fleet() {
  manager_.reset();
  workers_.clear();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

std::unique_ptr<Process> Fleet::StartWorker(int i) const {
  return std::make_unique<Process>(std::vector<std::string>{
      absl::StrCat(options_.binaries, "/quire-worker"), "--device=simulated", absl::StrCat("--model=", options_.model),
      "--model-name=fleet", absl::StrCat("--listen=unix:", Path(absl::StrCat("worker", i, ".sock"))),
      "--metrics-listen=", absl::StrCat("--simulated-step-times=", Path("times.yaml")),
      absl::StrCat("--max-sequences=", options_.rows_per_worker)});
}

absl::Status Fleet::StartManager() {
  std::vector<std::string> addresses;
  for (int i = 0; i < options_.num_workers; ++i) {
    addresses.push_back(absl::StrCat("unix:", Path(absl::StrCat("worker", i, ".sock"))));
  }
  std::vector<std::string> command = {absl::StrCat(options_.binaries, "/quire-manager"),
                                      absl::StrCat("--listen=unix:", Path("manager.sock")),
                                      absl::StrCat("--workers=", absl::StrJoin(addresses, ",")),
                                      "--metrics-listen=127.0.0.1:0",
                                      "--max-step-ms=0",
                                      "--max-queue-wait=24h",
                                      "--max-requests=1000000",
                                      absl::StrCat("--max-batch-requests=", options_.max_batch_requests)};
  command.insert(command.end(), options_.manager_flags.begin(), options_.manager_flags.end());
  manager_ = std::make_unique<Process>(command);
  const std::string line = manager_->WaitForLine("listening on ");
  if (line.empty()) return absl::UnavailableError(absl::StrCat("the manager did not start:\n", manager_->Output()));
  endpoint_ = line.substr(line.find_last_of(' ') + 1);
  const std::string metrics = manager_->WaitForLine("metrics on port ");
  if (!absl::SimpleAtoi(metrics.substr(metrics.find_last_of(' ') + 1), &metrics_port_)) {
    return absl::UnavailableError("the manager serves no metrics");
  }
  Client client({.endpoint = endpoint_});
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (absl::Now() < deadline) {
    const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
    int num_ready = 0;
    if (status.ok()) {
      for (const v1::WorkerStatus& worker : status->workers()) num_ready += worker.state() == v1::WORKER_STATE_READY;
    }
    if (num_ready == options_.num_workers) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(100));
  }
  return absl::UnavailableError(absl::StrCat("not all workers joined:\n", manager_->Output()));
}

void Fleet::RestartWorker(int i) {
  workers_[static_cast<size_t>(i)]->Signal(SIGKILL);
  workers_[static_cast<size_t>(i)]->Wait();
  workers_[static_cast<size_t>(i)] = StartWorker(i);
}

absl::StatusOr<Fleet::Metrics> Fleet::Scrape() const {
  QUIRE_ASSIGN_OR_RETURN(const std::string page, Get(metrics_port_, "/metrics"));
  Metrics metrics;
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    const size_t space = line.find_last_of(' ');
    double value;
    if (space == line.npos || !absl::SimpleAtod(absl::StripSuffix(line.substr(space + 1), "\r"), &value)) continue;
    const absl::string_view name = line.substr(0, line.find_first_of("{ "));
    if (name == "process_cpu_seconds_total") metrics.cpu_seconds = value;
    if (name == "process_resident_memory_bytes") metrics.resident_bytes = value;
    double bound;
    if (!absl::SimpleAtod(Label(line, "le"), &bound)) continue;
    if (name == "quire_plan_duration_seconds_bucket") metrics.plans[bound] += value;
    if (name == "quire_step_manager_seconds_bucket") metrics.manager_parts[bound] += value;
    if (name == "quire_step_manager_cpu_seconds_bucket") metrics.manager_cpu[bound] += value;
  }
  return metrics;
}

double QuantileBetween(const Fleet::Metrics::Buckets& begin, const Fleet::Metrics::Buckets& end, double quantile) {
  const auto count = [&](double bound) {
    const auto before = begin.find(bound);
    return end.at(bound) - (before == begin.end() ? 0 : before->second);
  };
  if (end.empty()) return 0;
  const double wanted = quantile * count(end.rbegin()->first);
  double lower_bound = 0;
  double lower_count = 0;
  for (const auto& [bound, ignored] : end) {
    const double upper_count = count(bound);
    if (upper_count >= wanted && upper_count > lower_count) {
      return lower_bound + (bound - lower_bound) * (wanted - lower_count) / (upper_count - lower_count);
    }
    lower_bound = bound;
    lower_count = upper_count;
  }
  return lower_bound;
}

}  // namespace quire
