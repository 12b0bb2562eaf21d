// SPDX-License-Identifier: Apache-2.0

// Each byte of an input is one act in the life of a guided row: a token is accepted, a row forks, is swapped with its
// fork, restarts from its tokens, or another row begins, with the same grammar or another one. The grammars are fixed
// and are compiled once; they share the masks, whose memory is small, so that they are often recomputed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/token_masks.h"
#include "tests/fuzz/guided_walk.h"
#include "tests/grammar/trial_sources.h"
#include "tests/grammar/trial_vocabulary.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxActs = 64;
constexpr size_t kMaxRows = 4;
constexpr int kMaxReplays = 2;

std::vector<std::shared_ptr<const Automaton>> Automata() {
  std::vector<std::shared_ptr<const Automaton>> automata;
  for (const Source& source : TrialSources()) {
    auto automaton = Compile(source);
    QUIRE_CHECK(automaton.ok()) << automaton.status();
    automata.push_back(*std::move(automaton));
  }
  return automata;
}

void Act(const uint8_t* data, size_t size) {
  static const auto* const automata = new std::vector<std::shared_ptr<const Automaton>>(Automata());
  static TokenMasks masks(TrialVocabulary(400, 1), /*max_bytes=*/128 << 10);
  std::vector<GuidedWalk> rows;
  uint64_t number = 0;
  int num_replays = 0;
  const auto begin = [&] { rows.emplace_back((*automata)[number / 8 % automata->size()], &masks); };
  for (size_t i = 0; i < size && i < kMaxActs; ++i) {
    number = number * 0x100000001b3 + data[i];
    if (rows.empty()) {
      begin();
      continue;
    }
    GuidedWalk& row = rows.back();
    switch (data[i] % 8) {
      case 0: {
        GuidedWalk fork = row;
        if (rows.size() < kMaxRows) rows.push_back(std::move(fork));
        break;
      }
      case 1:
        std::swap(rows.front(), rows.back());
        break;
      case 2:
        row.Try(static_cast<TokenId>(number / 8 % static_cast<uint64_t>(masks.tokens().vocab_size())),
                /*is_exact=*/true);
        break;
      case 3:
        if (++num_replays <= kMaxReplays) row.Replay();
        break;
      case 4:
        if (rows.size() == kMaxRows || row.has_ended()) rows.pop_back();
        begin();
        break;
      case 5:
        row.AcceptOneOf("\"[]{}:,<>'", number / 8);
        break;
      default:
        row.Accept(number / 8);
    }
  }
}

}  // namespace
}  // namespace quire::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::grammar::Act(data, size);
  return 0;
}
