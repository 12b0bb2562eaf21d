// SPDX-License-Identifier: Apache-2.0

#include "worker/rank_supervisor.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/listen_address.h"
#include "base/log.h"

namespace quire {
namespace {

constexpr int kExitFailed = 1;
constexpr int kMaxFailures = 3;
constexpr int kLookMs = 100;

// Blocks the signals that stop a program, and returns a descriptor that is readable when one of them has come.
int CatchStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  QUIRE_CHECK_GE(fd, 0);
  return fd;
}

std::string RandomId() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

// A port of 0 stays.
std::string MetricsAddress(const std::string& address, int rank) {
  const std::optional<HostPort> parts = SplitHostPort(address);
  return !parts || parts->port == "0" ? address : RankAddress(address, rank);
}

}  // namespace

int BindToCoresOfRank(int rank, int num_ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  const int num_cores = CPU_COUNT(&allowed);
  if (num_cores < num_ranks) return 1;
  const int begin = rank * num_cores / num_ranks;
  const int end = (rank + 1) * num_cores / num_ranks;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int core = 0, index = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (index >= begin && index < end) CPU_SET(core, &own);
    ++index;
  }
  sched_setaffinity(0, sizeof own, &own);
  return end - begin;
}

RankSupervisor::RankSupervisor(const WorkerOptions& options, std::vector<std::string> arguments)
    : options_(options),
      arguments_(std::move(arguments)),
      program_(std::filesystem::read_symlink("/proc/self/exe")),
      group_id_(options.rank_hosts.IsOneHost() ? RandomId() : options.rank_hosts.GroupId()),
      signals_fd_(CatchStopSignals()),
      ranks_(options.rank_hosts.num_ranks) {
  SetLogLevel(options.log.level);
  SetLogFormat(options.log.format);
}

RankSupervisor::~RankSupervisor() {
  close(signals_fd_);
}

void RankSupervisor::Start(int index) {
  std::vector<std::string> argv = {program_};
  argv.insert(argv.end(), arguments_.begin(), arguments_.end());
  argv.push_back(absl::StrCat("--rank=", options_.rank_hosts.first_rank + index));
  argv.push_back(absl::StrCat("--group=", group_id_));
  argv.push_back(absl::StrCat("--listen=", RankAddress(options_.listen, index)));
  argv.push_back(absl::StrCat("--metrics-listen=", MetricsAddress(options_.metrics_listen, index)));
  if (index > 0) argv.emplace_back("--health-listen=");
  ranks_[index].process = std::make_unique<ChildProcess>(argv, ChildProcess::Errors::kInherited);
  ranks_[index].is_ready = false;
}

void RankSupervisor::Read(int index) {
  for (const std::string& line : ranks_[index].process->ReadLines()) {
    if (absl::StrContains(line, "listening on ")) {
      ranks_[index].is_ready = true;
      ranks_[index].num_failures = 0;
      if (index > 0) {
        QUIRE_LOG(kInfo) << "rank " << options_.rank_hosts.first_rank + index << " is ready";
      }
    }
    if (index == 0) std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

void RankSupervisor::Watch() {
  std::vector<pollfd> fds = {{signals_fd_, POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    if (rank.process->fd() >= 0) fds.push_back({rank.process->fd(), POLLIN, 0});
  }
  poll(fds.data(), fds.size(), kLookMs);
  signalfd_siginfo signal;
  while (read(signals_fd_, &signal, sizeof(signal)) == sizeof(signal)) {
    is_stopping_ = true;
    for (Rank& rank : ranks_) rank.process->Signal(SIGTERM);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) Read(static_cast<int>(i));
}

std::optional<int> RankSupervisor::Restart() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (!rank.process->HasEnded()) continue;
    const int number = options_.rank_hosts.first_rank + static_cast<int>(i);
    const int exit_code = rank.process->exit_code();
    // It has said why it cannot start.
    if (exit_code > 0 && !rank.is_ready) return exit_code;
    if (!rank.is_ready && ++rank.num_failures == kMaxFailures) {
      QUIRE_LOG(kError) << "rank " << number << " has ended " << kMaxFailures
                        << " times before it was ready, the last time "
                        << "with " << rank.process->HowItEnded() << "; the other ranks are stopped";
      return kExitFailed;
    }
    QUIRE_LOG(kWarning) << "rank " << number << " has ended with " << rank.process->HowItEnded()
                        << "; it is started again";
    Start(static_cast<int>(i));
  }
  return std::nullopt;
}

void RankSupervisor::StopRanks() {
  is_stopping_ = true;
  for (Rank& rank : ranks_) rank.process->Signal(SIGTERM);
}

int RankSupervisor::Run() {
  for (size_t i = 0; i < ranks_.size(); ++i) Start(static_cast<int>(i));
  std::optional<int> exit_code;
  const auto has_ended = [](Rank& rank) { return rank.process->HasEnded(); };
  while (!is_stopping_ || !std::all_of(ranks_.begin(), ranks_.end(), has_ended)) {
    Watch();
    if (!is_stopping_) exit_code = Restart();
    if (exit_code && !is_stopping_) StopRanks();
  }
  return exit_code.value_or(0);
}

}  // namespace quire
