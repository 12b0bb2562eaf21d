// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LINE_WRITER_H_
#define QUIRE_BASE_LINE_WRITER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"

namespace quire {

// Writes lines to a file descriptor on a thread of its own, so that nobody else waits for a reader that stalls or for a
// disk. Lines that find the queue full, or that cannot be written, are dropped and counted. Thread-safe.
class LineWriter {
 public:
  // `fd` is borrowed. At most `max_bytes` wait in the queue, while up to `max_bytes` more are being
  // written. When lines were dropped and the descriptor takes lines again, the text that `note`
  // returns for their number replaces them.
  LineWriter(int fd, size_t max_bytes, std::function<std::string(int64_t num_dropped)> note);

  // Lines that still wait are lost; call Flush first.
  ~LineWriter();

  // Queues one line or several, each with its newline. Never waits for the descriptor.
  void Write(std::string_view lines) QUIRE_EXCLUDES(mutex_);

  // Queues a line even when the queue is full. It is for the last line of a process.
  void WriteAlways(std::string_view line) QUIRE_EXCLUDES(mutex_);

  // Waits until everything that was queued before has been written or dropped. Returns false when the time was up.
  bool Flush(std::chrono::milliseconds timeout) QUIRE_EXCLUDES(mutex_);

  // Everything that was queued has been written or dropped. A signal handler may call it.
  bool IsIdle() const { return num_done_ >= num_queued_; }

  // The number of lines that were dropped.
  int64_t num_dropped() const { return num_dropped_; }

 private:
  void Run() QUIRE_EXCLUDES(mutex_);
  void Append(std::string_view lines) QUIRE_REQUIRES(mutex_);
  // Writes all lines and returns how many of them were dropped.
  int64_t WriteLines(std::string_view lines);
  // Writes `text`, and waits for the descriptor before each write. Returns how many bytes were written.
  size_t WriteText(std::string_view text);
  // Waits until the descriptor takes bytes or fails, or until the destruction begins. Returns false if the destruction
  // has begun.
  bool WaitForDescriptor() const;

  const int fd_;
  const int stop_fd_;  // An eventfd, which is readable from the beginning of the destruction.
  const size_t max_bytes_;
  const std::function<std::string(int64_t)> note_;
  std::atomic<int64_t> num_dropped_{0};
  // Bytes since the start. They are atomic for signal handlers, and change only while mutex_ is held.
  std::atomic<uint64_t> num_queued_{0};
  std::atomic<uint64_t> num_done_{0};
  // Used by the thread only.
  bool is_at_line_start_ = true;  // The last byte that was written is a newline.
  bool is_cut_ = false;           // The end of the last line could not be written, so the next line needs a newline.
  Mutex mutex_;
  CondVar has_lines_;
  CondVar done_;
  std::string queue_ QUIRE_GUARDED_BY(mutex_);
  // The lines that were dropped since the thread took the queue. While there are any, all further lines are dropped, so
  // that the note stands where the lines are missing.
  int64_t num_refused_ QUIRE_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_BASE_LINE_WRITER_H_
