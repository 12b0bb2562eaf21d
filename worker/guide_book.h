// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_GUIDE_BOOK_H_
#define QUIRE_WORKER_GUIDE_BOOK_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quire/v1/worker.pb.h"
#include "worker/guide_compiler.h"
#include "worker/row_guide.h"

namespace quire {

// The grammars of a worker's rows. It compiles each grammar once, as long as it is one of the last that were used, and
// keeps the vocabulary from the first session on. Rows share grammars and masks only if they have the same owner. Owned
// by the executor thread.
class GuideBook {
 public:
  static constexpr size_t kMaxGrammars = 64;
  static constexpr size_t kMaxGrammarBytes = size_t{256} << 20;

  explicit GuideBook(int vocab_size) : vocab_size_(vocab_size) {}

  // Sets whether draws may be postponed. By default they may not: then Start waits until the guide is compiled.
  void SetMayPostpone(bool may_postpone) { may_postpone_ = may_postpone; }
  // Takes the vocabulary of a plan. INVALID_ARGUMENT when it does not fit the model.
  absl::Status SetVocabulary(const v1::Vocabulary& vocabulary);
  // Begins a step, for which guides may take some work. Rows get what was compiled meanwhile.
  void BeginStep();
  // Returns the guide of a row that starts, after its generated tokens. INVALID_ARGUMENT, with the field below `path`,
  // when there was no vocabulary. If draws may not be postponed, also when the guide is wrong; otherwise the draw of
  // the row says so.
  absl::StatusOr<RowGuide> Start(const v1::SequenceStart& start, absl::string_view path);
  // Waits until a guide is compiled, but no longer than `timeout`. Rows get it.
  void WaitForGuide(std::chrono::microseconds timeout);

 private:
  struct Entry {
    std::string key;  // The owner and the guide, serialized.
    std::shared_ptr<RowGrammar> grammar;
  };
  // Masks that are made ahead.
  struct Unprepared {
    std::weak_ptr<const grammar::Automaton> automaton;
    grammar::TokenMasks::Preparation preparation;
  };

  // Returns the grammar, which may be compiled later.
  std::shared_ptr<RowGrammar> Find(const v1::RowSampling& sampling);
  // Gives it to the rows that wait for it. Does nothing if there is none any more.
  void Take(CompiledGuide guide);
  // Forgets guides that are being compiled and that no row wants any more.
  void DropUnwanted();
  // Makes room for a grammar.
  void DropOldest(size_t num_bytes);
  void PrepareMasks();

  const int vocab_size_;
  bool may_postpone_ = false;
  std::string vocabulary_;  // The last v1::Vocabulary, serialized.
  std::shared_ptr<MaskMaker> maker_;
  std::deque<Entry> grammars_;  // The one that was used last is at the end.
  size_t num_bytes_ = 0;        // Size of grammars_.
  std::deque<Unprepared> unprepared_;
  absl::flat_hash_map<std::string, std::weak_ptr<RowGrammar>> compiling_;  // By key.
  GuideCompiler compiler_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_GUIDE_BOOK_H_
