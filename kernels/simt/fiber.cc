// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

// The stack switch takes a dozen instructions on the architectures below. Elsewhere it uses ucontext.
#if !defined(QUIRE_FIBER_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define QUIRE_FIBER_UCONTEXT
#endif
#if defined(QUIRE_FIBER_UCONTEXT)
#include <ucontext.h>
#endif

#if defined(QUIRE_ADDRESS_SANITIZER) || defined(__SANITIZE_ADDRESS__)
#define QUIRE_FIBER_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUIRE_FIBER_ASAN
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define QUIRE_FIBER_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUIRE_FIBER_TSAN
#endif
#endif

#if defined(QUIRE_FIBER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(QUIRE_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(QUIRE_FIBER_UCONTEXT)
// Saves the registers that a call preserves on the current stack, stores the stack pointer to *save, and continues
// where the stack `load` was suspended.
extern "C" void quire_simt_switch_stack(void** save, void* load);

#if defined(__x86_64__)
asm(R"(
.text
.globl quire_simt_switch_stack
.type quire_simt_switch_stack, @function
quire_simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size quire_simt_switch_stack, .-quire_simt_switch_stack
)");
#else
asm(R"(
.text
.globl quire_simt_switch_stack
.type quire_simt_switch_stack, %function
quire_simt_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size quire_simt_switch_stack, .-quire_simt_switch_stack
)");
#endif
#endif

#if defined(QUIRE_FIBER_ASAN)
// The sanitizer of GCC 13 and later gives every stack a second one of several MiB, in which it looks for the use of
// variables after their function has returned. That is too much for the hundreds of fibers of each launch.
extern "C" const char* __asan_default_options() {
  return "detect_stack_use_after_return=0";
}
#endif

namespace quire::simt {
namespace {

constexpr size_t kGuardBytes = 64 * 1024;  // A multiple of any page size.
constexpr size_t kStackBytes = 192 * 1024;

// A new fiber starts in a function without arguments, which finds its set here.
thread_local FiberSet* starting = nullptr;

#if !defined(QUIRE_FIBER_UCONTEXT)
// Makes a stack that looks as if it had been suspended at the first instruction of `function`.
void* FreshStack(char* top, void (*function)()) {
  uint64_t* sp = reinterpret_cast<uint64_t*>(top);
#if defined(__x86_64__)
  *--sp = 0;  // The return address of `function`, which never returns.
  *--sp = reinterpret_cast<uint64_t>(function);
  for (int i = 0; i < 6; ++i) *--sp = 0;
#else
  sp -= 20;
  for (int i = 0; i < 20; ++i) sp[i] = 0;
  sp[11] = reinterpret_cast<uint64_t>(function);  // x30
#endif
  return sp;
}
#endif

}  // namespace

struct FiberSet::Context {
#if defined(QUIRE_FIBER_UCONTEXT)
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
#if defined(QUIRE_FIBER_ASAN)
  void* fake_stack = nullptr;
#endif
#if defined(QUIRE_FIBER_TSAN)
  void* tsan_fiber = nullptr;
#endif

  // Prepares a new fiber, which will start in `function`.
  void Prepare(char* stack, void (*function)()) {
    stack_bottom = stack;
    stack_bytes = kStackBytes;
#if defined(QUIRE_FIBER_UCONTEXT)
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, function, 0);
#else
    stack_pointer = FreshStack(stack + kStackBytes, function);
#endif
#if defined(QUIRE_FIBER_TSAN)
    tsan_fiber = __tsan_create_fiber(0);
#endif
  }

  void SwitchTo(Context* next) {
#if defined(QUIRE_FIBER_ASAN)
    __sanitizer_start_switch_fiber(&fake_stack, next->stack_bottom, next->stack_bytes);
#endif
#if defined(QUIRE_FIBER_TSAN)
    __tsan_switch_to_fiber(next->tsan_fiber, 0);
#endif
#if defined(QUIRE_FIBER_UCONTEXT)
    swapcontext(&context, &next->context);
#else
    quire_simt_switch_stack(&stack_pointer, next->stack_pointer);
#endif
  }

  // Must be called first after a switch to this context. `from` is told where its stack lies.
  void Arrived([[maybe_unused]] Context* from) {
#if defined(QUIRE_FIBER_ASAN)
    const void* bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    from->stack_bottom = bottom;
    from->stack_bytes = bytes;
#endif
  }
};

// One mapping with a guard page below every stack. A thread keeps the last mapping that was returned, because mapping
// and protecting hundreds of stacks takes longer than most launches.
class FiberSet::Stacks {
 public:
  // Returns at least `count` stacks.
  static std::unique_ptr<Stacks> Take(int count) {
    if (kept != nullptr && kept->count_ >= count) return std::move(kept);
    return std::make_unique<Stacks>(count);
  }
  static void GiveBack(std::unique_ptr<Stacks> stacks) {
#if defined(QUIRE_FIBER_ASAN)
    // Frames that were abandoned before their end have left poisoned memory.
    __asan_unpoison_memory_region(stacks->mapping_, stacks->count_ * kStrideBytes);
#endif
    if (kept == nullptr || kept->count_ < stacks->count_) kept = std::move(stacks);
  }

  explicit Stacks(int count) : count_(count) {
    void* const mapping =
        mmap(nullptr, count * kStrideBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
      std::perror("mmap of the stacks of fibers");
      std::abort();
    }
    mapping_ = static_cast<char*>(mapping);
    for (int i = 0; i < count; ++i) mprotect(mapping_ + i * kStrideBytes, kGuardBytes, PROT_NONE);
  }
  ~Stacks() {
    munmap(mapping_, count_ * kStrideBytes);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  char* stack(int i) const {
    return mapping_ + i * kStrideBytes + kGuardBytes;
  }

 private:
  static constexpr size_t kStrideBytes = kGuardBytes + kStackBytes;
  static thread_local std::unique_ptr<Stacks> kept;

  const int count_;
  char* mapping_;
};

thread_local std::unique_ptr<FiberSet::Stacks> FiberSet::Stacks::kept;

FiberSet::FiberSet(int count, void (*entry)(void*), void* argument)
    : entry_(entry), argument_(argument), stacks_(Stacks::Take(count)), scheduler_(std::make_unique<Context>()) {
#if defined(QUIRE_FIBER_TSAN)
  scheduler_->tsan_fiber = __tsan_get_current_fiber();
#endif
  for (int i = 0; i < count; ++i) {
    auto fiber = std::make_unique<Context>();
    fiber->Prepare(stacks_->stack(i), &FiberSet::Trampoline);
    fibers_.push_back(std::move(fiber));
  }
}

FiberSet::~FiberSet() {
#if defined(QUIRE_FIBER_TSAN)
  for (const auto& fiber : fibers_) __tsan_destroy_fiber(fiber->tsan_fiber);
#endif
  Stacks::GiveBack(std::move(stacks_));
}

void FiberSet::Resume(int fiber) {
  current_ = fibers_[fiber].get();
  starting = this;
  scheduler_->SwitchTo(current_);
  scheduler_->Arrived(current_);
}

void FiberSet::Suspend() {
  Context* const self = current_;
  self->SwitchTo(scheduler_.get());
  self->Arrived(scheduler_.get());
}

void FiberSet::Trampoline() {
  FiberSet* const set = starting;
  set->current_->Arrived(set->scheduler_.get());
  set->entry_(set->argument_);
  std::abort();
}

}  // namespace quire::simt
