// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_REASONING_SPLITTER_H_
#define QUIRE_GATEWAY_OPENAI_REASONING_SPLITTER_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/answer_text.h"
#include "gateway/openai/call_syntax.h"

namespace quire {

// Says where the thoughts of an answer are.
enum class Thoughts {
  kNone,      // They are over, or the model has none.
  kOptional,  // The answer may begin with the tag of thoughts.
  kBegun,     // The answer begins within them.
};

// The tags of most models, <think> and </think>.
const ReasoningSyntax& UsualReasoning();

// Returns what a prompt leaves to the answer. Templates end it with <think> to make the model think, and with thoughts
// that are empty or over to keep it from that; a prompt with another end leaves the choice to the model. With
// `continued`, the answer continues a message that has this content so far, so no thoughts can begin any more.
Thoughts ThoughtsAfter(absl::string_view prompt, std::optional<absl::string_view> continued,
                       const ReasoningSyntax& syntax = UsualReasoning());

// Takes the thoughts out of a model's text as it comes: "<think>thoughts</think>content", or with other tags. The text
// may also begin in the thoughts, where the prompt has ended with the tag. Line breaks around the thoughts are left
// out.
class ReasoningSplitter {
 public:
  // `syntax` must outlive the splitter. REQUIRES: it has tags.
  explicit ReasoningSplitter(bool begins_in_reasoning, const ReasoningSyntax& syntax = UsualReasoning())
      : begin_(syntax.begin), end_(syntax.end), state_(begins_in_reasoning ? kOpened : kStart) {}

  // Appends what `text` adds to the reasoning and the content of `out`. Text that could be a part of a tag is kept
  // until the next call; with `is_last`, nothing is kept.
  void Add(absl::string_view text, bool is_last, AnswerText* out);

 private:
  enum State {
    kStart,      // Nothing but white space has come.
    kOpened,     // The thoughts begin. Line breaks are left out, and so is a second tag.
    kReasoning,  // The text is in the thoughts.
    kClosed,     // The content begins. Line breaks are left out.
    kContent,
  };

  // Continues with pending_. Returns false when it needs more text.
  bool Step(bool is_last, AnswerText* out);

  const absl::string_view begin_;
  const absl::string_view end_;
  State state_;
  std::string pending_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_REASONING_SPLITTER_H_
