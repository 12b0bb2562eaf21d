// SPDX-License-Identifier: Apache-2.0

// Code whose behaviour is undefined for some arguments. UndefinedBehaviorSanitizer must find it.

#pragma once

#include <cstddef>

namespace quire {

// Undefined if the sum is not an int.
int Add(int a, int b);

// Undefined if the address is beyond the end of the address space.
const char* AddressBehind(const char* start, size_t distance);

}  // namespace quire
