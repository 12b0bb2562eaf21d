// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_RESPONSES_RESPONSE_ANSWER_H_
#define QUIRE_GATEWAY_RESPONSES_RESPONSE_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/ordered_answer.h"
#include "gateway/responses/response_settings.h"
#include "gateway/responses/text_logprobs.h"

namespace quire {

// The answer to a call of /v1/responses: items of thoughts, texts and calls of tools in the order in which the model
// has written them. A stream tells of the same items, with the same ids. Its last events have the whole texts again, so
// they are kept.
class ResponseAnswer : public OrderedAnswer {
 public:
  // `call` has a response, and must outlive the answer.
  ResponseAnswer(const GenerateCall& call, AnswerHead head);

  std::string Add(size_t prompt_index, const v1::GenerateResponse& response) override;
  // The end of the last item, and the whole response.
  std::string LastEvents() override;
  std::string Body() override;
  std::string ErrorEvent(const ApiError& error, const std::string& request_id) const override;
  size_t num_bytes() const override { return num_bytes_; }
  size_t num_logprobs() const override { return num_logprobs_; }

 private:
  enum class Kind { kThoughts, kText, kCall, kCustomCall };

  struct Item {
    Kind kind;
    std::string id = {};
    std::string call_id = {};   // Of a call.
    ResponseTool tool = {};     // The names that the client knows.
    std::string text = {};      // The thoughts, the text, or the arguments.
    std::string logprobs = {};  // Of a text: the entries of their list.
    bool is_complete = false;
  };

  // Why the response has no more items.
  struct End {
    const char* status;                // That of the response.
    std::string error = "null";        // JSON.
    const char* incomplete = nullptr;  // The reason.
  };

  void AddThoughts(absl::string_view text, std::string* out) override;
  void AddContent(absl::string_view text, std::string* out) override;
  void BeginCall(const ToolCallDelta& call, std::string* out) override;
  void AddArguments(absl::string_view text, std::string* out) override;

  // These append events to `out` if the call is a stream.
  void BeginItem(Item item, std::string* out);
  // Ends the last item, if it has not ended.
  void EndItem(bool is_complete, std::string* out);
  void AddDelta(absl::string_view text, const std::string& logprobs, std::string* out);
  // Ends the last item at the end of the answer, which has at least one.
  End EndAnswer(std::string* out);

  // Appends the beginning of an event, up to the members that follow its number.
  void BeginEvent(absl::string_view type, std::string* out);
  // Appends an event of the last item: its place, and then `members`.
  void AppendItemEvent(absl::string_view type, absl::string_view members, std::string* out);
  // Appends an event with an object "item" and the place of the last item.
  void AppendWholeItemEvent(absl::string_view type, absl::string_view status, std::string* out);

  // Returns the only part of the content of thoughts, or of a text.
  std::string TextPart(const Item& item, absl::string_view text) const;
  // Appends an item. Without its text, it has only begun.
  void AppendItem(const Item& item, absl::string_view status, bool has_text, std::string* out) const;
  void AppendResponse(const End& end, std::string* out) const;
  void AppendUsage(std::string* out) const;
  // Counts what is kept, and what the last events of a stream repeat.
  void Count(size_t num_bytes);

  const GenerateCall& call_;
  const ResponseSettings& settings_;
  std::vector<Item> items_;
  bool is_open_ = false;    // The last item has not ended.
  bool has_begun_ = false;  // A response of the manager was added.
  uint64_t num_events_ = 0;
  TextLogprobs logprobs_;
  v1::Usage usage_;
  uint64_t num_tokens_ = 0;  // So far.
  uint64_t num_reasoning_tokens_ = 0;
  v1::FinishReason finish_reason_ = v1::FINISH_REASON_UNSPECIFIED;
  size_t num_bytes_ = 0;
  size_t num_logprobs_ = 0;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_RESPONSES_RESPONSE_ANSWER_H_
