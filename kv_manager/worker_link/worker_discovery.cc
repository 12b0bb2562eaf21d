// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/worker_discovery.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "kv_manager/worker_link/worker_address.h"

namespace quire {
namespace {

// "1.2.3.4:port" or "[::1]:port"; empty when the address has no such form.
std::string WithPort(const sockaddr* address, socklen_t length, absl::string_view port) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return address->sa_family == AF_INET6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveWorkers(absl::string_view target) {
  absl::string_view name = target;
  if (!absl::ConsumePrefix(&name, kDnsPrefix)) return std::vector<std::string>{std::string(target)};
  QUIRE_RETURN_IF_ERROR(CheckWorkerAddress(target));
  const size_t colon = name.rfind(':');
  const std::string host(name.substr(0, colon));
  const std::string port(name.substr(colon + 1));
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list); error != 0) {
    return absl::UnavailableError(absl::StrCat("looking up ", host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::string address = WithPort(entry->ai_addr, entry->ai_addrlen, port);
    if (!address.empty()) addresses.push_back(std::move(address));
  }
  if (addresses.empty()) return absl::UnavailableError(absl::StrCat("looking up ", host, ": no usable address"));
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

WorkerDiscovery::WorkerDiscovery(const std::vector<std::string>& targets, absl::Duration interval, OnWorkers on_workers)
    : interval_(interval), on_workers_(std::move(on_workers)) {
  const auto is_name = [](const std::string& target) { return absl::StartsWith(target, kDnsPrefix); };
  for (const std::string& target : targets) targets_.push_back({target, {}, {}});
  if (std::any_of(targets.begin(), targets.end(), is_name)) {
    thread_ = std::thread([this] { ThreadMain(); });
  } else {
    Look();
  }
}

WorkerDiscovery::~WorkerDiscovery() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkerDiscovery::Look() {
  std::vector<std::string> all;
  for (Target& target : targets_) {
    absl::StatusOr<std::vector<std::string>> addresses = ResolveWorkers(target.name);
    if (addresses.ok()) {
      if (!target.error.ok()) {
        QUIRE_LOG(kInfo) << "looking up " << target.name << " succeeds again";
      }
      target.addresses = *std::move(addresses);
      target.error = absl::OkStatus();
    } else if (addresses.status() != target.error) {
      target.error = addresses.status();
      QUIRE_LOG(kWarning) << target.error.message();
    }
    all.insert(all.end(), target.addresses.begin(), target.addresses.end());
  }
  on_workers_(all);
}

void WorkerDiscovery::ThreadMain() {
  while (true) {
    Look();
    const auto next = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(interval_);
    const MutexLock lock(&mutex_);
    while (!stopping_ && stop_.WaitUntil(&mutex_, next)) {
    }
    if (stopping_) return;
  }
}

}  // namespace quire
