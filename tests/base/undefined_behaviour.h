// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_BASE_UNDEFINED_BEHAVIOUR_H_
#define QUIRE_TESTS_BASE_UNDEFINED_BEHAVIOUR_H_

#include <cstddef>

// Code whose behaviour is undefined for some arguments. UndefinedBehaviorSanitizer must find it.
namespace quire {

// Undefined if the sum is not an int.
int Add(int a, int b);

// Undefined if the address is beyond the end of the address space.
const char* AddressBehind(const char* start, size_t distance);

}  // namespace quire

#endif  // QUIRE_TESTS_BASE_UNDEFINED_BEHAVIOUR_H_
