// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_POOLED_H_
#define QUIRE_BASE_POOLED_H_

#include <cstddef>

namespace quire {

// A base class whose objects are allocated from a pool of their own, so that they lie close together in memory.
// Otherwise thousands of small objects that one loop visits could lie on a page each, and each visit would cost a walk
// through the page table. Thread-safe. Under AddressSanitizer the objects are allocated one by one, so that it can
// check them.
class Pooled {
 public:
  static void* operator new(size_t size);
  static void operator delete(void* object, size_t size);

 protected:
  ~Pooled() = default;
};

}  // namespace quire

#endif  // QUIRE_BASE_POOLED_H_
