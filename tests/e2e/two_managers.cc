// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/two_managers.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "tests/e2e/cluster.h"
#include "tests/test_paths.h"

namespace quire {

std::string EtcdPath() {
  std::string folders = getenv("PATH") == nullptr ? "" : getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(folders, ':')) {
    const std::string path = absl::StrCat(folder, "/etcd");
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

Etcd::Etcd(const std::string& folder) {
  // etcd takes a free port for 0 and logs it, here in the form of 3.4 or 3.5.
  constexpr char kAnyPort[] = "http://127.0.0.1:0";
  process_ = std::make_unique<Process>(std::vector<std::string>{
      EtcdPath(), absl::StrCat("--data-dir=", folder, "/etcd"), "--unsafe-no-fsync",
      absl::StrCat("--listen-client-urls=", kAnyPort), absl::StrCat("--advertise-client-urls=", kAnyPort),
      absl::StrCat("--listen-peer-urls=", kAnyPort), absl::StrCat("--initial-advertise-peer-urls=", kAnyPort),
      absl::StrCat("--initial-cluster=default=", kAnyPort)});
  const std::string line = process_->WaitForLine("strongly discouraged");
  std::smatch port;
  QUIRE_CHECK(std::regex_search(line, port, std::regex("127\\.0\\.0\\.1:[0-9]+"))) << process_->Output();
  address_ = port.str();
}

TwoManagers::TwoManagers(const TwoManagersOptions& options) : options_(options) {
  char folder[] = "/tmp/quire-two-managers.XXXXXX";
  QUIRE_CHECK(mkdtemp(folder) != nullptr);
  folder_ = folder;
  std::ofstream(folder_ + "/key") << std::string(40, 'k');
  etcd_ = std::make_unique<Etcd>(folder_);
  for (int i = 0; i < options.num_workers; ++i) {
    std::vector<std::string> command = {Binary("quire-worker"), absl::StrCat("--model=", BundledModel()),
                                        "--device=simulated", absl::StrCat("--listen=", WorkerAddress(i)),
                                        "--metrics-listen="};
    command.insert(command.end(), options.worker_flags.begin(), options.worker_flags.end());
    workers_.push_back(std::make_unique<Process>(command));
  }
  for (int i = 0; i < 2; ++i) StartManager(i);
}

TwoManagers::~TwoManagers() {
  for (std::unique_ptr<Process>& manager : managers_) manager.reset();
  workers_.clear();
  etcd_.reset();
  std::filesystem::remove_all(folder_);
}

std::string TwoManagers::WorkerAddress(int i) const {
  return absl::StrCat("unix:", folder_, "/worker", i, ".sock");
}

std::string TwoManagers::SocketOf(int manager) const {
  return absl::StrCat(folder_, "/manager", manager, ".sock");
}

std::string TwoManagers::endpoint() const {
  return absl::StrCat("unix:", folder_, "/leader.sock");
}

void TwoManagers::StartManager(int i) {
  std::string workers;
  for (int worker = 0; worker < options_.num_workers; ++worker) {
    absl::StrAppend(&workers, worker == 0 ? "" : ",", WorkerAddress(worker));
  }
  const std::string address = absl::StrCat("unix:", SocketOf(i));
  managers_[i] = std::make_unique<Process>(std::vector<std::string>{
      Binary("quire-manager"), absl::StrCat("--listen=", address), absl::StrCat("--workers=", workers),
      "--metrics-listen=", "--max-queue-wait=24h", "--standby=etcd", absl::StrCat("--etcd=", etcd_->address()),
      absl::StrCat("--lease-duration=", absl::FormatDuration(options_.lease)),
      absl::StrCat("--resume-key-file=", folder_, "/key")});
  QUIRE_CHECK(!managers_[i]->WaitForLine("listening on").empty()) << managers_[i]->Output();
  clients_[i] = std::make_unique<Client>(ClientOptions{.endpoint = address});
}

int TwoManagers::AwaitLeader(const std::vector<int>& numbers, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  for (; absl::Now() < end; absl::SleepFor(absl::Milliseconds(5))) {
    for (const int i : numbers) {
      const absl::StatusOr<bool> is_serving = client(i).IsServing("");
      if (!is_serving.ok() || !*is_serving) continue;
      // A link is replaced in one step by renaming.
      std::filesystem::create_symlink(SocketOf(i), folder_ + "/next.sock");
      std::filesystem::rename(folder_ + "/next.sock", folder_ + "/leader.sock");
      return i;
    }
  }
  return -1;
}

}  // namespace quire
