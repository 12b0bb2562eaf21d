// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LIMIT_TEXT_H_
#define QUIRE_BASE_LIMIT_TEXT_H_

#include <string>

namespace quire {

// Returns a limit as errors show it to a person: "1000000" and not "1e+06", and "the largest float32 number (about
// 3.4e38)" and not "3.40282e+38". Fractions have at most 9 digits.
std::string LimitText(double limit);

}  // namespace quire

#endif  // QUIRE_BASE_LIMIT_TEXT_H_
