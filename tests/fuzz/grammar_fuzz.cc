// SPDX-License-Identifier: Apache-2.0

// The first byte of an input chooses the kind of the source; the rest is the source. Every source gives a grammar or an
// error, within the limits. A text of the grammar is drawn token by token.

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "grammar/token_masks.h"
#include "tests/fuzz/guided_walk.h"
#include "tests/fuzz/source_mutator.h"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/random.h"

namespace quire::grammar {
namespace {

constexpr int kMaxDraws = 12;
// Compilation is bounded by numbers of steps. They take a part of this time, also under sanitizers.
constexpr double kMaxSeconds = 5;

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Source::Kind KindOf(uint8_t first) {
  static constexpr Source::Kind kKinds[] = {Source::Kind::kJsonSchema, Source::Kind::kRegex, Source::Kind::kEbnf,
                                            Source::Kind::kChoice};
  return kKinds[first % 4];
}

Source SourceOf(Source::Kind kind, std::string_view text) {
  if (kind != Source::Kind::kChoice) return {.kind = kind, .text = std::string(text)};
  return {.kind = kind, .choices = absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')};
}

// The draws depend on the whole input, by FNV-1a.
uint64_t HashOf(const uint8_t* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3;
  return hash;
}

void Draw(const std::shared_ptr<const Automaton>& automaton, TokenMasks* masks, Random* random) {
  TokenMasks::Preparation preparation;
  if (random->OneIn(8)) masks->Prepare(automaton, TokenMasks::kMaxPreparedWork, &preparation);
  GuidedWalk walk(automaton, masks);
  for (int i = random->Between(1, kMaxDraws); i > 0; --i) {
    walk.Try(random->Below(masks->tokens().vocab_size()), /*is_exact=*/false);
    if (!walk.Accept(random->Next())) return;
  }
  walk.Replay();
}

}  // namespace
}  // namespace quire::grammar

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  using namespace quire::grammar;  // NOLINT
  quire::Random random(seed);
  if (size == 0 || random.OneIn(10)) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  text = ChangedSource(KindOf(data[0]), std::move(text), &random);
  text.resize(std::min(text.size(), max_size - 1));
  std::copy(text.begin(), text.end(), data + 1);
  return text.size() + 1;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::grammar;  // NOLINT
  static TokenMasks masks(TrialVocabulary(400, 1), /*max_bytes=*/1 << 20);
  if (size == 0) return 0;
  const double start = ThreadSeconds();
  const auto automaton =
      Compile(SourceOf(KindOf(data[0]), std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1)));
  if (automaton.ok()) {
    quire::Random random(HashOf(data, size));
    Draw(*automaton, &masks, &random);
  } else {
    QUIRE_CHECK(automaton.status().code() == absl::StatusCode::kInvalidArgument) << automaton.status();
    QUIRE_CHECK(!automaton.status().message().empty());
  }
  QUIRE_CHECK_LT(ThreadSeconds() - start, kMaxSeconds);
  return 0;
}
