// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_LENGTH_DISTRIBUTION_H_
#define QUIRE_CLIENT_LOAD_LENGTH_DISTRIBUTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/load/random.h"

namespace quire {

// The distribution of the lengths of prompts or outputs, in tokens.
struct LengthDistribution {
  enum class Kind { kUniform, kLogNormal };

  Kind kind = Kind::kUniform;
  int least = 1;       // Smallest length of a uniform distribution.
  int most = 1;        // Largest length; equal to `least` for a fixed length.
  double mean = 1;     // Mean of a log-normal distribution.
  double sigma = 0.8;  // Standard deviation of its logarithm; 0.8 is typical of chats.

  // Returns a length of at least 1.
  int Draw(BenchRandom* random) const;
};

// "128" or "fixed:128", "32..512" or "uniform:32..512", "lognormal:128" or "lognormal:128,0.5" (mean, sigma).
// INVALID_ARGUMENT says what is wrong.
absl::StatusOr<LengthDistribution> ParseLengths(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_LENGTH_DISTRIBUTION_H_
