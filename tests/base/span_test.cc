// SPDX-License-Identifier: Apache-2.0

#include "base/span.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/span_queue.h"
#include "base/trace_flags.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::json;
using ::testing::SizeIs;

constexpr std::chrono::milliseconds kNoTime(0);

Span Sampled(const std::string& name) {
  return {.context = {.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                      .span_id = "00f067aa0ba902b7",
                      .parent_id = "",
                      .is_sampled = true},
          .name = name};
}

TEST(OtlpJsonTest, HasTheFormOfTheProtocol) {
  Span span = Sampled("chat \"a\"");
  span.context.parent_id = "1111111111111111";
  span.kind = SpanKind::kServer;
  span.start_unix_us = 1'700'000'000'000'001;
  span.end_unix_us = 1'700'000'000'000'002;
  span.attributes = {{"text", "a\nb"},
                     {"int", int64_t{1} << 60},
                     {"double", 0.25},
                     {"bool", true},
                     {"texts", std::vector<std::string>{"stop", "length"}}};
  span.error = "NOT_FOUND";
  const Json expected = Json::parse(R"({
    "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
    "spanId": "00f067aa0ba902b7",
    "parentSpanId": "1111111111111111",
    "name": "chat \"a\"",
    "kind": 2,
    "startTimeUnixNano": "1700000000000001000",
    "endTimeUnixNano": "1700000000000002000",
    "attributes": [
      {"key": "text", "value": {"stringValue": "a\nb"}},
      {"key": "int", "value": {"intValue": "1152921504606846976"}},
      {"key": "double", "value": {"doubleValue": 0.25}},
      {"key": "bool", "value": {"boolValue": true}},
      {"key": "texts", "value": {"arrayValue": {"values": [{"stringValue": "stop"}, {"stringValue": "length"}]}}}
    ],
    "status": {"code": 2, "message": "NOT_FOUND"}
  })");
  const Json request = Json::parse(OtlpJson("quire-manager", {span, Sampled("b")}));
  const Json& resource = request["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"][0],
            Json::parse(R"({"key": "service.name", "value": {"stringValue": "quire-manager"}})"));
  const Json& scope = resource["scopeSpans"][0];
  EXPECT_EQ(scope["scope"], (Json{{"name", "quire"}, {"version", kVersion}}));
  ASSERT_THAT(scope["spans"], SizeIs(2));
  EXPECT_EQ(scope["spans"][0], expected);
  EXPECT_FALSE(scope["spans"][1].contains("parentSpanId")) << "it begins a trace";
  EXPECT_FALSE(scope["spans"][1].contains("status"));
}

TEST(SpanQueueTest, FullQueueDropsAndCounts) {
  SpanQueue queue(/*sampling_ratio=*/1, /*max_spans=*/2);
  for (const char* const name : {"a", "b", "c"}) queue.Add(Sampled(name));
  const std::vector<Span> taken = queue.Take(kNoTime);
  ASSERT_THAT(taken, SizeIs(2));
  EXPECT_EQ(taken[0].name, "a");
  EXPECT_EQ(taken[1].name, "b");
  EXPECT_EQ(queue.counts().num_dropped, 1);
  queue.CountDropped(2);
  queue.CountExported(5);
  EXPECT_EQ(queue.counts().num_dropped, 3);
  EXPECT_EQ(queue.counts().num_exported, 5);
}

TEST(SpanQueueTest, BatchesAreBounded) {
  SpanQueue queue(/*sampling_ratio=*/1);
  for (size_t i = 0; i < SpanQueue::kMaxBatch + 1; ++i) queue.Add(Sampled("a"));
  EXPECT_THAT(queue.Take(std::chrono::hours(1)), SizeIs(SpanQueue::kMaxBatch)) << "a full batch waits for nothing";
  EXPECT_THAT(queue.Take(kNoTime), SizeIs(1));
}

TEST(SpanQueueTest, CloseEndsEveryWait) {
  SpanQueue queue(/*sampling_ratio=*/1);
  queue.Add(Sampled("a"));
  std::thread closer([&queue] { queue.Close(); });
  EXPECT_THAT(queue.Take(std::chrono::hours(1)), SizeIs(1)) << "what waits is still taken";
  EXPECT_THAT(queue.Take(std::chrono::hours(1)), SizeIs(0));
  EXPECT_FALSE(queue.Pause(std::chrono::hours(1)));
  closer.join();
}

TEST(SpanQueueTest, TheCallerDecidesAboutItsTrace) {
  const SpanQueue none(/*sampling_ratio=*/0);
  const SpanQueue all(/*sampling_ratio=*/1);
  TraceParent parent{"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", true};
  EXPECT_TRUE(none.Start(parent, {1, 2, 3}).is_sampled);
  parent.is_sampled = false;
  EXPECT_FALSE(all.Start(parent, {1, 2, 3}).is_sampled);
  EXPECT_TRUE(all.Start(std::nullopt, {1, 2, ~uint64_t{0}}).is_sampled);
  EXPECT_FALSE(none.Start(std::nullopt, {1, 2, 0}).is_sampled);
}

TEST(SpanQueueTest, TheRatioIsTheShareOfSampledTraces) {
  const SpanQueue queue(/*sampling_ratio=*/0.25);
  constexpr uint64_t kStep = uint64_t{1} << 54;  // 1,024 numbers, evenly distributed.
  int num_sampled = 0;
  for (uint64_t i = 0; i < 1024; ++i) num_sampled += queue.Start(std::nullopt, {1, 2, i * kStep}).is_sampled;
  EXPECT_EQ(num_sampled, 256);
}

TEST(TraceOptionsTest, EndpointWithoutPathGetsThatOfTheProtocol) {
  const auto url = [](const std::string& endpoint) { return TraceOptions{.endpoint = endpoint}.Url(); };
  EXPECT_EQ(url("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
  EXPECT_EQ(url("https://collector/"), "https://collector/v1/traces");
  EXPECT_EQ(url("https://collector/otlp/v1/traces"), "https://collector/otlp/v1/traces");
}

}  // namespace
}  // namespace quire
