// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/scenario_draw.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/random.h"

namespace quire {
namespace {

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : random_(seed), window_random_(~seed) {}

  Scenario Draw() {
    scenario_.model.vocab = random_.OneIn(4) ? 3 : 1000;
    has_stops_ = random_.OneIn(3);
    if (has_stops_) scenario_.model.stop_percent = random_.Between(1, 40);
    DrawSwarm();
    const int num_workers = random_.OneIn(3) ? random_.Between(2, 3) : 1;
    is_small_ = !random_.OneIn(4);
    const SimWorker worker = DrawWorker(num_workers);
    for (int i = 0; i < num_workers; ++i) {
      scenario_.workers.push_back(worker);
      if (i > 0) scenario_.workers.back().blocks = DrawBlocks();
    }
    capacity_ = std::min(worker.context, worker.blocks * worker.block_size);
    loops_.resize(num_workers);
    for (Loop& loop : loops_) loop.is_slow = random_.OneIn(5);
    const int num_events = random_.OneIn(8) ? random_.Between(500, 4000) : random_.Between(20, 500);
    while (static_cast<int>(scenario_.events.size()) < num_events) DrawEvent();
    DrawNumerics();
    DrawCopies();
    if (has_poisons_) DrawLateFailures();
    if (random_.OneIn(3)) DrawPoolings();
    if (random_.OneIn(5)) DrawGroups();
    if (random_.OneIn(3)) DrawPins();
    return std::move(scenario_);
  }

 private:
  // A worker and its loop, as far as their state can be known without running the scenario.
  struct Loop {
    bool is_slow = false;
    bool is_silent = false;
    int num_in_flight = 0;  // Plans that the worker has not answered.
    int num_results = 0;    // Answers that the loop has not taken.
  };

  // Which features are on, and how often.
  void DrawSwarm() {
    has_samples_ = random_.OneIn(2);
    has_beams_ = random_.OneIn(2);
    has_salts_ = random_.OneIn(3);
    has_bypass_ = random_.OneIn(4);
    has_logprobs_ = random_.OneIn(4);
    has_priorities_ = random_.OneIn(2);
    has_deadlines_ = random_.OneIn(5);
    has_follow_ups_ = random_.OneIn(2);
    num_streams_ = random_.OneIn(3) ? 0 : random_.Between(1, 12);
    repeats_ = random_.OneIn(4);
    is_careless_ = random_.OneIn(6);
    submit_period_ = random_.OneIn(3) ? random_.Between(20, 120) : random_.Between(3, 20);
    cancel_period_ = random_.OneIn(2) ? random_.Between(10, 100) : 0;
    cancel_sample_period_ = has_samples_ && random_.OneIn(2) ? random_.Between(10, 60) : 0;
    lose_period_ = random_.OneIn(4) ? random_.Between(20, 400) : 0;
    probe_period_ = random_.OneIn(4) ? random_.Between(10, 40) : 0;
    late_period_ = random_.OneIn(8) ? 50 : 0;
    has_lost_for_ever_ = random_.OneIn(3);
    has_other_pools_ = lose_period_ > 0 && random_.OneIn(4);
    has_poisons_ = random_.OneIn(6);
    drain_period_ = random_.OneIn(6) ? random_.Between(30, 300) : 0;
    operator_period_ = random_.OneIn(8) ? random_.Between(30, 200) : 0;
    silence_period_ = random_.OneIn(8) ? random_.Between(40, 200) : 0;
    ask_period_ = random_.OneIn(6) ? random_.Between(10, 60) : 0;
    audit_period_ = random_.OneIn(5) ? random_.Between(10, 60) : 0;
    has_lies_ = random_.OneIn(2);
    has_shares_ = random_.OneIn(4);
    manager_period_ = random_.OneIn(4) ? random_.Between(20, 200) : 0;
    has_damage_ = manager_period_ > 0 && random_.OneIn(3);
  }

  // Last, so that all else is as without other numerics.
  void DrawNumerics() {
    const bool are_managers_lost = manager_period_ > 0;
    if (scenario_.workers.size() < 2 || (are_managers_lost ? random_.OneIn(3) : !random_.OneIn(2))) return;
    const bool is_approximate = are_managers_lost ? !random_.OneIn(3) : random_.OneIn(2);
    const int grace = is_approximate || random_.OneIn(3) ? scenario_.workers[0].grace : random_.Between(2, 100);
    for (SimWorker& worker : scenario_.workers) {
      worker.numerics = random_.Between(0, 1);
      worker.approximate = is_approximate;
      worker.grace = grace;
    }
    if (are_managers_lost) DrawNumericsOfRestored();
  }

  // Workers die just before the manager, so that it has moved requests to other numerics, and most of these requests
  // still run then. Some managers die twice in a row.
  void DrawNumericsOfRestored() {
    std::vector<SimWorker>& workers = scenario_.workers;
    workers[1].numerics = 1 - workers[0].numerics;
    for (auto& [id, request] : scenario_.requests) {
      if (random_.OneIn(2)) request.max_tokens += random_.Between(1, Most(40));
      const bool may_have_samples = request.beams == 0 && request.samples == 1 && request.poison_sample == 0;
      if (may_have_samples && workers[0].rows > 1 && random_.OneIn(4)) request.samples = 2;
    }
    for (const SimEvent& event : std::exchange(scenario_.events, {})) {
      const bool is_chosen = event.kind == SimEventKind::kManagerLost && !random_.OneIn(4);
      if (is_chosen) DrawMove();
      Add(event);
      if (!is_chosen || random_.OneIn(2)) continue;
      const int worker = AnyWorker();
      for (int i = 0; i < 4; ++i) DrawRoundOfAll();
      if (random_.OneIn(2)) {
        Add({SimEventKind::kLose, worker});
        Add({SimEventKind::kReturn, worker});
      } else if (random_.OneIn(2)) {
        DrawMove();
      }
      for (int i = 0; i < 4; ++i) DrawRoundOfAll();
      Add({SimEventKind::kManagerLost, random_.Between(0, 2)});
      if (has_damage_ && random_.OneIn(2)) Add({SimEventKind::kDamage, AnyWorker(), random_.Between(1, 5)});
    }
  }

  // Some requests want embeddings. They end with their calls, because they have nothing that could be restored.
  void DrawPoolings() {
    for (auto& [id, request] : scenario_.requests) {
      if (request.beams > 0 || request.samples > 1 || random_.OneIn(2)) continue;
      request.pooling = random_.Between(1, 3);
      request.resumable = 0;
    }
  }

  // Last, so that all else is as with workers of one rank. Ranks lag, die, drain and stop answering alone, and some
  // keep or draw something else than the others.
  void DrawGroups() {
    for (SimWorker& worker : scenario_.workers) worker.ranks = random_.Between(1, SimWorker::kMaxRanks);
    const int lag_period = random_.Between(1, 8);
    const int difference_period = random_.OneIn(4) ? random_.Between(20, 200) : 0;
    for (SimEvent& event : std::exchange(scenario_.events, {})) {
      const int rank = random_.Between(0, SimWorker::kMaxRanks - 1);
      const bool is_of_rank = event.kind == SimEventKind::kLose || event.kind == SimEventKind::kDrain;
      if (is_of_rank) event.argument = rank;
      if (event.kind == SimEventKind::kCommit && random_.OneIn(lag_period)) event.argument = 1 + rank;
      if (event.kind == SimEventKind::kSilence && event.argument == 1 && random_.OneIn(2)) event.argument = 2 + rank;
      if (event.kind == SimEventKind::kDamage && random_.OneIn(2)) event.argument = random_.Between(6, 7);
      Add(event);
      if (Happens(difference_period)) Add({SimEventKind::kDiverge, AnyWorker(), rank});
    }
  }

  // Last, so that all else is as without them. Many end while others run.
  void DrawPins() {
    const int percent = random_.OneIn(3) ? 100 : random_.Between(1, 60);
    for (SimWorker& worker : scenario_.workers) worker.pinned_percent = percent;
    const int longest = random_.OneIn(2) ? 30 : 1000;
    for (auto& [id, request] : scenario_.requests) {
      if (random_.OneIn(2)) continue;
      request.pin_tokens = random_.Between(1, 100);
      request.pin_events = random_.Between(1, longest);
      request.has_short_pin = random_.OneIn(3);
    }
  }

  // Requests are cancelled while the slice that makes them fail is in flight.
  void DrawLateFailures() {
    int poisoned = 0;  // The request submitted last that makes its worker fail; 0: there is none.
    for (const SimEvent& event : std::exchange(scenario_.events, {})) {
      Add(event);
      const bool submits = event.kind == SimEventKind::kSubmit;
      if (submits && scenario_.requests.at(event.subject).poison > 0) poisoned = event.subject;
      const bool cancels = event.kind == SimEventKind::kPlan && poisoned > 0 && random_.OneIn(8);
      if (cancels) Add({SimEventKind::kCancel, std::exchange(poisoned, 0)});
    }
  }

  // A worker dies, and its requests continue with others.
  void DrawMove() {
    const int lost = AnyWorker();
    Add({SimEventKind::kLose, lost});
    for (int i = random_.Between(1, 4); i > 0; --i) DrawRoundOfAll();
    if (random_.OneIn(2)) return;
    Add({SimEventKind::kReturn, lost});
    for (int i = 0; i < 4; ++i) Add({SimEventKind::kPlan, lost});
    if (random_.OneIn(2)) DrawMove();
  }

  // Last, so that all else is as without it. Workers are silent just before the manager dies, long enough that their
  // requests continue with others. The next manager then finds two workers with rows of one request.
  void DrawCopies() {
    const bool may_have_copies = scenario_.workers.size() > 1 && manager_period_ > 0 && scenario_.workers[0].keeps_rows;
    if (!may_have_copies || random_.OneIn(4)) return;
    for (SimWorker& worker : scenario_.workers) worker.timeout = random_.Between(2, 16);
    for (auto& [id, request] : scenario_.requests) {
      if (random_.OneIn(2)) request.max_tokens += random_.Between(1, Most(40));
    }
    for (const SimEvent& event : std::exchange(scenario_.events, {})) {
      const bool is_chosen = event.kind == SimEventKind::kManagerLost && random_.OneIn(2);
      const int silent = AnyWorker();
      if (is_chosen) DrawMoveFromSilent(silent);
      Add(event);
      if (is_chosen) DrawReturnOfSilent(silent);
    }
  }

  void DrawMoveFromSilent(int silent) {
    for (int i = random_.Between(0, 3); i > 0; --i) DrawRoundOfAll();
    Add({SimEventKind::kSilence, silent, 1});
    const int num_rounds = scenario_.workers[silent].timeout / 4 + random_.Between(2, 6);
    for (int i = 0; i < num_rounds; ++i) DrawRoundOfAll();
  }

  // The silent worker comes to the next manager before or behind the others. The first one continues for some rounds.
  void DrawReturnOfSilent(int silent) {
    const bool is_first = random_.OneIn(2);
    const int num_workers = static_cast<int>(scenario_.workers.size());
    for (const bool is_now_first : {true, false}) {
      if (is_now_first == is_first) Add({SimEventKind::kSilence, silent, 0});
      const int num_rounds = 4 + (is_now_first ? random_.Between(0, 2) : 0);
      for (int i = 0; i < num_rounds; ++i) {
        for (int worker = 0; worker < num_workers; ++worker) {
          if ((worker == silent) != (is_now_first == is_first)) continue;
          Add({SimEventKind::kPlan, worker});
          if (random_.OneIn(2)) Add({SimEventKind::kCommit, worker});
        }
      }
    }
  }

  void DrawRoundOfAll() {
    for (int worker = 0; worker < static_cast<int>(scenario_.workers.size()); ++worker) {
      Add({SimEventKind::kPlan, worker});
      Add({SimEventKind::kCommit, worker});
    }
  }

  int DrawBlocks() {
    if (is_small_) return random_.Between(4, 24);
    return random_.OneIn(8) ? random_.Between(256, 1024) : random_.Between(4, 256);
  }

  SimWorker DrawWorker(int num_workers) {
    SimWorker worker;
    worker.blocks = DrawBlocks();
    worker.block_size = random_.OneIn(2) ? random_.Between(1, 32) : random_.Between(1, 4);
    worker.host_blocks = random_.OneIn(2) ? random_.Between(1, 64) : 0;
    worker.prefix_cache = random_.OneIn(3) ? 0 : 1;
    worker.policy = random_.OneIn(2) ? random_.Between(0, 3) : (has_priorities_ ? 1 : 0);
    worker.is_static = random_.OneIn(16);
    worker.served_percent = random_.OneIn(16) ? random_.Between(1, 150) : 0;
    worker.step_tokens = random_.OneIn(2) ? random_.Between(1, 16) : random_.Between(16, 256);
    worker.token_budget = random_.OneIn(4) ? random_.Between(1, 100) : 0;
    worker.chunk_tokens = random_.OneIn(2) ? random_.Between(1, 8) : random_.Between(8, 128);
    worker.rows = random_.OneIn(8) ? random_.Between(16, 64) : random_.Between(1, 16);
    worker.queue = random_.OneIn(4) ? random_.Between(1, 4) : 100;
    worker.context = random_.OneIn(2) ? random_.Between(2, 200) : 400;
    worker.watermark_percent = random_.OneIn(2) ? random_.Between(0, 60) : random_.Between(0, 1);
    worker.plans_in_flight = random_.Between(1, 2);
    if (random_.OneIn(4)) worker.grace = random_.Between(2, 100);
    if (silence_period_ > 0 && !random_.OneIn(3)) worker.timeout = random_.Between(5, 60);
    if (has_other_pools_ && random_.OneIn(2)) worker.other_block_size = random_.Between(1, 16);
    worker.keeps_rows = manager_period_ > 0 && !random_.OneIn(16);
    worker.rebalances = num_workers > 1 && !random_.OneIn(4);
    if (has_shares_) worker.first_percent = random_.Between(5, 99);
    if (has_shares_ && random_.OneIn(3)) worker.others_percent = random_.Between(5, 99);
    if (random_.OneIn(4)) worker.postpones = random_.Between(2, 12);
    if (window_random_.OneIn(6)) {
      worker.window = window_random_.OneIn(2) ? window_random_.Between(1, 6) : window_random_.Between(1, 80);
      worker.window_width = window_random_.OneIn(2) ? 1 : window_random_.Between(2, 5);
      worker.prefix_cache = 0;
      worker.keeps_rows = 0;
    }
    return worker;
  }

  void DrawEvent() {
    if (random_.OneIn(submit_period_)) return DrawSubmission();
    if (num_requests_ > 0 && Happens(cancel_period_)) return Add({SimEventKind::kCancel, AnyRequest()});
    if (num_requests_ > 0 && Happens(cancel_sample_period_)) {
      return Add({SimEventKind::kCancelSample, AnyRequest(), random_.Between(0, 3)});
    }
    if (num_requests_ > 0 && Happens(probe_period_)) return Add({SimEventKind::kProbe, AnyRequest()});
    const int worker = random_.Between(0, static_cast<int>(scenario_.workers.size()) - 1);
    if (Happens(late_period_)) return Add({SimEventKind::kLateResult, worker});
    if (Happens(lose_period_)) {
      Add({has_lost_for_ever_ && random_.OneIn(3) ? SimEventKind::kLoseForEver : SimEventKind::kLose, worker});
      if (random_.OneIn(2)) DrawReturn(worker);
      return;
    }
    if (lose_period_ + drain_period_ + manager_period_ > 0 && random_.OneIn(20)) return DrawReturn(worker);
    if (Happens(manager_period_)) return DrawManagerLoss();
    if (Happens(drain_period_)) return Add({SimEventKind::kDrain, worker});
    if (Happens(operator_period_)) return Add({SimEventKind::kSetDraining, worker, random_.Between(0, 2)});
    if (silence_period_ > 0 && loops_[worker].is_silent && random_.OneIn(20)) return DrawSilence(worker, false);
    if (Happens(silence_period_)) return DrawSilence(worker, true);
    if (Happens(ask_period_)) return Add({SimEventKind::kAsk, worker});
    if (Happens(audit_period_)) return Add({SimEventKind::kAudit, worker, random_.Between(0, has_lies_ ? 5 : 1)});
    DrawStep(worker);
  }

  void DrawReturn(int worker) {
    loops_[worker] = {.is_slow = loops_[worker].is_slow, .is_silent = loops_[worker].is_silent};
    Add({SimEventKind::kReturn, worker, has_other_pools_ && random_.OneIn(3) ? DrawBlocks() : 0});
    if (random_.OneIn(2)) return;
    for (int i = 0; i < 4; ++i) Add({SimEventKind::kPlan, worker});  // It joins.
  }

  // Also with workers that die at the same time, or that tell something wrong, and managers that die while they adopt.
  void DrawManagerLoss() {
    const int num_workers = static_cast<int>(scenario_.workers.size());
    do {
      Add({SimEventKind::kManagerLost, random_.Between(0, 2)});
      for (Loop& loop : loops_) loop.num_in_flight = loop.num_results = 0;
      if (has_damage_ && random_.OneIn(2)) {
        Add({SimEventKind::kDamage, random_.Between(0, num_workers - 1), random_.Between(1, 5)});
      }
      if (random_.OneIn(5)) {
        const int worker = random_.Between(0, num_workers - 1);
        Add({has_lost_for_ever_ ? SimEventKind::kLoseForEver : SimEventKind::kLose, worker});
        if (random_.OneIn(2)) DrawReturn(worker);
      }
      for (int worker = 0; worker < num_workers; ++worker) {
        for (int i = random_.Between(0, 4); i > 0; --i) Add({SimEventKind::kPlan, worker});
      }
    } while (random_.OneIn(4));
  }

  void DrawSilence(int worker, bool is_silent) {
    loops_[worker].is_silent = is_silent;
    Add({SimEventKind::kSilence, worker, is_silent});
  }

  // In the order in which a loop and a worker that answers take turns, as far as that can be known without running the
  // scenario.
  void DrawStep(int worker) {
    Loop& loop = loops_[worker];
    const bool may_answer = loop.num_in_flight > 0 && (!loop.is_slow || random_.OneIn(6));
    if (may_answer && (loop.num_results == 0 || random_.OneIn(4))) {
      --loop.num_in_flight;
      ++loop.num_results;
      return Add({SimEventKind::kCommit, worker});
    }
    loop.num_in_flight = scenario_.workers[worker].plans_in_flight;
    loop.num_results = 0;
    Add({SimEventKind::kPlan, worker});
  }

  void DrawSubmission() {
    SimRequest request;
    request.id = ++num_requests_;
    const bool is_long = random_.OneIn(4);
    request.num_own = is_long ? random_.Between(1, Most(120)) : random_.Between(1, Most(16));
    if (repeats_) request.repeats = random_.OneIn(2);
    if (num_streams_ > 0 && !random_.OneIn(3)) {
      request.stream = random_.Between(0, num_streams_ - 1);
      request.num_shared = random_.OneIn(2) ? Most(64) : random_.Between(1, Most(80));
      if (random_.OneIn(3)) request.num_own = 0;
    }
    if (has_follow_ups_ && request.id > 1 && random_.OneIn(3)) {
      request.follows = random_.OneIn(2) ? request.id - 1 : AnyRequest();
      request.num_shared = 0;
    }
    request.max_tokens = random_.OneIn(4) ? random_.Between(1, Most(100)) : random_.Between(1, Most(20));
    if (has_stops_) request.stops = random_.OneIn(2);
    if (has_priorities_) request.priority = random_.Between(-2, 2);
    request.tenant = random_.Between(0, 2);
    if (has_salts_ && random_.OneIn(2)) request.salt = random_.Between(1, 2);
    if (has_bypass_) request.bypass_cache = random_.OneIn(4);
    if (has_logprobs_) request.prompt_logprobs = random_.OneIn(2);
    if (has_deadlines_ && random_.OneIn(2)) request.deadline = random_.Between(1, 400);
    if (has_beams_ && random_.OneIn(2)) {
      DrawBeams(&request);
    } else if (has_samples_ && random_.OneIn(2)) {
      request.samples = random_.OneIn(4) ? random_.Between(2, 16) : random_.Between(2, 4);
      if (!is_careless_) request.samples = std::min(request.samples, scenario_.workers[0].rows);
    }
    if (manager_period_ > 0) request.resumable = !random_.OneIn(8);
    if (has_poisons_ && random_.OneIn(4)) {
      request.poison = 1 + random_.Between(0, request.num_own + request.num_shared + request.max_tokens);
      request.named = random_.Between(0, 3) % 3;
      const int num_sequences = std::max(request.samples, request.beams);
      if (num_sequences > 1 && !random_.OneIn(3)) request.poison_sample = random_.Between(1, num_sequences);
    }
    scenario_.requests[request.id] = request;
    Add({SimEventKind::kSubmit, request.id});
  }

  void DrawBeams(SimRequest* request) {
    const int most = is_careless_ ? 8 : std::min(8, scenario_.workers[0].rows);
    request->groups = most >= 2 && random_.OneIn(3) ? 2 : 1;
    request->beams = request->groups * random_.Between(1, std::max(1, std::min(4, most / request->groups)));
    request->returned = random_.Between(1, request->beams);
    request->half_length_penalty = random_.Between(-2, 4);
    request->early_stopping = random_.Between(0, 2);
  }

  // Returns `num_tokens`, or less so that other requests have room.
  int Most(int num_tokens) const {
    return is_careless_ ? num_tokens : std::max(1, std::min(num_tokens, capacity_ / 4));
  }
  void Add(SimEvent event) { scenario_.events.push_back(event); }
  int AnyWorker() { return random_.Between(0, static_cast<int>(scenario_.workers.size()) - 1); }
  bool Happens(int period) { return period > 0 && random_.OneIn(period); }
  // Prefers recent requests.
  int AnyRequest() { return random_.Between(random_.OneIn(2) ? 1 : std::max(1, num_requests_ - 6), num_requests_); }

  Random random_;
  Random window_random_;  // Windows change nothing else about a scenario.
  Scenario scenario_;
  bool has_stops_ = false;
  bool has_samples_ = false;
  bool has_beams_ = false;
  bool has_salts_ = false;
  bool has_bypass_ = false;
  bool has_logprobs_ = false;
  bool has_priorities_ = false;
  bool has_deadlines_ = false;
  bool has_follow_ups_ = false;
  bool repeats_ = false;
  bool is_small_ = false;
  bool is_careless_ = false;  // Requests may be larger than the pool.
  int capacity_ = 0;          // The largest request of the first worker, in tokens.
  int num_streams_ = 0;
  int submit_period_ = 1;
  int cancel_period_ = 0;  // 0: never.
  int cancel_sample_period_ = 0;
  int lose_period_ = 0;
  int probe_period_ = 0;
  int late_period_ = 0;
  bool has_lost_for_ever_ = false;  // Some workers do not return.
  bool has_other_pools_ = false;    // Workers come back with other pools.
  bool has_poisons_ = false;        // Some requests make their workers fail.
  int drain_period_ = 0;
  int operator_period_ = 0;
  int silence_period_ = 0;
  int ask_period_ = 0;
  int audit_period_ = 0;
  int manager_period_ = 0;
  bool has_damage_ = false;  // Workers tell new managers something wrong.
  bool has_shares_ = false;  // Tenants may hold only a part of the pool.
  bool has_lies_ = false;    // Workers tell wrong block tables.
  int num_requests_ = 0;
  std::vector<Loop> loops_;  // By worker.
};

}  // namespace

Scenario DrawScenario(uint64_t seed) {
  return Drawer(seed).Draw();
}

}  // namespace quire
