// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_FIBER_H_
#define QUIRE_KERNELS_SIMT_FIBER_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace quire::simt {

// Functions that take turns on one OS thread, each on its own stack. Only one runs at a time: the scheduler resumes a
// fiber, and the fiber runs until it suspends itself. The address and thread sanitizers are told of every switch. Owned
// by one thread.
class FiberSet {
 public:
  // Every fiber runs entry(argument) when it is first resumed. `entry` must not return; it ends by suspending itself.
  FiberSet(int count, void (*entry)(void*), void* argument);
  // Frees the stacks of suspended fibers without unwinding them.
  ~FiberSet();
  FiberSet(const FiberSet&) = delete;
  FiberSet& operator=(const FiberSet&) = delete;

  // Called by the scheduler: runs a fiber until it suspends.
  void Resume(int fiber);
  // Called by the running fiber: returns to the scheduler.
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
