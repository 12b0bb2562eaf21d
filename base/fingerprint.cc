// SPDX-License-Identifier: Apache-2.0

#include "base/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

static_assert(std::endian::native == std::endian::little, "weights are little-endian in the file and in memory");

namespace quire {
namespace {

constexpr size_t kWord = sizeof(uint64_t);
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd.

// Multiplies to 128 bits and combines the two halves, so that flipping one bit of `word` changes about half of the
// result.
uint64_t Absorb(uint64_t lane, uint64_t word) {
  const unsigned __int128 product = static_cast<unsigned __int128>(lane ^ word) * kMultiplier;
  return (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + word;
}

// The finalizer of splitmix64: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

void Fingerprint::Add(std::string_view bytes) {
  lanes_[0] = Absorb(lanes_[0], bytes.size());
  constexpr size_t kStride = kLanes * kWord;
  size_t position = 0;
  for (; position + kStride <= bytes.size(); position += kStride) {
    uint64_t words[kLanes];
    std::memcpy(words, bytes.data() + position, kStride);
    for (int lane = 0; lane < kLanes; ++lane) lanes_[lane] = Absorb(lanes_[lane], words[lane]);
  }
  for (int lane = 0; position < bytes.size(); ++lane, position += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + position, std::min(kWord, bytes.size() - position));
    lanes_[lane] = Absorb(lanes_[lane], word);
  }
}

std::pair<uint64_t, uint64_t> Fingerprint::Halves() const {
  uint64_t high = 0;
  uint64_t low = 1;
  for (const uint64_t lane : lanes_) {
    high = Mix(high + lane);
    low = Mix(low ^ high ^ std::rotl(lane, 32));
  }
  return {high, low};
}

std::string Fingerprint::Hex() const {
  const auto [high, low] = Halves();
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

void TensorDigests::Add(const std::string& name, std::string_view description, std::string_view bytes) {
  std::string& digest = digests_[name];
  if (!digest.empty()) return;
  Fingerprint tensor;
  tensor.Add(description);
  tensor.Add(bytes);
  digest = tensor.Hex();
}

absl::Status TensorDigests::Join(const TensorDigests& other) {
  if (other.text_ != text_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the models of two ranks differ: one is \"", text_, "\", the other \"", other.text_, "\""));
  }
  for (const auto& [name, digest] : other.digests_) {
    const auto own = digests_.find(name);
    if (own == digests_.end() || own->second.empty() || digest.empty() || own->second == digest) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " differs between two ranks: one has the digest ",
                                                   own->second, ", the other ", digest));
  }
  for (const auto& [name, digest] : other.digests_) {
    std::string& own = digests_[name];
    if (own.empty()) own = digest;
  }
  return absl::OkStatus();
}

std::string TensorDigests::fingerprint() const {
  Fingerprint whole;
  whole.Add(text_);
  for (const auto& [name, digest] : digests_) {
    if (digest.empty()) return "";
    whole.Add(name);
    whole.Add(digest);
  }
  return whole.Hex();
}

}  // namespace quire
