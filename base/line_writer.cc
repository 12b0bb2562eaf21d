// SPDX-License-Identifier: Apache-2.0

#include "base/line_writer.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

int64_t NumLines(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n');
}

// Returns the length of the first part of `lines` to write. A pipe that is ready takes PIPE_BUF bytes at once and
// without waiting, and no other writer can get between them. So a part ends at the end of a line, if there is one.
size_t LengthOfPart(std::string_view lines) {
  if (lines.size() <= PIPE_BUF) return lines.size();
  const size_t newline = lines.rfind('\n', PIPE_BUF - 1);
  return newline == std::string_view::npos ? PIPE_BUF : newline + 1;
}

int MakeEventFd() {
  const int fd = eventfd(0, EFD_CLOEXEC);
  QUIRE_CHECK_GE(fd, 0) << "cannot make an eventfd for the log";
  return fd;
}

}  // namespace

LineWriter::LineWriter(int fd, size_t max_bytes, std::function<std::string(int64_t)> note)
    : fd_(fd), stop_fd_(MakeEventFd()), max_bytes_(max_bytes), note_(std::move(note)), thread_([this] { Run(); }) {}

LineWriter::~LineWriter() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
    has_lines_.NotifyOne();
  }
  eventfd_write(stop_fd_, 1);
  thread_.join();
  close(stop_fd_);
}

void LineWriter::Write(std::string_view lines) {
  const MutexLock lock(&mutex_);
  if (num_refused_ > 0 || queue_.size() + lines.size() > max_bytes_) {
    num_refused_ += NumLines(lines);
    num_dropped_ += NumLines(lines);
    return;
  }
  Append(lines);
}

void LineWriter::WriteAlways(std::string_view line) {
  const MutexLock lock(&mutex_);
  Append(line);
}

void LineWriter::Append(std::string_view lines) {
  queue_.append(lines);
  num_queued_ += lines.size();
  has_lines_.NotifyOne();
}

bool LineWriter::Flush(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(&mutex_);
  const uint64_t end = num_queued_;
  while (num_done_ < end) {
    if (!done_.WaitUntil(&mutex_, deadline) && num_done_ < end) return false;
  }
  return true;
}

void LineWriter::Run() {
  int64_t num_unsaid = 0;  // Dropped lines for which no note has been written.
  std::string lines;
  while (true) {
    int64_t num_refused = 0;
    {
      const MutexLock lock(&mutex_);
      num_done_ += lines.size();
      done_.NotifyAll();
      while (queue_.empty() && !is_stopping_) has_lines_.Wait(&mutex_);
      if (is_stopping_) return;
      lines.clear();
      lines.swap(queue_);
      num_refused = std::exchange(num_refused_, 0);
    }
    const int64_t num_failed = WriteLines(lines);
    num_dropped_ += num_failed;
    num_unsaid += num_failed + num_refused;
    if (num_unsaid > 0 && WriteLines(note_(num_unsaid)) == 0) num_unsaid = 0;
  }
}

int64_t LineWriter::WriteLines(std::string_view lines) {
  int64_t num_failed = 0;
  while (!lines.empty()) {
    if (is_cut_ && WriteText("\n") == 1) is_cut_ = false;
    const size_t length = LengthOfPart(lines);
    const size_t num_written = is_cut_ ? 0 : WriteText(lines.substr(0, length));
    lines.remove_prefix(num_written);
    if (num_written == length) continue;
    // This line cannot be written. The next one may be shorter, or come after somebody has made room on the disk.
    const size_t newline = lines.find('\n');
    lines.remove_prefix(newline == std::string_view::npos ? lines.size() : newline + 1);
    ++num_failed;
    is_cut_ = !is_at_line_start_;
  }
  return num_failed;
}

size_t LineWriter::WriteText(std::string_view text) {
  size_t num_written = 0;
  while (num_written < text.size() && WaitForDescriptor()) {
    const ssize_t n = write(fd_, text.data() + num_written, text.size() - num_written);
    if (n > 0) {
      num_written += static_cast<size_t>(n);
      is_at_line_start_ = text[num_written - 1] == '\n';
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      break;
    }
  }
  return num_written;
}

bool LineWriter::WaitForDescriptor() const {
  pollfd fds[] = {{stop_fd_, POLLIN, 0}, {fd_, POLLOUT, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  return fds[0].revents == 0;
}

}  // namespace quire
