// SPDX-License-Identifier: Apache-2.0

#include "grammar/state_runs.h"

#include <algorithm>
#include <bit>

#include "grammar/code_points.h"

namespace quire::grammar {
namespace {

const std::vector<ByteSequence>& SequencesBeyondAscii() {
  static const auto* const sequences = [] {
    auto* all = new std::vector<ByteSequence>();
    AppendUtf8Sequences({0x80, 0xD7FF}, all);
    AppendUtf8Sequences({0xE000, kMaxCodePoint}, all);
    return all;
  }();
  return *sequences;
}

}  // namespace

void StateRuns::SetAutomaton(const Automaton& automaton) {
  automaton_ = &automaton;
  if (serial_ == automaton.serial()) return;
  serial_ = automaton.serial();
  work_ += automaton.num_states() / 16;
  runs_.assign(static_cast<size_t>(automaton.num_states()), Run());
}

int StateRuns::CharactersThatFit(StateId state, const Suffixes& suffixes, bool may_end) {
  if ((suffixes.kinds & kBrokenText) != 0) return -1;
  for (int i = 0; i < suffixes.max_characters; ++i) {
    const Run& run = RunOf(state);
    if ((suffixes.kinds & ~run.kinds) != 0) return (suffixes.kinds & ~run.refused) == 0 ? i : -1;
    if (!automaton_->calls(run.next).empty() || (!may_end && automaton_->is_final(run.next))) return -1;
    if (run.next == state) break;
    state = run.next;
  }
  return suffixes.max_characters;
}

bool StateRuns::IsWide(StateId state) {
  constexpr int kManyKinds = 20;
  return std::popcount(RunOf(state).kinds) >= kManyKinds;
}

const StateRuns::Run& StateRuns::RunOf(StateId state) {
  Run& run = runs_[static_cast<size_t>(state)];
  if (run.is_known) return run;
  run.is_known = true;
  work_ += 40;
  for (const char c : {'e', '0', ' ', 'A'}) {
    run.next = automaton_->Next(state, static_cast<uint8_t>(c));
    if (run.next != kNoState) break;
  }
  CharacterKinds others = 0, accepted = 0;
  for (size_t c = 0; c < 128; ++c) {
    const StateId next = automaton_->Next(state, static_cast<uint8_t>(c));
    if (next != run.next || next == kNoState) others |= KindsOfAscii()[c];
    if (next != kNoState) accepted |= KindsOfAscii()[c];
  }
  run.kinds = kAsciiKinds & ~others;
  run.refused = kAsciiKinds & ~accepted;
  if (RefusesBeyondAscii(state)) {
    run.refused |= kBeyondAscii;
  } else if (run.next != kNoState && LeadsBeyondAscii(state, run.next)) {
    run.kinds |= kBeyondAscii;
  }
  return run;
}

bool StateRuns::RefusesBeyondAscii(StateId state) const {
  for (const ByteSequence& sequence : SequencesBeyondAscii()) {
    for (int byte = sequence.first[0]; byte <= sequence.last[0]; ++byte) {
      if (automaton_->Next(state, static_cast<uint8_t>(byte)) != kNoState) return false;
    }
  }
  return true;
}

bool StateRuns::LeadsBeyondAscii(StateId state, StateId next) {
  std::vector<StateId> from, to;
  for (const ByteSequence& sequence : SequencesBeyondAscii()) {
    from = {state};
    for (int i = 0; i < sequence.length; ++i) {
      to.clear();
      work_ += 2 + static_cast<int64_t>(from.size()) * (1 + sequence.last[i] - sequence.first[i]) / 4;
      for (const StateId at : from) {
        for (int byte = sequence.first[i]; byte <= sequence.last[i]; ++byte) {
          const StateId reached = automaton_->Next(at, static_cast<uint8_t>(byte));
          if (reached == kNoState) return false;
          if (std::find(to.begin(), to.end(), reached) == to.end()) to.push_back(reached);
        }
      }
      std::swap(from, to);
    }
    if (from != std::vector<StateId>{next}) return false;
  }
  return true;
}

}  // namespace quire::grammar
