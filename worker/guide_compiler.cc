// SPDX-License-Identifier: Apache-2.0

#include "worker/guide_compiler.h"

#include <algorithm>

#include "base/thread_priority.h"
#include "grammar/equal_states.h"

namespace quire {
namespace {

// Number of waiting jobs beyond which unwanted ones are searched for.
constexpr size_t kManyJobs = 64;

CompiledGuide Compile(const GuideJob& job) {
  absl::StatusOr<std::shared_ptr<const grammar::Automaton>> automaton = grammar::Compile(job.source, job.owner);
  if (!automaton.ok()) return {job.key, job.max_token_bytes, automaton.status()};
  return {job.key, job.max_token_bytes, grammar::Matcher(*automaton),
          grammar::FindAllEqualStates(**automaton, job.max_token_bytes)};
}

}  // namespace

GuideCompiler::GuideCompiler() : thread_([this] { Run(); }) {}

GuideCompiler::~GuideCompiler() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  added_.NotifyOne();
  thread_.join();
}

void GuideCompiler::Add(GuideJob job) {
  const MutexLock lock(&mutex_);
  if (num_waiting_ >= kManyJobs) DropUnwanted();
  std::deque<GuideJob>& jobs = by_owner_[job.owner];
  if (jobs.empty()) turns_.push_back(job.owner);
  jobs.push_back(std::move(job));
  ++num_waiting_;
  added_.NotifyOne();
}

std::vector<CompiledGuide> GuideCompiler::Take(std::chrono::microseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(&mutex_);
  while (timeout.count() > 0 && done_.empty() && compiled_.WaitUntil(&mutex_, end)) {
  }
  return std::exchange(done_, {});
}

size_t GuideCompiler::num_waiting() {
  const MutexLock lock(&mutex_);
  DropUnwanted();
  return num_waiting_;
}

void GuideCompiler::Run() {
  LowerPriorityOfThread();
  mutex_.Lock();
  while (!is_stopping_) {
    const std::optional<GuideJob> job = Next();
    if (!job.has_value()) {
      added_.Wait(&mutex_);
      continue;
    }
    if (job->user.expired()) continue;
    mutex_.Unlock();
    CompiledGuide compiled = Compile(*job);
    mutex_.Lock();
    done_.push_back(std::move(compiled));
    compiled_.NotifyOne();
  }
  mutex_.Unlock();
}

std::optional<GuideJob> GuideCompiler::Next() {
  if (turns_.empty()) return std::nullopt;
  const std::string owner = std::move(turns_.front());
  turns_.pop_front();
  const auto jobs = by_owner_.find(owner);
  GuideJob job = std::move(jobs->second.front());
  jobs->second.pop_front();
  --num_waiting_;
  if (jobs->second.empty()) {
    by_owner_.erase(jobs);
  } else {
    turns_.push_back(owner);
  }
  return job;
}

void GuideCompiler::DropUnwanted() {
  for (auto jobs = by_owner_.begin(); jobs != by_owner_.end();) {
    num_waiting_ -= std::erase_if(jobs->second, [](const GuideJob& job) { return job.user.expired(); });
    jobs = jobs->second.empty() ? by_owner_.erase(jobs) : std::next(jobs);
  }
  // The analysis of locks does not see that the lambda runs under the mutex, and does not follow a pointer.
  std::erase_if(turns_, [jobs = &by_owner_](const std::string& owner) { return !jobs->contains(owner); });
}

}  // namespace quire
