// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/bystanders.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

constexpr int kBystanderTokens = 960;
constexpr absl::Duration kBystanderTimeout = absl::Minutes(5);

std::vector<std::unique_ptr<GenerateStream>> Start(Client* client, int count) {
  std::vector<std::unique_ptr<GenerateStream>> streams;
  for (int i = 0; i < count; ++i) {
    v1::GenerateRequest request = LongRequest(absl::StrCat("Bystander ", i, " tells a long story"), kBystanderTokens);
    streams.push_back(client->Generate(request, kBystanderTimeout));
  }
  return streams;
}

}  // namespace

Bystanders::Bystanders(Client* client, int count)
    : streams_(Start(client, count)), arrivals_(streams_.size()), has_ended_(streams_.size()) {
  for (size_t i = 0; i < streams_.size(); ++i) threads_.emplace_back([this, i] { Run(i); });
}

Bystanders::~Bystanders() {
  for (const auto& stream : streams_) stream->Cancel();
  for (std::thread& thread : threads_) thread.join();
}

void Bystanders::Run(size_t number) {
  v1::GenerateResponse response;
  while (streams_[number]->Next(&response)) {
    const MutexLock lock(&mutex_);
    for (int i = 0; i < response.token_ids_size(); ++i) arrivals_[number].push_back(absl::Now());
    changed_.NotifyAll();
  }
  const MutexLock lock(&mutex_);
  has_ended_[number] = true;
  changed_.NotifyAll();
}

void Bystanders::WaitForTokens(int count) {
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < streams_.size(); ++i) {
    while (!has_ended_[i] && static_cast<int>(arrivals_[i].size()) < count) changed_.Wait(&mutex_);
  }
}

bool Bystanders::AreAllRunning() const {
  const MutexLock lock(&mutex_);
  return std::none_of(has_ended_.begin(), has_ended_.end(), [](bool has_ended) { return has_ended; });
}

int Bystanders::CountTokens(absl::Time begin, absl::Time end) const {
  const MutexLock lock(&mutex_);
  int count = 0;
  for (const std::vector<absl::Time>& arrivals : arrivals_) {
    count += static_cast<int>(
        std::count_if(arrivals.begin(), arrivals.end(), [&](absl::Time time) { return begin < time && time <= end; }));
  }
  return count;
}

}  // namespace quire
