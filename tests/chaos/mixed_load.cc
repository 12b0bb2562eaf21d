// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/mixed_load.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace quire {
namespace {

// The deadline of a request that must not fail. It is far away, because a deadline limits how long a request may wait.
constexpr absl::Duration kPatience = absl::Minutes(10);
constexpr int kMaxPauseMs = 400;
constexpr size_t kMaxErrors = 20;

bool IsDeadlineOver(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

}  // namespace

MixedLoad::MixedLoad(const std::string& endpoint, const AnswerBook* book, int num_clients, uint64_t seed)
    : endpoint_(endpoint), book_(book) {
  for (int i = 0; i < num_clients; ++i) threads_.emplace_back([this, seed, i] { RunClient(seed * 1000 + i); });
}

MixedLoad::~MixedLoad() {
  {
    const MutexLock lock(&mutex_);
    is_over_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void MixedLoad::Pause() {
  const MutexLock lock(&mutex_);
  is_paused_ = true;
  while (num_running_ > 0) changed_.Wait(&mutex_);
}

void MixedLoad::Resume() {
  const MutexLock lock(&mutex_);
  is_paused_ = false;
  changed_.NotifyAll();
}

bool MixedLoad::WaitForProgress(int num, int timeout_s) {
  const MutexLock lock(&mutex_);
  const int64_t enough = counts_.whole + num;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  while (counts_.whole < enough) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return counts_.whole >= enough;
  }
  return true;
}

MixedLoad::Counts MixedLoad::counts() const {
  const MutexLock lock(&mutex_);
  return counts_;
}

std::vector<std::string> MixedLoad::errors() const {
  const MutexLock lock(&mutex_);
  return errors_;
}

bool MixedLoad::Begin() {
  const MutexLock lock(&mutex_);
  while (is_paused_ && !is_over_) changed_.Wait(&mutex_);
  if (is_over_) return false;
  ++num_running_;
  return true;
}

void MixedLoad::RunClient(uint64_t seed) {
  Random random(seed);
  Client client(ClientOptions{.endpoint = endpoint_});
  const auto draw_item = [&] { return random.Below(static_cast<int>(book_->work().size())); };
  while (Begin()) {
    if (random.OneIn(8)) {
      RunBatch(&client, {draw_item(), draw_item(), draw_item()});
    } else {
      Plan plan{.timeout = kPatience};
      if (random.OneIn(8)) {
        plan.has_short_deadline = true;
        plan.timeout = absl::Milliseconds(random.Between(1, 300));
      } else if (random.OneIn(6)) {
        plan.num_reads = random.Between(1, 10);
      }
      RunCall(&client, draw_item(), plan);
    }
    {
      const MutexLock lock(&mutex_);
      --num_running_;
      changed_.NotifyAll();
    }
    absl::SleepFor(absl::Milliseconds(random.Between(0, kMaxPauseMs)));
  }
}

void MixedLoad::RunCall(Client* client, int item, const Plan& plan) {
  const absl::Time start = absl::Now();
  const std::unique_ptr<GenerateStream> stream = client->Generate(book_->work()[item].request, plan.timeout);
  Outputs outputs;
  v1::GenerateResponse response;
  int num_reads = 0;
  bool has_ended = false;
  while ((plan.num_reads == 0 || num_reads < plan.num_reads) && !(has_ended = !stream->Next(&response))) {
    AddResponse(response, &outputs);
    ++num_reads;
  }
  if (has_ended) {
    return OnEnd(item, stream->Finish(), outputs, plan.has_short_deadline, absl::ToDoubleSeconds(absl::Now() - start));
  }
  stream->Cancel();
  const std::string wrong = book_->Check(item, outputs, /*is_whole=*/false);
  const MutexLock lock(&mutex_);
  ++counts_.cancelled;
  if (!wrong.empty()) AddError(wrong);
}

void MixedLoad::RunBatch(Client* client, const std::vector<int>& items) {
  const absl::Time start = absl::Now();
  const std::unique_ptr<GenerateBatchStream> stream = client->GenerateBatch();
  std::map<uint64_t, std::pair<int, Outputs>> running;  // By tag.
  for (const int item : items) {
    const uint64_t tag = running.size() + 1;
    running[tag].first = item;
    // When the stream is over, its end says why.
    stream->Start(tag, book_->work()[item].request, kPatience).IgnoreError();
  }
  stream->HalfClose();
  v1::GenerateBatchResponse responses;
  while (stream->Next(&responses)) {
    for (const v1::GenerateBatchEntry& entry : responses.entries()) {
      auto& [item, outputs] = running[entry.tag()];
      if (entry.has_response()) AddResponse(entry.response(), &outputs);
      if (!entry.has_end()) continue;
      OnEnd(item, FromRpcStatus(entry.end()), outputs, /*has_short_deadline=*/false,
            absl::ToDoubleSeconds(absl::Now() - start));
      running.erase(entry.tag());
    }
  }
  const absl::Status status = stream->Finish();
  const MutexLock lock(&mutex_);
  if (!status.ok() || !running.empty()) {
    AddError(absl::StrCat("a batch has ended with ", running.size(), " running requests: ", status.ToString()));
  }
}

void MixedLoad::OnEnd(int item, const absl::Status& status, const Outputs& outputs, bool has_short_deadline,
                      double seconds) {
  const bool is_expired = has_short_deadline && IsDeadlineOver(status);
  const std::string wrong = book_->Check(item, outputs, /*is_whole=*/status.ok());
  const MutexLock lock(&mutex_);
  if (!wrong.empty()) AddError(wrong);
  if (is_expired) {
    ++counts_.expired;
  } else if (status.ok()) {
    ++counts_.whole;
    counts_.slowest_s = std::max(counts_.slowest_s, seconds);
  } else {
    AddError(absl::StrCat(book_->work()[item].name, " has failed after ", outputs.size(), " outputs and ", seconds,
                          " s: ", status.ToString()));
  }
  changed_.NotifyAll();
}

void MixedLoad::AddError(const std::string& text) {
  ++counts_.errors;
  if (errors_.size() < kMaxErrors) errors_.push_back(text);
}

}  // namespace quire
