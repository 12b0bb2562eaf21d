// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_GUIDE_COMPILER_H_
#define QUIRE_WORKER_GUIDE_COMPILER_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"

namespace quire {

// A guide that is to be compiled.
struct GuideJob {
  std::string key;         // Equal guides of the same owner have equal keys.
  std::string owner = {};  // Owners take turns.
  grammar::Source source = {};
  int max_token_bytes = 0;        // The length of the longest token.
  std::weak_ptr<void> user = {};  // The job is dropped when nobody wants it any more.
};

struct CompiledGuide {
  std::string key;
  int max_token_bytes = 0;
  absl::StatusOr<grammar::Matcher> begin;                        // Before the first token.
  std::vector<std::vector<grammar::StateId>> equal_states = {};  // As FindAllEqualStates.
};

// Compiles guides on a thread of its own, so that no step waits for that. The thread has a low priority, because a step
// that shares its core would be late. Thread-safe.
class GuideCompiler {
 public:
  // The thread runs on all cores that the calling thread may use.
  GuideCompiler();
  // Waits until the guide that is being compiled is done. Waiting ones are dropped.
  ~GuideCompiler();
  GuideCompiler(const GuideCompiler&) = delete;
  GuideCompiler& operator=(const GuideCompiler&) = delete;

  void Add(GuideJob job);
  // Returns what was compiled since the last call. It waits for that as long as nothing was and the time is not up.
  std::vector<CompiledGuide> Take(std::chrono::microseconds timeout = std::chrono::microseconds(0));
  // The number of waiting jobs that somebody still wants.
  size_t num_waiting();

 private:
  void Run();
  // Returns nothing when no job waits.
  std::optional<GuideJob> Next() QUIRE_REQUIRES(mutex_);
  void DropUnwanted() QUIRE_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar added_;
  CondVar compiled_;
  std::map<std::string, std::deque<GuideJob>> by_owner_ QUIRE_GUARDED_BY(mutex_);  // None of them is empty.
  std::deque<std::string> turns_ QUIRE_GUARDED_BY(mutex_);                         // Each owner with jobs once.
  size_t num_waiting_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::vector<CompiledGuide> done_ QUIRE_GUARDED_BY(mutex_);
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_GUIDE_COMPILER_H_
