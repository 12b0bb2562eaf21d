#ifndef QUIRE_KERNELS_SIMT_FIBER_H_
#define QUIRE_KERNELS_SIMT_FIBER_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace quire::simt {

// Functions that take turns on one OS thread, each on a stack of its own. One of them runs at a time: the scheduler
// resumes a fiber, the fiber runs until it suspends itself. The address and thread sanitizers are told of every switch.
// Owned by one thread.
class FiberSet {
 public:
  // Every fiber runs entry(argument) from its first Resume() on. `entry` never returns: it suspends for good.
  FiberSet(int count, void (*entry)(void*), void* argument);
  // Frees the stacks of fibers that are in the middle of something without unwinding them.
  ~FiberSet();
  FiberSet(const FiberSet&) = delete;
  FiberSet& operator=(const FiberSet&) = delete;

  // From the scheduler: runs a fiber until it suspends.
  void Resume(int fiber);
  // From the running fiber: back to the scheduler.
  void Suspend();

 private:
  struct Context;
  class Stacks;

  static void Trampoline();

  void (*entry_)(void*);
  void* argument_;
  std::unique_ptr<Stacks> stacks_;
  std::vector<std::unique_ptr<Context>> fibers_;
  std::unique_ptr<Context> scheduler_;
  Context* current_ = nullptr;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_FIBER_H_
