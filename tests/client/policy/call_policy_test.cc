// SPDX-License-Identifier: Apache-2.0

// Replays the sequences of tests/golden/calls. tests/client/python/call_policy_test.py replays them too.

#include "client/policy/call_policy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "google/rpc/error_details.pb.h"
#include "nlohmann/json.hpp"
#include "tests/test_paths.h"

namespace quire {
namespace {

using nlohmann::json;

json ReadGolden(const std::string& name) {
  return json::parse(std::ifstream(SourcePath("tests/golden/calls/" + name + ".json")));
}

absl::Time At(double seconds) {
  return absl::FromUnixSeconds(1'000'000) + absl::Seconds(seconds);
}

// Returns a status from its description in ends.json.
google::rpc::Status StatusOf(const json& end) {
  google::rpc::Status status;
  // The names of the codes, in the order of their numbers.
  for (int code = 1; code <= 16; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == end.at("code")) status.set_code(code);
  }
  EXPECT_NE(status.code(), 0) << end;
  status.set_message(end.at("message"));
  if (!end.contains("reason")) return status;
  if (end["reason"] == "") {
    status.add_details()->PackFrom(google::rpc::BadRequest());
  } else {
    google::rpc::ErrorInfo info;
    info.set_reason(end["reason"]);
    status.add_details()->PackFrom(info);
  }
  return status;
}

CallRequest RequestOf(const json& facts) {
  const std::string on_disconnect = facts.value("on_disconnect", "");
  return {.num_managers = facts.value("num_managers", size_t{1}),
          .deadline = At(facts.value("timeout", 300.0)),
          .resume_time = absl::Seconds(facts.value("resume_time", 30.0)),
          .is_stream = facts.value("kind", "stream") == "stream",
          .has_on_disconnect = !on_disconnect.empty(),
          .is_detachable = on_disconnect == "detach",
          .is_named = facts.value("is_named", false),
          .is_continued = facts.value("is_continued", false),
          .is_ranked = facts.value("is_ranked", false),
          .has_prompt_logprobs = facts.value("has_prompt_logprobs", false)};
}

const char* NameOf(CallAction::Kind kind) {
  switch (kind) {
    case CallAction::Kind::kStop:
      return "stop";
    case CallAction::Kind::kAgain:
      return "again";
    case CallAction::Kind::kAskNext:
      return "ask next";
    case CallAction::Kind::kResume:
      return "resume";
    case CallAction::Kind::kContinue:
      return "continue";
    case CallAction::Kind::kWithoutOnDisconnect:
      return "without on_disconnect";
  }
  return "";
}

void Replay(const json& sequence, const json& ends) {
  CallPolicy policy(RequestOf(sequence["request"]));
  policy.Begin(At(0));
  for (const json& event : sequence["events"]) {
    SCOPED_TRACE(event.dump());
    const absl::Time now = At(event["at"]);
    if (event.contains("response")) {
      policy.Note(event["response"], event.value("has_token", false));
      continue;
    }
    const CallAction action = policy.After(StatusOf(ends.at(event["end"])), now);
    EXPECT_EQ(NameOf(action.kind), event["action"]);
    EXPECT_EQ(action.delay, absl::Seconds(event.value("delay", 0.0)));
    EXPECT_EQ(action.leaves, event.value("leaves", false));
    if (event.contains("error")) {
      const google::rpc::Status error = StatusOf(ends.at(event["error"]));
      EXPECT_EQ(action.error.SerializeAsString(), error.SerializeAsString()) << action.error.DebugString();
    }
    policy.Begin(now + action.delay);
  }
}

TEST(CallPolicyTest, EverySequenceHasTheActionsAndTheErrorOfTheGoldenFiles) {
  const json ends = ReadGolden("ends");
  for (const char* file : {"streams", "several_managers", "unary_calls"}) {
    for (const json& sequence : ReadGolden(file)) {
      SCOPED_TRACE(sequence["name"].get<std::string>());
      Replay(sequence, ends);
    }
  }
}

TEST(CallPolicyTest, OnlyAStreamThatCanBeContinuedKeepsItsTokens) {
  EXPECT_FALSE(CallPolicy({.is_stream = true}).keeps_tokens());
  EXPECT_TRUE(CallPolicy({.is_stream = true, .is_detachable = true}).keeps_tokens());
  EXPECT_TRUE(CallPolicy({.is_stream = true, .is_continued = true}).keeps_tokens());
  EXPECT_FALSE(CallPolicy({.is_stream = true, .is_detachable = true, .is_ranked = true}).keeps_tokens());
}

TEST(CallPolicyTest, ALossLastsFromTheFirstFailureToTheNextResponse) {
  const json ends = ReadGolden("ends");
  CallPolicy policy({.is_stream = true, .is_detachable = true});
  policy.Note(0, /*has_token=*/true);
  EXPECT_EQ(policy.lost_at(), absl::InfiniteFuture());
  policy.After(StatusOf(ends["cut"]), At(1));
  policy.Begin(At(2));
  policy.After(StatusOf(ends["cut"]), At(3));
  EXPECT_EQ(policy.lost_at(), At(1));
  policy.Note(0, /*has_token=*/true);
  EXPECT_EQ(policy.lost_at(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace quire
