// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/body_reader.h"

#include "base/heap_trimmer.h"
#include "base/thread_priority.h"

namespace quire {

void BodyReader::ReadLater(const std::shared_ptr<WebExchange>& exchange,
                           std::function<void(const std::string& body)> read, std::function<void()> use) {
  const size_t num_bytes = exchange->request().body.size();
  const std::string address = exchange->request().address;
  auto has_left = std::make_shared<bool>(false);
  exchange->OnGone([has_left] { *has_left = true; });
  LaneFor(num_bytes).Push(address,
                          {exchange->TakeBody(), num_bytes, std::move(read), std::move(use), std::move(has_left)});
}

void BodyReader::Make(const std::string& address, size_t num_bytes, std::function<void()> make,
                      std::function<void()> use) {
  if (num_bytes <= kSmallBytes) {
    make();
    return use();
  }
  LaneFor(num_bytes).Push(address, {std::make_shared<const std::string>(), num_bytes,
                                    [make = std::move(make)](const std::string& /*body*/) { make(); }, std::move(use),
                                    std::make_shared<bool>(false)});
}

BodyReader::Lane::~Lane() {
  {
    const MutexLock lock(&mutex_);
    is_ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void BodyReader::Lane::Push(const std::string& address, Job job) {
  const MutexLock lock(&mutex_);
  jobs_.Push(address, std::move(job));
  changed_.NotifyAll();
}

std::optional<BodyReader::Job> BodyReader::Lane::Next() {
  const MutexLock lock(&mutex_);
  while (jobs_.empty() && !is_ending_) changed_.Wait(&mutex_);
  return is_ending_ ? std::nullopt : std::optional(jobs_.Pop());
}

// The other threads answer many requests in the time of a large body.
void BodyReader::Lane::Run() {
  LowerPriorityOfThread();
  while (std::optional<Job> job = Next()) {
    const bool is_large = job->num_bytes > kLargeBytes;
    job->read(*job->body);
    job->body = nullptr;
    job->read = nullptr;
    // What `use` holds belongs to the server's thread, also its end.
    server_->Post([use = std::move(job->use), has_left = std::move(job->has_left)] {
      if (!*has_left) use();
    });
    if (is_large) GiveFreeHeapBack();
  }
}

}  // namespace quire
