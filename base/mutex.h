// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_MUTEX_H_
#define QUIRE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

// Clang checks these annotations (-Wthread-safety): a field that is guarded by a mutex is read and written only while
// the mutex is held. Other compilers ignore them. See https://clang.llvm.org/docs/ThreadSafetyAnalysis.html.
#if defined(__clang__)
#define QUIRE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define QUIRE_THREAD_ANNOTATION(x)
#endif
// The field may be used only while `mutex` is held.
#define QUIRE_GUARDED_BY(mutex) QUIRE_THREAD_ANNOTATION(guarded_by(mutex))
// The function may be called only while the mutex is held.
#define QUIRE_REQUIRES(...) QUIRE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// The function takes the mutex itself, so the caller must not hold it.
#define QUIRE_EXCLUDES(...) QUIRE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace quire {

// A std::mutex that clang's thread-safety analysis understands. ThreadSanitizer understands it too, which is not true
// of absl::Mutex in the versions that Debian ships.
class QUIRE_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void Lock() QUIRE_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() QUIRE_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;

  std::mutex mutex_;
};

// Holds the mutex from its construction to its destruction.
class QUIRE_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) QUIRE_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() QUIRE_THREAD_ANNOTATION(release_capability()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A condition variable for Mutex. A waiting thread may wake up without a notification, so callers wait in a loop:
//   MutexLock lock(&mutex_);
//   while (!is_done_) changed_.Wait(&mutex_);
class CondVar {
 public:
  // Releases `mutex`, waits for a notification, and takes `mutex` again.
  void Wait(Mutex* mutex) QUIRE_REQUIRES(mutex) {
    std::unique_lock lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // The same, but waits no longer than `timeout`. Returns false when the time was up.
  template <typename Rep, typename Period>
  bool WaitFor(Mutex* mutex, std::chrono::duration<Rep, Period> timeout) QUIRE_REQUIRES(mutex) {
    std::unique_lock lock(mutex->mutex_, std::adopt_lock);
    const bool was_notified = condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return was_notified;
  }
  // The same, but waits no longer than until `deadline`. Returns false when the time was up.
  template <typename Clock, typename Duration>
  bool WaitUntil(Mutex* mutex, std::chrono::time_point<Clock, Duration> deadline) QUIRE_REQUIRES(mutex) {
    std::unique_lock lock(mutex->mutex_, std::adopt_lock);
    const bool was_notified = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return was_notified;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace quire

#endif  // QUIRE_BASE_MUTEX_H_
