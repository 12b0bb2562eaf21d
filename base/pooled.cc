// SPDX-License-Identifier: Apache-2.0

#include "base/pooled.h"

#include <memory_resource>

namespace quire {
namespace {

std::pmr::memory_resource* Memory() {
#if defined(QUIRE_ADDRESS_SANITIZER)
  return std::pmr::new_delete_resource();
#else
  // It is never destroyed, because objects may outlive main.
  static auto* const pool = new std::pmr::synchronized_pool_resource();
  return pool;
#endif
}

}  // namespace

void* Pooled::operator new(size_t size) {
  return Memory()->allocate(size);
}

void Pooled::operator delete(void* object, size_t size) {
  Memory()->deallocate(object, size);
}

}  // namespace quire
