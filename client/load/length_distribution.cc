// SPDX-License-Identifier: Apache-2.0

#include "client/load/length_distribution.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

constexpr int kMaxTokens = 1 << 24;

bool ParseTokens(absl::string_view text, int* tokens) {
  return absl::SimpleAtoi(text, tokens) && *tokens >= 1 && *tokens <= kMaxTokens;
}

bool ParseRange(absl::string_view text, LengthDistribution* lengths) {
  const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits("..", 1));
  return ParseTokens(ends.first, &lengths->least) && ParseTokens(ends.second, &lengths->most) &&
         lengths->least <= lengths->most;
}

bool ParseLogNormal(absl::string_view text, LengthDistribution* lengths) {
  lengths->kind = LengthDistribution::Kind::kLogNormal;
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, ',');
  if (numbers.size() > 2 || !absl::SimpleAtod(numbers[0], &lengths->mean)) return false;
  if (numbers.size() == 2 && !absl::SimpleAtod(numbers[1], &lengths->sigma)) return false;
  return lengths->mean >= 1 && lengths->mean <= kMaxTokens && lengths->sigma >= 0 && lengths->sigma <= 10;
}

bool Parse(absl::string_view text, LengthDistribution* lengths) {
  if (absl::ConsumePrefix(&text, "lognormal:")) return ParseLogNormal(text, lengths);
  if (absl::ConsumePrefix(&text, "uniform:") || text.find("..") != text.npos) return ParseRange(text, lengths);
  absl::ConsumePrefix(&text, "fixed:");
  const bool is_valid = ParseTokens(text, &lengths->least);
  lengths->most = lengths->least;
  return is_valid;
}

}  // namespace

int LengthDistribution::Draw(BenchRandom* random) const {
  if (kind == Kind::kUniform) return least + static_cast<int>(random->Next() % static_cast<uint64_t>(most - least + 1));
  const double tokens = std::exp(std::log(mean) - sigma * sigma / 2 + sigma * random->Normal());
  return static_cast<int>(std::lround(std::clamp(tokens, 1.0, static_cast<double>(kMaxTokens))));
}

absl::StatusOr<LengthDistribution> ParseLengths(absl::string_view text) {
  LengthDistribution lengths;
  if (Parse(text, &lengths)) return lengths;
  return absl::InvalidArgumentError(absl::StrCat("is \"", text,
                                                 "\", expected 128, 32..512 or lognormal:128 (mean) with 1 .. ",
                                                 kMaxTokens, " tokens, the smaller number first"));
}

}  // namespace quire
