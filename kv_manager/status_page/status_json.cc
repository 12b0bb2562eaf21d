// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/status_page/status_json.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Indexed by BlockState.
constexpr absl::string_view kLetters = "?.cusP";
constexpr int kNumStates = kLetters.size();

int StateOf(char state) {
  return state > 0 && state < kNumStates ? state : 0;
}

// Replaces bytes that are not UTF-8, for example in the name of a model, by U+FFFD.
std::string Text(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string NameOf(RequestId request, const ShownNames& names) {
  const auto it = names.names.find(request);
  return it == names.names.end() ? absl::StrCat("#", Value(request)) : it->second;
}

Json EncodeHistogram(const Histogram& histogram) {
  Json bounds = Json::array();
  for (const double bound : histogram.bounds()) bounds.push_back(bound);
  Json counts = Json::array();
  for (const auto count : histogram.counts()) counts.push_back(count);
  return {{"bounds", bounds}, {"counts", counts}};
}

const char* StateName(const WorkerStatus& worker) {
  if (!worker.is_ready) return worker.is_refused ? "refused" : "connecting";
  return worker.is_draining ? "draining" : "ready";
}

const char* StateName(const RankState& rank) {
  if (!rank.is_ready) return rank.is_refused ? "refused" : "connecting";
  return "ready";
}

const char* StateName(v1::RequestState state) {
  switch (state) {
    case v1::REQUEST_STATE_RUNNING:
      return "running";
    case v1::REQUEST_STATE_SWAPPED:
      return "swapped";
    default:
      return "waiting";
  }
}

Json EncodeMap(const PoolSnapshot& snapshot, int max_cells) {
  const MapCells cells = DrawMapCells(snapshot.states, max_cells);
  return {{"epoch", snapshot.epoch},
          {"step", snapshot.step},
          {"num_blocks", snapshot.states.size()},
          {"blocks_per_cell", cells.blocks_per_cell},
          {"counts", cells.counts},
          {"cells", cells.letters}};
}

// The index in the array is the number of the rank.
Json EncodeRanks(const std::vector<RankState>& ranks, bool has_names) {
  Json out = Json::array();
  for (const RankState& rank : ranks) {
    out.push_back({{"address", rank.address}, {"state", StateName(rank)}, {"device", rank.device}});
    if (has_names) out.back()["error"] = rank.last_error;
  }
  return out;
}

// `generation` is the one that new requests go to.
Json EncodeWorker(const WorkerStatus& worker, const PoolSnapshot& snapshot, int max_cells, bool has_names,
                  GenerationId generation) {
  Json out = {{"address", worker.address},
              {"state", StateName(worker)},
              {"device", worker.device},
              {"model", worker.model_name},
              {"generation", Value(worker.generation)},
              {"is_current", worker.generation != GenerationId{0} && worker.generation == generation},
              {"epoch", worker.epoch},
              {"steps", worker.steps},
              {"running", worker.running_requests},
              {"waiting", worker.waiting_requests},
              {"swapped", worker.swapped_requests},
              {"preemptions", worker.stats.preemptions},
              {"block_size", worker.block_size},
              {"host_blocks", worker.blocks.host_total},
              {"host_used", worker.blocks.host_used}};
  // Left out for remote readers, because it may name hosts and files.
  if (has_names) out["error"] = worker.last_error;
  if (worker.ranks != nullptr) out["ranks"] = EncodeRanks(*worker.ranks, has_names);
  if (snapshot.is_ready && !snapshot.states.empty()) out["map"] = EncodeMap(snapshot, max_cells);
  return out;
}

Json EncodeRequest(RequestId id, const v1::RequestSummary& request, const ShownNames& names) {
  return {{"id", NameOf(id, names)},
          {"tenant", request.tenant()},
          {"state", StateName(request.state())},
          {"worker", request.worker()},
          {"age_ms", request.age_ms()},
          {"prompt_tokens", request.prompt_tokens()},
          {"cached_tokens", request.cached_prompt_tokens()},
          {"generated_tokens", request.generated_tokens()},
          {"sequences", request.num_sequences()},
          {"blocks", request.blocks()},
          {"shared_blocks", request.shared_blocks()}};
}

Json EncodeRequests(const StatusSnapshot& snapshot, const ShownNames& names) {
  Json out = Json::array();
  if (!names.why_not.empty()) return out;
  for (const ListedRequests& listed : snapshot.requests) {
    for (const auto& [id, summary] : listed.requests) {
      if (out.size() < kMaxShownRequests) out.push_back(EncodeRequest(id, summary, names));
    }
  }
  return out;
}

}  // namespace

MapCells DrawMapCells(absl::string_view states, int max_cells) {
  const size_t group = std::max<size_t>((states.size() + max_cells - 1) / max_cells, 1);
  MapCells map{.letters = "", .blocks_per_cell = static_cast<int>(group), .counts = std::vector<int>(kNumStates - 1)};
  for (size_t first = 0; first < states.size(); first += group) {
    std::array<int, kNumStates> counts = {};
    for (const char state : states.substr(first, group)) ++counts[StateOf(state)];
    int best = 0;
    for (int i = 1; i < kNumStates; ++i) {
      map.counts[i - 1] += counts[i];
      if (counts[i] > 0 && counts[i] >= counts[best]) best = i;
    }
    map.letters.push_back(kLetters[best]);
  }
  return map;
}

std::string EncodeStatusJson(const StatusSnapshot& snapshot, const ShownNames& names) {
  const ManagerStatus& manager = snapshot.manager;
  const StepLoopStats& totals = manager.totals;
  Json out = {{"version", kVersion},
              {"time_us", manager.now_us},
              {"uptime_ms", manager.uptime_us / 1000},
              {"model", manager.model_name},
              {"is_ready", manager.is_ready},
              {"is_draining", manager.is_draining},
              {"warnings", manager.warnings},
              {"has_names", names.why_not.empty()},
              {"why_no_names", names.why_not},
              {"totals",
               {{"generated_tokens", totals.generated_tokens},
                {"prompt_tokens", totals.prompt_tokens},
                {"started_tokens", totals.started_tokens},
                {"cached_tokens", totals.cached_tokens}}},
              {"ttft", EncodeHistogram(totals.first_token_seconds)},
              {"itl", EncodeHistogram(totals.inter_token_seconds)},
              {"queue", EncodeHistogram(totals.queue_seconds)},
              {"num_workers", manager.workers.size()},
              {"workers", Json::array()}};
  const int num_shown = static_cast<int>(snapshot.blocks.size());
  const int max_cells = std::min(kMaxMapCells / std::max(num_shown, 1), kMaxMapCells / 4);
  for (int i = 0; i < num_shown; ++i) {
    out["workers"].push_back(
        EncodeWorker(*manager.workers[i], snapshot.blocks[i], max_cells, names.why_not.empty(), manager.generation));
  }
  int num_requests = 0;
  for (const ListedRequests& listed : snapshot.requests) num_requests += listed.num_requests;
  out["num_requests"] = num_requests;
  out["requests"] = EncodeRequests(snapshot, names);
  return Text(out);
}

std::string EncodeBlockJson(const DescribedBlock& block, const ShownNames& names) {
  const v1::DescribeBlockResponse& description = block.description;
  Json owners = Json::array();
  for (int i = 0; i < description.owners_size(); ++i) {
    const v1::BlockOwner& owner = description.owners(i);
    owners.push_back({{"request", NameOf(block.owners[i], names)},
                      {"sample", owner.sample_index()},
                      {"entry", owner.table_index()}});
  }
  return Text({{"worker", description.worker()},
               {"epoch", description.epoch()},
               {"step", description.step()},
               {"block", description.block()},
               {"state", static_cast<int>(description.state())},
               {"references", description.references()},
               {"pins", description.num_pins()},
               {"copies", description.num_copies()},
               {"is_cached", description.is_cached()},
               {"depth", description.prefix_depth()},
               {"age_steps", description.age_steps()},
               {"num_owners", description.num_owners()},
               {"owners", owners}});
}

}  // namespace quire
