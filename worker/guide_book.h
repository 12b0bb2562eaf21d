// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_GUIDE_BOOK_H_
#define QUIRE_WORKER_GUIDE_BOOK_H_

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quire/v1/worker.pb.h"
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

  // Takes the vocabulary of a plan. INVALID_ARGUMENT when it does not fit the model.
  absl::Status SetVocabulary(const v1::Vocabulary& vocabulary);
  // Begins a step, for which masks may take some work.
  void BeginStep();
  // Returns the guide of a row that starts, after its generated tokens. INVALID_ARGUMENT, with the field below `path`,
  // when there was no vocabulary or the guide is wrong.
  absl::StatusOr<RowGuide> Start(const v1::SequenceStart& start, absl::string_view path);

 private:
  struct Entry {
    std::string key;  // The owner and the guide, serialized.
    std::shared_ptr<RowGrammar> grammar;
  };

  absl::StatusOr<std::shared_ptr<RowGrammar>> Compile(const v1::RowSampling& sampling);
  // Makes room for a grammar.
  void DropOldest(size_t num_bytes);

  const int vocab_size_;
  std::string vocabulary_;  // The last v1::Vocabulary, serialized.
  std::shared_ptr<MaskMaker> maker_;
  std::deque<Entry> grammars_;  // The one that was used last is at the end.
  size_t num_bytes_ = 0;        // Those of grammars_.
};

}  // namespace quire

#endif  // QUIRE_WORKER_GUIDE_BOOK_H_
