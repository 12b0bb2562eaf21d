#ifndef QUIRE_BASE_POOLED_H_
#define QUIRE_BASE_POOLED_H_

#include <cstddef>

namespace quire {

// Objects of classes that derive from this lie close together in memory, whatever else is allocated between them.
// Thousands of small objects that one loop visits would otherwise lie on a page each, and every visit cost a walk
// through the page table. Thread-safe. Under AddressSanitizer they are ordinary objects, so that it sees them all.
class Pooled {
 public:
  static void* operator new(size_t size);
  static void operator delete(void* object, size_t size);

 protected:
  ~Pooled() = default;
};

}  // namespace quire

#endif  // QUIRE_BASE_POOLED_H_
