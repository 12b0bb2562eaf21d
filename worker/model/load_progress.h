// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_LOAD_PROGRESS_H_
#define QUIRE_WORKER_MODEL_LOAD_PROGRESS_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace quire {

// How much of a model's weights has been read. It logs the beginning, the end and, while it takes long, a line about
// every tenth of the weights and about every ten seconds, when a tensor has been read. Thread-safe.
class LoadProgress {
 public:
  struct Snapshot {
    int64_t read_bytes = 0;
    int64_t total_bytes = 0;  // 0 until the files were opened.
    double seconds = 0;       // Counted from when the files were opened, at most until all was read.
    bool is_done = false;
  };

  // `clock` is borrowed.
  explicit LoadProgress(const Clock* clock = &SteadyClock()) : clock_(clock) {}

  // The files were opened. Loading `directory` means to read `total_bytes` from `num_files` files.
  void Begin(const std::string& directory, int num_files, int64_t total_bytes) QUIRE_EXCLUDES(mutex_);
  void Add(int64_t bytes) QUIRE_EXCLUDES(mutex_);
  void End() QUIRE_EXCLUDES(mutex_);

  Snapshot Get() const QUIRE_EXCLUDES(mutex_);

 private:
  Snapshot Current(int64_t now_us) const QUIRE_REQUIRES(mutex_);

  const Clock* const clock_;
  mutable Mutex mutex_;
  std::string directory_ QUIRE_GUARDED_BY(mutex_);
  Snapshot snapshot_ QUIRE_GUARDED_BY(mutex_);
  int64_t begin_us_ QUIRE_GUARDED_BY(mutex_) = 0;
  int64_t logged_us_ QUIRE_GUARDED_BY(mutex_) = 0;     // Time of the last line of the log.
  int64_t logged_bytes_ QUIRE_GUARDED_BY(mutex_) = 0;  // Bytes that were read by then.
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_LOAD_PROGRESS_H_
