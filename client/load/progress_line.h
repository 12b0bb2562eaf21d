// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_PROGRESS_LINE_H_
#define QUIRE_CLIENT_LOAD_PROGRESS_LINE_H_

#include <cstdint>
#include <string>

#include "client/load/load_generator.h"

namespace quire {

// When a load is done. 0 means no such limit.
struct LoadGoal {
  int64_t num_requests = 0;
  double duration_s = 0;
};

// "420 of 1000 requests, 12 in flight, 3 failed, 1234 tokens/s, 21 s". `before` is the progress that the last line
// showed. The tokens per second are counted since then.
std::string DescribeProgress(const LoadTestProgress& before, const LoadTestProgress& now, const LoadGoal& goal);

// The same line with a bar in front, "[#####-----]  50 % ". It has at most `columns` columns.
std::string DrawProgress(const LoadTestProgress& before, const LoadTestProgress& now, const LoadGoal& goal,
                         int columns);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_PROGRESS_LINE_H_
