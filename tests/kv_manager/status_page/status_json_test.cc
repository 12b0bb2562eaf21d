// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/status_page/status_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/kv_manager/metrics/some_status.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Blocks as the letters of the page, for example ".cusP".
std::string States(const std::string& letters) {
  std::string states;
  for (const char letter : letters) states.push_back(static_cast<char>(std::string(".cusP").find(letter) + 1));
  return states;
}

// SomeStatus with the blocks of its first worker, which has one running request.
StatusSnapshot SomeSnapshot(const std::string& letters) {
  StatusSnapshot snapshot{.manager = SomeStatus(), .blocks = std::vector<PoolSnapshot>(2), .requests = {{}, {}}};
  snapshot.blocks[0] = {.worker = "worker:0", .is_ready = true, .epoch = 7, .step = 12, .states = States(letters)};
  v1::RequestSummary summary;
  summary.set_worker("worker:0");
  summary.set_state(v1::REQUEST_STATE_RUNNING);
  summary.set_tenant("blue \"sky\"");
  summary.set_generated_tokens(17);
  summary.set_blocks(3);
  snapshot.requests[0] = {.requests = {{RequestId{5}, summary}}, .num_requests = 4};
  return snapshot;
}

nlohmann::json Encode(const StatusSnapshot& snapshot, const ShownNames& names) {
  return nlohmann::json::parse(EncodeStatusJson(snapshot, names));
}

TEST(MapCellsTest, UpToTheLimitEachBlockHasALetter) {
  const MapCells cells = DrawMapCells(States(".cusPcc"), 7);
  EXPECT_EQ(cells.letters, ".cusPcc");
  EXPECT_EQ(cells.blocks_per_cell, 1);
  EXPECT_THAT(cells.counts, ElementsAre(1, 3, 1, 1, 1));
}

TEST(MapCellsTest, AGroupShowsTheStateOfMostAndOfEquallyManyTheLater) {
  const MapCells cells = DrawMapCells(States("..cuussP"), 3);
  EXPECT_EQ(cells.letters, ".uP") << "groups ..c, uus, sP";
  EXPECT_EQ(cells.blocks_per_cell, 3);
  EXPECT_THAT(cells.counts, ElementsAre(2, 1, 2, 2, 1)) << "of blocks, not of cells";
}

TEST(MapCellsTest, NoBlocksAreNoCells) {
  EXPECT_EQ(DrawMapCells("", 10).letters, "");
}

TEST(StatusJsonTest, TellsWorkersBlocksAndRequests) {
  const nlohmann::json status = Encode(SomeSnapshot("uuc.s"), {.names = {{RequestId{5}, "five"}}});
  EXPECT_EQ(status["model"], "story \"quoted\"");
  EXPECT_EQ(status["totals"]["generated_tokens"], 200);
  EXPECT_EQ(status["ttft"]["counts"].size(), status["ttft"]["bounds"].size() + 1);
  EXPECT_EQ(status["num_workers"], 2);
  const nlohmann::json& worker = status["workers"][0];
  EXPECT_EQ(worker["address"], "worker:0");
  EXPECT_EQ(worker["state"], "ready");
  EXPECT_EQ(worker["epoch"], 7);
  EXPECT_EQ(worker["map"]["cells"], "uuc.s");
  EXPECT_EQ(worker["map"]["counts"], nlohmann::json({1, 1, 2, 1, 0}));
  EXPECT_EQ(status["workers"][1]["state"], "connecting");
  EXPECT_FALSE(status["workers"][1]["is_current"]) << "it has never joined, so it has no generation";
  EXPECT_FALSE(status["workers"][1].contains("map"));
  EXPECT_TRUE(status["has_names"]);
  EXPECT_EQ(status["num_requests"], 4);
  ASSERT_EQ(status["requests"].size(), 1u);
  EXPECT_EQ(status["requests"][0]["id"], "five");
  EXPECT_EQ(status["requests"][0]["tenant"], "blue \"sky\"");
  EXPECT_EQ(status["requests"][0]["state"], "running");
  EXPECT_EQ(status["requests"][0]["generated_tokens"], 17);
}

TEST(StatusJsonTest, WithoutNamesNothingOfASingleRequestIsTold) {
  StatusSnapshot snapshot = SomeSnapshot("uu");
  auto failed = std::make_shared<WorkerStatus>(*snapshot.manager.workers[1]);
  failed->last_error = "cannot open /secret/model";
  snapshot.manager.workers[1] = failed;
  const std::string text = EncodeStatusJson(snapshot, {.names = {{RequestId{5}, "five"}}, .why_not = "from afar"});
  const nlohmann::json status = nlohmann::json::parse(text);
  EXPECT_FALSE(status["has_names"]);
  EXPECT_EQ(status["why_no_names"], "from afar");
  EXPECT_TRUE(status["requests"].empty());
  EXPECT_EQ(status["num_requests"], 4);
  EXPECT_EQ(status["workers"][0]["map"]["cells"], "uu");
  for (const char* name : {"five", "blue", "secret"}) EXPECT_THAT(text, Not(HasSubstr(name)));
}

TEST(StatusJsonTest, TellsTheRanksOfAWorker) {
  StatusSnapshot snapshot = SomeSnapshot("uu");
  auto group = std::make_shared<WorkerStatus>(*snapshot.manager.workers[1]);
  group->ranks = std::make_shared<const std::vector<RankState>>(
      std::vector<RankState>{{.address = "host:2", .is_ready = true, .device = "cpu"},
                             {.address = "host:3", .last_error = "cannot open /secret/model"}});
  snapshot.manager.workers[1] = group;
  const nlohmann::json workers = Encode(snapshot, {})["workers"];
  EXPECT_FALSE(workers[0].contains("ranks"));
  EXPECT_EQ(
      workers[1]["ranks"],
      nlohmann::json(
          {{{"address", "host:2"}, {"state", "ready"}, {"device", "cpu"}, {"error", ""}},
           {{"address", "host:3"}, {"state", "connecting"}, {"device", ""}, {"error", "cannot open /secret/model"}}}));
  EXPECT_THAT(EncodeStatusJson(snapshot, {.why_not = "from afar"}), Not(HasSubstr("secret")));
}

TEST(StatusJsonTest, NamesMayHoldAnything) {
  const std::string name = "</script><script>alert('\"\\\n\x01')</script>";
  StatusSnapshot snapshot = SomeSnapshot("u");
  snapshot.manager.model_name = "bad \xff byte";
  const nlohmann::json status = Encode(snapshot, {.names = {{RequestId{5}, name}}});
  EXPECT_EQ(status["requests"][0]["id"], name);
  EXPECT_EQ(status["model"], "bad \xef\xbf\xbd byte");
  EXPECT_EQ(Encode(snapshot, {})["requests"][0]["id"], "#5") << "a request that has just ended has no name";
}

TEST(StatusJsonTest, IsBoundedForPoolsOfAMillionBlocksAndManyWorkersAndRequests) {
  const auto size_with = [](int num_workers) {
    StatusSnapshot snapshot = SomeSnapshot("");
    const auto worker = snapshot.manager.workers[0];
    snapshot.manager.workers.assign(num_workers, worker);
    snapshot.blocks.assign(num_workers, {.is_ready = true, .states = std::string(1'000'000, '\3')});
    snapshot.requests[0].requests.resize(1000, snapshot.requests[0].requests[0]);
    snapshot.requests.resize(num_workers, snapshot.requests[0]);
    return EncodeStatusJson(snapshot, {.names = {{RequestId{5}, std::string(128, 'x')}}}).size();
  };
  EXPECT_LT(size_with(1), 100'000u);
  EXPECT_LT(size_with(kMaxShownWorkers), 150'000u);
}

TEST(StatusJsonTest, ABlockHasItsOwnersByName) {
  DescribedBlock block;
  block.description.set_block(9);
  block.description.set_state(v1::BLOCK_STATE_SHARED);
  block.description.set_references(3);
  block.description.set_is_cached(true);
  block.description.set_prefix_depth(4);
  block.description.set_age_steps(2);
  block.description.set_num_owners(2);
  block.description.add_owners()->set_table_index(3);
  block.description.add_owners()->set_sample_index(1);
  block.owners = {RequestId{5}, RequestId{6}};
  const auto json = nlohmann::json::parse(EncodeBlockJson(block, {.names = {{RequestId{5}, "<five>"}}}));
  EXPECT_EQ(json["block"], 9);
  EXPECT_EQ(json["state"], 4);
  EXPECT_EQ(json["depth"], 4);
  EXPECT_EQ(json["age_steps"], 2);
  EXPECT_EQ(json["owners"][0], (nlohmann::json{{"request", "<five>"}, {"sample", 0}, {"entry", 3}}));
  EXPECT_EQ(json["owners"][1]["request"], "#6");
}

}  // namespace
}  // namespace quire
