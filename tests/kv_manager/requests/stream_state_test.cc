// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/stream_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/kv_manager/requests/token_stream_harness.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

constexpr size_t kMaxOutboxTokens = 2;

// An event, and what the state returns for it.
struct Row {
  std::string event;
  std::string result;
};

// Runs tables of events. The first client has the id 1.
class StreamStateTest : public ::testing::Test {
 protected:
  using Actions = StreamState::Actions;
  using Phase = StreamState::Phase;

  void Run(bool is_resumable, const std::vector<Row>& table) {
    StreamState state(positions_, kMaxOutboxTokens, is_resumable, ReaderOf(1));
    position_ = num_prompt_tokens_;
    for (size_t i = 0; i < table.size(); ++i) {
      ASSERT_EQ(Do(table[i].event, &state), table[i].result) << "in row " << i << ": " << table[i].event;
    }
  }

 private:
  StreamReader ReaderOf(uint64_t id) { return {.writer = &writers_[id], .run_later = nullptr, .id = id}; }

  std::string Do(const std::string& event, StreamState* state) {
    const std::vector<std::string> words = absl::StrSplit(event, ' ');
    uint64_t id = 0;
    if (words.size() > 1) static_cast<void>(absl::SimpleAtoi(words[1], &id));
    if (words[0] == "token") return Text(state->OnToken(0, position_++, {}));
    if (words[0] == "end") return Text(state->OnEvents({.end = absl::OkStatus()}));
    if (words[0] == "attach") {
      const absl::StatusOr<Actions> actions = state->Attach(ReaderOf(id), {});
      return actions.ok() ? Text(*actions) : absl::StatusCodeToString(actions.status().code());
    }
    if (words[0] == "leave") return Text(state->Close(id, /*ends_request=*/false));
    if (words[0] == "cancel") return Text(state->Close(id, /*ends_request=*/true));
    if (words[0] == "drop") return Text(state->Drop(absl::UnavailableError("dropped")));
    if (words[0] == "written") return Text(state->OnWritten(id, /*ok=*/true));
    if (words[0] == "broken") return Text(state->OnWritten(id, /*ok=*/false));
    if (words[0] == "close_if_alone") {
      const std::optional<Actions> actions = state->CloseIfAlone(id);
      return actions.has_value() ? Text(*actions) : "no";
    }
    if (words[0] == "stop") return state->StopGeneration() ? "cancel" : "";
    if (words[0] == "rest") return state->Rest(ContentOf(words)) ? "rests" : "continues";
    if (words[0] == "no_memory") {
      StreamEvents events;
      events.tokens.resize(1);
      const StreamState::Loss loss = state->OnNoMemory(&events, /*has_unread=*/words.back() == "unread");
      return loss == StreamState::Loss::kWaits ? "waits" : loss == StreamState::Loss::kEnds ? "ends" : "forgets";
    }
    if (words[0] == "told") return Text(state->OnTold(/*is_kept=*/words.back() == "kept"), *state);
    if (words[0] == "next") return Text(state->Next(ContentOf(words)));
    return "unknown event";
  }

  static StreamState::Content ContentOf(const std::vector<std::string>& words) {
    const std::string& word = words.back();
    return {.has_next = word == "response" || word == "last",
            .is_last = word == "last",
            .has_end = word == "last" || word == "done",
            .has_unread = word == "unread"};
  }

  std::string NameOf(const ResponseWriter* writer) const {
    const auto it = std::find_if(writers_.begin(), writers_.end(), [&](const auto& other) { return &other == writer; });
    return it == writers_.end() ? "nobody" : absl::StrCat(it - writers_.begin());
  }

  static std::string Text(const Actions& actions) {
    std::vector<std::string> words;
    if (actions.limits_write) words.push_back("limit");
    if (actions.cancels) words.push_back("cancel");
    if (actions.schedules_job) words.push_back("job");
    if (actions.finishes_write) words.push_back("finish");
    return absl::StrJoin(words, ", ");
  }

  std::string Text(const StreamState::Told& told, const StreamState& state) const {
    std::string text = absl::StrCat(told.is_first ? "first, " : "", "tell ", NameOf(told.writer));
    return text + (state.phase() == Phase::kOver ? ", over" : "");
  }

  std::string Text(const StreamState::Step& step) const {
    static constexpr const char* kNames[] = {"attach, old", "detach", "finish", "read", "write",
                                             "skip",        "end",    "close",  "wait"};
    std::string text = kNames[static_cast<int>(step.kind)];
    using Kind = StreamState::Step::Kind;
    if (step.kind == Kind::kAttach || step.kind == Kind::kDetach || step.kind == Kind::kWrite) {
      absl::StrAppend(&text, " ", NameOf(step.writer));
    }
    if (step.kind == Kind::kRead) absl::StrAppend(&text, " ", step.events.tokens.size());
    if (step.kind == Kind::kClose || step.kind == Kind::kDetach) {
      absl::StrAppend(&text, " ", absl::StatusCodeToString(step.status.code()));
    }
    const std::string actions = Text(step.actions);
    return text + (actions.empty() ? "" : ", ") + actions;
  }

  static StreamPositions PositionsOf(int* num_prompt_tokens) {
    v1::GenerateRequest request;
    request.set_text("p");
    const auto model = ToyModel();
    const auto valid = ValidateGenerate(request, *model, RequestLimits(), /*drawn_seed=*/1);
    *num_prompt_tokens = static_cast<int>(valid->request.prompt.size());
    return StreamPositions(ResponseSet(model, "name", *valid), /*num_promised_tokens=*/0);
  }

  std::array<ManualWriter, 5> writers_;
  int num_prompt_tokens_ = 0;
  const StreamPositions positions_ = PositionsOf(&num_prompt_tokens_);
  int position_ = 0;
};

TEST_F(StreamStateTest, OneJobAtATimeReadsAndWrites) {
  Run(/*is_resumable=*/false, {{"token", "job"},
                               {"token", ""},
                               {"next", "read 2"},
                               {"next response", "write 1"},
                               {"token", ""},
                               {"next response", "wait"},
                               {"token", ""},
                               {"written 1", "finish"},
                               {"rest", "continues"},
                               {"next", "read 2"},
                               {"next response", "write 1"},
                               {"written 1", ""},
                               {"next response", "finish"},
                               {"next", "wait"},
                               {"written 1", ""}});
}

TEST_F(StreamStateTest, AWriteThatIsOverWhileNothingWaitsNeedsNoJob) {
  Run(false, {{"token", "job"},
              {"next", "read 1"},
              {"next response", "write 1"},
              {"next response", "wait"},
              {"written 1", "finish"},
              {"rest", "rests"},
              {"token", "job"}});
}

TEST_F(StreamStateTest, TheEndLimitsTheWriteUnderWayOnce) {
  Run(false, {{"token", "job"},
              {"next", "read 1"},
              {"next response", "write 1"},
              {"next response", "wait"},
              {"token", ""},
              {"end", "limit"},
              {"token", ""},
              {"end", ""},
              {"written 1", "finish"},
              {"rest", "continues"},
              {"next", "read 1"},
              {"next last", "end"},
              {"told", "first, tell 1, over"},
              {"drop", ""},
              {"leave 1", ""}});
}

// The job may be about to call the writer.
TEST_F(StreamStateTest, AnEndThatComesWhileAJobWritesLimitsTheWriteWhenTheJobIsOver) {
  Run(false, {{"token", "job"},
              {"next", "read 1"},
              {"next response", "write 1"},
              {"end", ""},
              {"next response", "wait, limit"},
              {"written 1", "finish"},
              {"rest", "continues"}});
  Run(false, {{"token", "job"}, {"next", "read 1"}, {"end", ""}, {"next response", "write 1, limit"}});
}

TEST_F(StreamStateTest, AClientThatLeavesEndsARequestThatCannotBeResumed) {
  Run(false, {{"leave 1", "cancel, job"}, {"token", ""}, {"next", "close CANCELLED"}, {"told", "first, tell 1, over"}});
  // Its write under way ends first.
  Run(false, {{"token", "job"},
              {"next", "read 1"},
              {"next response", "write 1"},
              {"next response", "wait"},
              {"leave 1", "cancel"},
              {"written 1", "finish"},
              {"rest", "continues"},
              {"next", "close CANCELLED"}});
  Run(false, {{"token", "job"},
              {"next", "read 1"},
              {"next response", "write 1"},
              {"next response", "wait"},
              {"broken 1", "cancel, finish"},
              {"rest", "continues"},
              {"next", "close CANCELLED"}});
}

TEST_F(StreamStateTest, ADropDoesNotWaitForTheWriteUnderWay) {
  for (const bool is_resumable : {false, true}) {
    Run(is_resumable, {{"token", "job"},
                       {"next", "read 1"},
                       {"next response", "write 1"},
                       {"next response", "wait"},
                       {"drop", "cancel, job"},
                       {"attach 2", "NOT_FOUND"},
                       {"next response", "close UNAVAILABLE"},
                       {"told", "first, tell 1, over"},
                       {"written 1", ""}});
  }
  Run(false, {{"cancel 1", "cancel, job"}, {"drop", "cancel"}, {"next", "close CANCELLED"}});
}

TEST_F(StreamStateTest, ASlowReaderLosesItsRequestOrOnlyItsCall) {
  const std::vector<Row> begin = {{"token", "job"},          {"next", "read 1"}, {"next response", "write 1"},
                                  {"next response", "wait"}, {"token", ""},      {"token", ""}};
  std::vector<Row> loses_request = begin;
  loses_request.push_back({"token", "limit, cancel"});
  loses_request.push_back({"token", ""});
  Run(false, loses_request);
  std::vector<Row> loses_call = begin;
  for (const Row& row : std::vector<Row>{{"token", "job"},
                                         {"token", ""},
                                         {"token", "cancel"},
                                         {"next response", "detach 1 RESOURCE_EXHAUSTED"},
                                         {"next response", "skip"},
                                         {"next", "read 4"}}) {
    loses_call.push_back(row);
  }
  Run(true, loses_call);
}

TEST_F(StreamStateTest, AnotherCallTakesTheStreamAtAnyMoment) {
  Run(true, {{"attach 2", "job"},
             {"leave 1", ""},
             {"next", "attach, old 1"},
             {"next", "wait"},
             {"attach 1", "ABORTED"},
             {"token", "job"},
             {"next", "read 1"},
             {"next response", "write 2"},
             {"next response", "wait"},
             {"attach 3", "job"},
             {"written 2", ""},
             {"next response", "attach, old 2"},
             {"written 2", ""},
             {"leave 2", ""},
             {"next unread", "read 0"},
             {"next response", "write 3"}});
  Run(false, {{"attach 2", "NOT_FOUND"}});
}

TEST_F(StreamStateTest, ACallThatLeavesBeforeItHasTheStreamLeavesItToNobody) {
  Run(true, {{"attach 2", "job"},
             {"leave 2", ""},
             {"next", "attach, old 1"},
             {"next", "detach 2 CANCELLED"},
             {"next", "wait"}});
  Run(true, {{"attach 2", "job"}, {"cancel 2", "cancel"}, {"next", "attach, old 1"}, {"next", "close CANCELLED"}});
}

TEST_F(StreamStateTest, AStreamThatHasToldItsEndIsToldAgainToOthers) {
  Run(true, {{"end", "job"},
             {"next", "read 0"},
             {"stop", "cancel"},
             {"next done", "end"},
             {"told kept", "first, tell 1"},
             {"stop", ""},
             {"next done", "wait"},
             {"attach 2", "job"},
             {"next done", "attach, old nobody"},
             {"next unread", "read 0"},
             {"next last", "end"},
             {"told kept", "tell 2"},
             {"next done", "wait"},
             {"drop", "cancel, job"},
             {"next done", "close UNAVAILABLE"},
             {"told", "tell nobody, over"}});
}

TEST_F(StreamStateTest, ACallThatComesWhileTheStreamClosesIsRefused) {
  Run(true, {{"stop", "cancel"},
             {"drop", "cancel, job"},
             {"next done", "close UNAVAILABLE"},
             {"attach 2", "NOT_FOUND"},
             {"told", "first, tell 1, over"}});
  // It was there before.
  Run(true, {{"attach 2", "job"},
             {"drop", "cancel"},
             {"next", "attach, old 1"},
             {"next", "close UNAVAILABLE"},
             {"told", "first, tell 2, over"}});
}

TEST_F(StreamStateTest, OnlyTheNewestCallEndsARequestThatHasNotBegun) {
  Run(true, {{"attach 2", "job"}, {"close_if_alone 1", "no"}, {"close_if_alone 2", ""}, {"next", "attach, old 1"}});
  Run(true, {{"close_if_alone 1", "job"}, {"next", "close CANCELLED"}});
}

TEST_F(StreamStateTest, WithoutMemoryAStreamIsForgottenWhenNobodyNeedsItsRecord) {
  Run(true, {{"token", "job"},
             {"next", "read 1"},
             {"no_memory unread", "waits"},
             {"next", "read 1"},
             {"attach 2", ""},
             {"no_memory", "waits"},
             {"next", "attach, old 1"},
             {"next", "read 1"},
             {"no_memory", "forgets"},
             {"attach 3", "NOT_FOUND"},
             {"leave 2", "cancel"},
             {"next", "close CANCELLED"}});
  Run(true, {{"leave 1", "job"}, {"next", "detach 1 CANCELLED"}, {"no_memory unread", "ends"}});
}

}  // namespace
}  // namespace quire
