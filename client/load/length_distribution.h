#ifndef QUIRE_CLIENT_LOAD_LENGTH_DISTRIBUTION_H_
#define QUIRE_CLIENT_LOAD_LENGTH_DISTRIBUTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/load/random.h"

namespace quire {

// How many tokens a prompt or an output has.
struct LengthDistribution {
  enum class Kind { kUniform, kLogNormal };

  Kind kind = Kind::kUniform;
  int least = 1;       // Of a uniform one, both included; equal for a fixed length.
  int most = 1;        // Likewise.
  double mean = 1;     // Of a log-normal one.
  double sigma = 0.8;  // Of its logarithm; 0.8 is the spread of chats.

  // At least 1.
  int Draw(BenchRandom* random) const;
};

// "128" or "fixed:128", "32..512" or "uniform:32..512", "lognormal:128" or "lognormal:128,0.5" (mean, sigma).
// INVALID_ARGUMENT says what is wrong.
absl::StatusOr<LengthDistribution> ParseLengths(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_LENGTH_DISTRIBUTION_H_
