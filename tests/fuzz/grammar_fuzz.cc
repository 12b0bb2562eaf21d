// The first byte of an input chooses the kind of the source and the draws; the rest is the source. Every source gives a
// grammar or an error, within the limits. Tokens that the masks of a grammar allow are accepted.

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/random.h"

namespace quire::grammar {
namespace {

constexpr int kMaxDraws = 24;
// Compilation is bounded by numbers of steps. They take a part of this time, also under sanitizers.
constexpr double kMaxSeconds = 5;

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Source SourceOf(uint8_t kind, std::string_view text) {
  switch (kind % 4) {
    case 0:
      return {.kind = Source::Kind::kJsonSchema, .text = std::string(text)};
    case 1:
      return {.kind = Source::Kind::kRegex, .text = std::string(text)};
    case 2:
      return {.kind = Source::Kind::kEbnf, .text = std::string(text)};
    default:
      return {.kind = Source::Kind::kChoice,
              .choices = absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')};
  }
}

void Draw(const std::shared_ptr<const Automaton>& automaton, TokenMasks* masks, Random* random) {
  Matcher matcher(automaton);
  QUIRE_CHECK(!matcher.is_dead());
  std::vector<uint32_t> mask(masks->num_words());
  for (int i = 0; i < kMaxDraws; ++i) {
    masks->Fill(matcher, absl::MakeSpan(mask));
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < masks->tokens().vocab_size(); ++token) {
      if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0 && !masks->tokens().is_end(token)) {
        allowed.push_back(token);
      }
    }
    // The vocabulary has all bytes, so a text that may continue has a next token.
    QUIRE_CHECK_EQ(allowed.empty(), !matcher.MayContinue());
    if (allowed.empty()) return;
    const TokenId token = allowed[static_cast<size_t>(random->Below(static_cast<int>(allowed.size())))];
    // Only a rule that is nested too deeply, or a grammar with too many ways to read a text, may end here.
    if (!matcher.Accept(masks->tokens().bytes(token))) return;
  }
}

}  // namespace
}  // namespace quire::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::grammar;  // NOLINT
  static TokenMasks masks(TrialVocabulary(400, 1), /*max_bytes=*/1 << 20);
  if (size == 0) return 0;
  const double start = ThreadSeconds();
  const auto automaton =
      Compile(SourceOf(data[0], std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1)));
  if (automaton.ok()) {
    quire::Random random(data[0]);
    Draw(*automaton, &masks, &random);
  } else {
    QUIRE_CHECK(automaton.status().code() == absl::StatusCode::kInvalidArgument) << automaton.status();
    QUIRE_CHECK(!automaton.status().message().empty());
  }
  QUIRE_CHECK_LT(ThreadSeconds() - start, kMaxSeconds);
  return 0;
}
