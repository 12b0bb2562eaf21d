// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/soak.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process_usage.h"
#include "base/status.h"
#include "kv_manager/engine/placement.h"
#include "tests/random.h"
#include "tests/sim/placement_audit.h"
#include "tests/sim/sim_caller.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

constexpr int kNumWorkers = 3;
constexpr int kNumBlocks = 160;  // Of each worker's first pool.
constexpr int kMaxPrompt = 260;  // Tokens of a prompt with the transcript that it follows.
constexpr int64_t kMillisecond = 1000;
constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kMeanArrivalUs = 250 * kMillisecond;
constexpr int kBusyFactor = 10;
// Number of requests that come to one worker at once at the beginning, more than its queue holds.
constexpr int kNumAtOnce = 1000;
constexpr int64_t kMeanFaultUs = 45 * kSecond;
constexpr int64_t kMeanRolloutUs = 1800 * kSecond;
constexpr size_t kNumRecent = 16;
// Within this simulated time all requests end when no more come and no more faults happen.
constexpr int64_t kCalmUs = 1800 * kSecond;

SimWorker FirstWorker() {
  SimWorker worker;
  worker.blocks = kNumBlocks;
  worker.block_size = 8;
  worker.other_block_size = 16;
  worker.host_blocks = 48;
  worker.policy = static_cast<int>(SchedulingPolicy::kFairShare);
  worker.rows = 24;
  worker.queue = 200;
  worker.context = 400;
  worker.watermark_percent = 5;
  worker.plans_in_flight = 2;
  worker.grace = 30'000;
  worker.timeout = 2'000;
  return worker;
}

class Soak {
 public:
  Soak(const SoakOptions& options, std::map<std::string, int64_t>* num_faults)
      : options_(options), num_faults_(num_faults), random_(options.seed) {
    for (int i = 0; i < kNumWorkers; ++i) {
      nodes_.emplace_back().engine = std::make_unique<SimEngine>(FirstWorker(), model_, &clock_, SimEngine::Hooks());
    }
  }

  absl::Status Run(const std::function<void(const QuietMoment&)>& on_quiet) {
    QUIRE_RETURN_IF_ERROR(FillContainers());
    while (clock_.NowMicros() < options_.length_us) {
      InLoad(kMeanArrivalUs, [this] { return Arrive(); });
      InLoad(kMeanFaultUs, [this] { return DrawFault(); });
      InLoad(kMeanRolloutUs, [this] { return RollOut(0); });
      const int64_t end = std::min(clock_.NowMicros() + options_.quiet_us, options_.length_us);
      while (clock_.NowMicros() < end) QUIRE_RETURN_IF_ERROR(Advance());
      QUIRE_RETURN_IF_ERROR(BecomeQuiet());
      on_quiet(Look());
    }
    return absl::OkStatus();
  }

 private:
  // A worker with its loop.
  struct Node {
    std::unique_ptr<SimEngine> engine;
    int64_t answer_us = kNever;  // When the worker has executed its oldest plan.
    bool is_busy = false;        // A fault of this worker is not over.
    bool is_joining =
        false;            // Whether it comes back in another generation; then it gets no requests before it has joined.
    CallerTotals totals;  // Of its requests that have ended.
  };
  struct Placed {
    std::shared_ptr<SimCaller> caller;
    Node* node;
  };
  using Action = std::function<absl::Status()>;

  void In(int64_t us, Action action) { timers_.emplace(clock_.NowMicros() + us, std::move(action)); }

  // The same after a random time, unless no more load shall come then.
  void InLoad(int64_t mean_us, Action action) {
    load_.emplace(clock_.NowMicros() + Exponential(mean_us), std::move(action));
  }

  int64_t Exponential(int64_t mean_us) {
    const double uniform = static_cast<double>(random_.Next() >> 11) * 0x1p-53;
    return static_cast<int64_t>(-std::log1p(-uniform) * static_cast<double>(mean_us));
  }

  // Containers get their full size, so that it does not depend on the load when they do. There are two, because a loop
  // and its inbox exchange theirs.
  absl::Status FillContainers() {
    for (int i = 0; i < 2 * kNumWorkers; ++i) {
      for (int k = 0; k < kNumWorkers; ++k) {
        QUIRE_RETURN_IF_ERROR(nodes_[k].engine->SetDraining(k != i % kNumWorkers));
      }
      for (int n = 0; n < kNumAtOnce; ++n) QUIRE_RETURN_IF_ERROR(Submit());
      QUIRE_RETURN_IF_ERROR(RunUntilIdle());
    }
    for (const Node& node : nodes_) QUIRE_RETURN_IF_ERROR(node.engine->SetDraining(false));
    return absl::OkStatus();
  }

  // Moves on to the next moment at which something happens.
  absl::Status Advance() {
    int64_t next = kNever;
    for (const auto* timers : {&timers_, &load_}) {
      if (!timers->empty()) next = std::min(next, timers->begin()->first);
    }
    for (const Node& node : nodes_) {
      next = std::min({next, node.answer_us, node.engine->IsRoundDue() ? clock_.NowMicros() : node.engine->wake_us()});
    }
    if (next == kNever) return Violation("everybody sleeps");
    clock_.Advance(std::max<int64_t>(next - clock_.NowMicros(), 0));
    for (auto* const timers : {&timers_, &load_}) {
      while (!timers->empty() && timers->begin()->first <= clock_.NowMicros()) {
        const Action action = std::move(timers->extract(timers->begin()).mapped());
        QUIRE_RETURN_IF_ERROR(action());
      }
    }
    for (Node& node : nodes_) {
      if (node.answer_us <= clock_.NowMicros()) {
        QUIRE_RETURN_IF_ERROR(node.engine->Answer());
        node.answer_us = kNever;
      }
      if (node.engine->IsRoundDue()) QUIRE_RETURN_IF_ERROR(node.engine->RunRound());
      if (!node.engine->has_plan()) {
        node.answer_us = kNever;
      } else if (node.answer_us == kNever) {
        node.answer_us = clock_.NowMicros() + random_.Between(4, 30) * kMillisecond;
      }
    }
    return absl::OkStatus();
  }

  // The next request comes. In ten minutes of every hour they come much faster.
  absl::Status Arrive() {
    const bool is_busy = clock_.NowMicros() / (600 * kSecond) % 6 == 5;
    InLoad(is_busy ? kMeanArrivalUs / kBusyFactor : kMeanArrivalUs, [this] { return Arrive(); });
    const int num_requests = random_.OneIn(200) ? random_.Between(10, 40) : 1;
    for (int i = 0; i < num_requests; ++i) QUIRE_RETURN_IF_ERROR(Submit());
    ForgetEnded();
    return absl::OkStatus();
  }

  SimRequest DrawRequest() {
    SimRequest request;
    request.id = ++num_requests_;
    request.num_own = random_.Between(4, 40);
    request.max_tokens = random_.Between(4, 60);
    request.stops = 1;
    request.tenant = random_.Between(0, 2);
    request.priority = random_.Between(-2, 2);
    const int kind = random_.Below(100);
    if (kind < 12) {  // A long prompt.
      request.num_own = random_.Between(120, kMaxPrompt);
      request.max_tokens = random_.Between(1, 20);
    } else if (kind < 30) {  // A shared prefix.
      request.stream = random_.Between(0, 11);
      request.num_shared = random_.Between(16, 80);
    } else if (kind < 38) {
      request.samples = random_.Between(2, 6);
    } else if (kind < 45) {
      request.groups = random_.OneIn(3) ? 2 : 1;
      request.beams = request.groups * random_.Between(1, 3);
      request.returned = random_.Between(1, request.beams);
      request.early_stopping = random_.Between(0, 2);
    } else if (kind < 70) {
      request.follows = 1;  // A recent request.
    }
    if (random_.OneIn(10)) request.salt = random_.Between(1, 3);
    if (random_.OneIn(30)) request.bypass_cache = 1;
    if (random_.OneIn(30)) request.prompt_logprobs = 1;
    if (request.beams == 0 && request.samples == 1 && random_.OneIn(8)) request.pooling = random_.Between(1, 3);
    if (random_.OneIn(8)) request.deadline = random_.Between(10, 20'000);
    if (random_.OneIn(1500)) {
      request.poison = 1 + random_.Between(0, request.num_own + request.max_tokens);
      request.named = random_.Between(0, 3) % 3;
    }
    return request;
  }

  absl::Status Submit() {
    const SimRequest drawn = DrawRequest();
    std::vector<TokenId> transcript;
    if (drawn.follows != 0 && !recent_.empty()) {
      transcript = recent_[random_.Below(static_cast<int>(recent_.size()))]->Transcript(0);
      if (static_cast<int>(transcript.size()) > kMaxPrompt) transcript.clear();
    }
    Request request = drawn.Build(transcript);
    request.generation = ServedGeneration();
    request.arrival_us = clock_.NowMicros();
    request.deadline_us = drawn.deadline == 0 ? kNever : clock_.NowMicros() + drawn.deadline * kMillisecond;
    const PlacementRequest wanted{.generation = request.generation,
                                  .num_prompt_tokens = static_cast<int>(request.prompt.size()),
                                  .num_rows = NumRows(request),
                                  .max_blocks = [&](const CacheGroups& groups) { return MostBlocks(request, groups); }};
    std::vector<WorkerLoad> loads;
    for (const Node& node : nodes_) {
      QUIRE_ASSIGN_OR_RETURN(loads.emplace_back(), node.engine->Load(request));
      if (node.is_joining) loads.back().generation = GenerationId{UINT64_MAX};
    }
    QUIRE_ASSIGN_OR_RETURN(const std::optional<int> chosen, ChooseWorkerAudited(loads, wanted));
    if (!chosen.has_value()) return absl::OkStatus();
    std::optional<Poison> poison;
    if (drawn.poison > 0) poison = {request.sampling.seed, drawn.poison - 1, drawn.named == 1, drawn.named == 2};
    const auto caller = std::make_shared<SimCaller>(std::move(request), model_, poison);
    Node* const node = &nodes_[*chosen];
    placed_.push_back({caller, node});
    recent_.push_back(caller);
    if (recent_.size() > kNumRecent) recent_.pop_front();
    if (random_.OneIn(12)) {
      In(Exponential(kSecond), [this, caller, node] {
        if (random_.OneIn(2)) {
          node->engine->Cancel(caller.get());
        } else {
          node->engine->CancelSample(caller.get(), random_.Below(caller->num_outputs()));
        }
        return absl::OkStatus();
      });
    }
    return node->engine->Submit(caller);
  }

  // As the manager chooses it: the newest generation that has a ready worker, or else one that may return.
  GenerationId ServedGeneration() const {
    std::optional<GenerationId> ready;
    GenerationId waiting{0};
    for (const Node& node : nodes_) {
      if (node.is_joining) continue;
      const GenerationId generation = node.engine->generation();
      if (node.engine->is_ready()) ready = std::max(ready.value_or(generation), generation);
      waiting = std::max(waiting, generation);
    }
    return ready.value_or(waiting);
  }

  // Counts the requests that have ended and forgets them.
  void ForgetEnded() {
    std::erase_if(placed_, [](const Placed& placed) {
      if (!placed.caller->has_ended()) return false;
      if (!SimEngine::IsRefusal(placed.caller->failure())) placed.node->totals.Add(*placed.caller);
      return true;
    });
  }

  void Count(const std::string& fault) { ++(*num_faults_)[fault]; }

  absl::Status DrawFault() {
    InLoad(kMeanFaultUs, [this] { return DrawFault(); });
    Node* const node = &nodes_[random_.Below(kNumWorkers)];
    SimEngine* const engine = node->engine.get();
    switch (random_.Below(8)) {
      case 0:
        Count("question");
        engine->Ask();
        return absl::OkStatus();
      case 1:
        Count("audit of the block tables");
        engine->Audit(static_cast<SimAudit>(random_.Between(0, 5)));
        return absl::OkStatus();
      case 2:
        Count("result that comes twice");
        engine->RepeatLastResult();
        return absl::OkStatus();
      default:
        break;
    }
    if (node->is_busy) return absl::OkStatus();
    node->is_busy = true;
    // Sometimes requests wait in vain.
    const int64_t away_us = random_.OneIn(10) ? 40 * kSecond : random_.Between(100, 10'000) * kMillisecond;
    switch (random_.Below(4)) {
      case 0: {
        const int num_blocks = random_.OneIn(2) ? random_.Between(60, 240) : 0;
        Count(num_blocks == 0 ? "loss" : "loss, return with another pool");
        engine->Lose();
        In(away_us, [node, num_blocks] {
          node->engine->Return(num_blocks);
          node->is_busy = false;
          return absl::OkStatus();
        });
        break;
      }
      case 1:
        Count("hang");
        engine->SetSilent(true);
        In(random_.Between(100, 6'000) * kMillisecond, [node] {
          node->engine->SetSilent(false);
          node->is_busy = false;
          return absl::OkStatus();
        });
        break;
      case 2:
        Count("drain of the worker");
        engine->Drain();
        AwaitEnd(node, away_us, engine->generation());
        break;
      case 3:
        Count("drain by the operator");
        In(random_.Between(100, 30'000) * kMillisecond, [node] {
          node->is_busy = false;
          return node->engine->SetDraining(false);
        });
        return engine->SetDraining(true);
    }
    return absl::OkStatus();
  }

  // When the worker that drains has ended, it is started again after `away_us`, in this generation.
  void AwaitEnd(Node* node, int64_t away_us, GenerationId generation) {
    In(100 * kMillisecond, [this, node, away_us, generation]() -> absl::Status {
      if (node->engine->is_alive()) {
        AwaitEnd(node, away_us, generation);
        return absl::OkStatus();
      }
      In(away_us, [this, node, generation]() -> absl::Status {
        if (generation != node->engine->generation()) {
          node->is_joining = true;
          // The loop takes what was submitted before.
          QUIRE_RETURN_IF_ERROR(node->engine->RunRound());
          node->engine->SetGeneration(generation);
        }
        node->engine->Return(/*num_blocks=*/0);
        AwaitJoin(node);
        return absl::OkStatus();
      });
      return absl::OkStatus();
    });
  }

  void AwaitJoin(Node* node) {
    In(20 * kMillisecond, [this, node] {
      if (node->engine->is_ready()) {
        node->is_joining = false;
        node->is_busy = false;
      } else {
        AwaitJoin(node);
      }
      return absl::OkStatus();
    });
  }

  // Restarts one worker after the other with another model.
  absl::Status RollOut(int worker) {
    if (worker == kNumWorkers) return absl::OkStatus();
    Node* const node = &nodes_[worker];
    if (node->is_busy) {
      In(kSecond, [this, worker] { return RollOut(worker); });
      return absl::OkStatus();
    }
    if (worker == 0) {
      Count("rollout");
      ++newest_;
      InLoad(kMeanRolloutUs, [this] { return RollOut(0); });
    }
    node->is_busy = true;
    node->engine->Drain();
    AwaitEnd(node, random_.Between(1, 10) * kSecond, GenerationId{newest_});
    In(kSecond, [this, worker] { return RollOut(worker + 1); });
    return absl::OkStatus();
  }

  // No more requests come, all faults end, all requests end, and the workers restart with empty pools of their first
  // size. Then checks that nothing is left.
  absl::Status BecomeQuiet() {
    load_.clear();
    QUIRE_RETURN_IF_ERROR(RunUntilIdle());
    ForgetEnded();
    if (!placed_.empty()) return Violation(placed_.size(), " requests have not ended");
    for (const Node& node : nodes_) QUIRE_RETURN_IF_ERROR(node.engine->CheckQuiet(node.totals));
    for (Node& node : nodes_) {
      node.engine->ForgetPoisons();
      do {  // Every restart changes the block size.
        node.engine->Lose();
        node.engine->Return(kNumBlocks);
        QUIRE_RETURN_IF_ERROR(RunUntilIdle());
      } while (node.engine->block_size() != FirstWorker().block_size);
      QUIRE_RETURN_IF_ERROR(node.engine->CheckQuiet(node.totals));
    }
    recent_.clear();
    return absl::OkStatus();
  }

  absl::Status RunUntilIdle() {
    const int64_t end = clock_.NowMicros() + kCalmUs;
    while (clock_.NowMicros() < end) {
      const bool is_idle = timers_.empty() && std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
                             return node.engine->is_idle() && !node.is_busy;
                           });
      if (is_idle) return absl::OkStatus();
      QUIRE_RETURN_IF_ERROR(Advance());
    }
    return Violation("requests do not end although nothing else happens");
  }

  QuietMoment Look() const {
    QuietMoment moment;
    moment.hour = Seconds(clock_.NowMicros()) / 3600;
    for (const Node& node : nodes_) moment.report.Add(node.engine->Report());
    moment.heap_bytes = HeapBytes();
    moment.resident_bytes = ReadProcessUsage().resident_bytes;
    return moment;
  }

  // malloc counts the few blocks of each size that it keeps for this thread as allocated. Here they are taken, and as
  // many more as it can keep, so that their number is always the same.
  static int64_t HeapBytes() {
    constexpr size_t kMaxKept = 1040;  // Bytes of the largest such block.
    std::vector<std::unique_ptr<char[]>> kept;
    kept.reserve(kMaxKept);
    for (size_t size = 16; size <= kMaxKept; size += 16) {
      for (int i = 0; i < 7; ++i) kept.push_back(std::make_unique<char[]>(size - 8));
    }
    malloc_trim(0);
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  }

  const SoakOptions options_;
  std::map<std::string, int64_t>* const num_faults_;
  Random random_;
  const ShadowModel model_{.vocab_size = 1000, .stop_percent = 2};
  ManualClock clock_;
  std::vector<Node> nodes_;
  std::multimap<int64_t, Action> timers_;  // By time.
  std::multimap<int64_t, Action> load_;    // Requests and faults to come, by time.
  std::vector<Placed> placed_;             // Requests that have not ended, or were not counted yet.
  std::deque<std::shared_ptr<SimCaller>> recent_;
  int num_requests_ = 0;
  uint64_t newest_ = 0;  // The newest generation.
};

}  // namespace

absl::Status RunSoak(const SoakOptions& options, const std::function<void(const QuietMoment&)>& on_quiet,
                     std::map<std::string, int64_t>* num_faults) {
  SetLogLevel(LogLevel::kError);  // Lost workers would fill the log.
  return Soak(options, num_faults).Run(on_quiet);
}

}  // namespace quire
