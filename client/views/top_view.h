// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_VIEWS_TOP_VIEW_H_
#define QUIRE_CLIENT_VIEWS_TOP_VIEW_H_

#include <optional>
#include <string>

#include "client/terminal/terminal.h"
#include "quire/v1/admin.pb.h"

namespace quire {

// The quantile in seconds of the latencies between two looks, linear within a bucket. A quantile beyond the last bound
// is that bound. Returns nothing when nothing was observed.
std::optional<double> Quantile(const v1::LatencyHistogram& before, const v1::LatencyHistogram& now, double quantile);

// Draws a frame of `quirectl top`: the rates and latencies between `before` and `now`, which are `seconds` apart, and
// the workers with their blocks as bars. REQUIRES: seconds > 0.
std::string DrawTop(const v1::GetStatusResponse& before, const v1::GetStatusResponse& now, double seconds,
                    const Terminal& terminal);

}  // namespace quire

#endif  // QUIRE_CLIENT_VIEWS_TOP_VIEW_H_
