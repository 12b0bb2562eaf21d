// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CMAKE_ABSEIL_WITHOUT_SANITIZER_H_
#define QUIRE_CMAKE_ABSEIL_WITHOUT_SANITIZER_H_

// Abseil's headers look for the address sanitizer here, once.
#include "absl/base/config.h"

#undef ABSL_HAVE_ADDRESS_SANITIZER

#endif  // QUIRE_CMAKE_ABSEIL_WITHOUT_SANITIZER_H_
