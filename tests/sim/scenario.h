// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SCENARIO_H_
#define QUIRE_TESTS_SIM_SCENARIO_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/worker_link/worker_description.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/step_limit.h"

namespace quire {

// The clock advances by this before each event.
inline constexpr int64_t kMicrosPerEvent = 1000;

// The following structures are everything that one run of the simulator depends on. A scenario can be drawn from a
// seed, printed, read back and made smaller. All parameters are small integers with a default, so a printed scenario
// has only the parameters that matter. Time is counted in events: the clock advances by one millisecond before each
// event.

// A worker, its pool and the options of its step loop.
struct SimWorker {
  int blocks = 16;
  int block_size = 4;
  int window = 0;        // Above 0: half of the layers see this number of tokens. No cache and no inventory then.
  int window_width = 1;  // Blocks per sheet of these layers.
  int host_blocks = 0;
  int prefix_cache = 1;  // 1 or 0.
  int policy = 0;        // A SchedulingPolicy.
  int is_static = 0;     // 1: Batching::kStatic.
  int served_percent = 0;
  int step_tokens = 256;
  int token_budget = 0;  // The tokens for which a step has time while sequences decode; 0: any number.
  int chunk_tokens = 256;
  int rows = 16;
  int queue = 1000;
  int context = 256;
  int watermark_percent = 1;
  int plans_in_flight = 1;
  int grace = 0;             // Events that requests wait for a lost worker; 0: any number.
  int timeout = 0;           // Events that the worker may take to answer a plan; 0: any number.
  int first_percent = 100;   // The share of the pool that tenant 0 may hold.
  int others_percent = 100;  // The share of the pool that each other tenant may hold.
  int other_block_size = 0;  // The block size of every second pool that the worker has; 0: as the first.
  int keeps_rows = 0;        // 1: the rows and blocks outlive the manager, and the next manager adopts them.

  int rebalances = 0;       // 1: waiting requests move to idle workers.
  int numerics = 0;         // Workers with other numerics give other tokens.
  int approximate = 0;      // 1: --failover=approximate.
  int pinned_percent = 25;  // The share of the pool that pins may hold.

  int postpones = 0;  // Above 1: the worker puts off about one draw in this number.
  int ranks = 1;      // Number of ranks of the worker, 1 .. kMaxRanks.

  static constexpr int kMaxRanks = 4;

  double WeightOf(const std::string& tenant) const;
  // The number of blocks that the tenant may hold. Blocks that its requests share count for each of them.
  int64_t MaxBlocksOf(const std::string& tenant) const;
  // The limit of the step times. While nothing decodes, a step has time for kPromptStepRatio * token_budget tokens.
  StepLimit Limit() const;
  static constexpr int kPromptStepRatio = 3;
  StepLoopOptions LoopOptions() const;
  SchedulerOptions Options() const;
  WorkerDescription Description() const;
  // With the sizes of blocks and slices.
  CacheGroups Groups() const;
};

// The language model that all workers compute.
struct SimModel {
  int vocab = 1000;
  int stop_percent = 0;
};

// A request. Its prompt begins with the transcript of an earlier request, or with tokens of a stream that several
// requests share. Its own tokens follow.
struct SimRequest {
  int id = 0;          // 1, 2, 3, ...
  int follows = 0;     // The prompt begins with the prompt and the first output of this request; 0: none.
  int stream = 0;      // Streams 4 * i .. 4 * i + 3 share 16 tokens; 2 * i and 2 * i + 1 share 48.
  int num_shared = 0;  // The number of tokens from the stream.
  int num_own = 0;
  int repeats = 0;  // 1: all its own tokens are the same, so slots are easily confused.
  int max_tokens = 1;
  int stops = 0;  // 1: it ends at the stop token.
  int priority = 0;
  int tenant = 0;
  int salt = 0;
  int bypass_cache = 0;     // 0 or 1.
  int resumable = 0;        // 1: its rows have a record, so another manager can continue it.
  int prompt_logprobs = 0;  // 0 or 1.
  int pooling = 0;          // A Pooling. Unless it is 0, the request wants the embedding of its prompt and no tokens.
  int pin_tokens = 0;       // It pins this number of tokens of its prompt, or all; 0: none.
  int pin_events = 1;       // Events until the pin ends.
  int has_short_pin = 0;    // 1: it also pins half of these tokens, for twice the time.
  int deadline = 0;         // Events until its deadline; 0: no deadline.
  int samples = 1;
  int beams = 0;  // 0: no beam search.
  int groups = 1;
  int returned = 1;
  int half_length_penalty = 2;  // The length penalty in halves.
  int early_stopping = 0;       // An EarlyStopping.
  int poison = 0;  // The worker fails when it computes this token of the request, counted from 1; 0: it never does.
  // 1: the worker then names the sequence and stays alive. 2: it reports that the sequence has failed, and its session
  // continues.
  int named = 0;
  int poison_sample = 0;  // Only sample poison_sample - 1 makes the worker fail, or some beams, see Poison; 0: all do.

  uint64_t seed() const;
  // `transcript` is the prompt and the first output of the request that it follows.
  std::vector<TokenId> Prompt(absl::Span<const TokenId> transcript) const;
  Request Build(absl::Span<const TokenId> transcript) const;
};

// The record of a request with this id. Its client has started it again `num_repeats` times.
std::string RecordOf(int request, int num_repeats = 0);
// The id of the request. Nothing when it is no such record.
std::optional<int> RequestOfRecord(absl::string_view record);

enum class SimEventKind {
  kSubmit,        // The request is submitted.
  kCancel,        // The request is cancelled.
  kCancelSample,  // The caller ends the sample `argument` of the request.
  kPlan,          // The step loop of the worker runs a round.
  // The worker executes its oldest plan and sends the result. If `argument` is above 0, rank argument - 1 sends it
  // later.
  kCommit,
  kLose,         // The rank `argument` of the worker dies.
  kLoseForEver,  // The worker dies and does not return, if another worker is left.
  kReturn,       // A dead worker restarts with an empty pool, which has `argument` blocks if this is above 0.
  kLateResult,   // The worker's last result arrives once more.
  kProbe,        // The cached blocks of the request are compared with what they should hold.
  kDrain,        // The rank `argument` drains: it ends with its session.
  kSetDraining,  // The operator drains the worker (`argument` 1), also by moving its requests (2), or ends that (0).
  kSilence,      // The worker (`argument` 1) or its rank argument - 2 stops answering, or all continue (0).
  kAsk,          // The step loop is asked a question.
  kAudit,        // The step loop is asked to compare block tables; `argument` is a SimAudit.
  // The manager dies with all its step loops, and a new one starts that knows nothing. Each worker still finishes
  // `subject` of the plans that it has.
  kManagerLost,
  kDamage,   // What the worker tells the next manager about its rows is wrong; `argument` is a SimDamage.
  kDiverge,  // The next result of the rank `argument` differs from the other ranks' results.
};

// What is wrong with an inventory.
enum class SimDamage {
  kNothing,
  kCutRows,      // Every second row is missing.
  kCutLabels,    // The second half of the labels is missing.
  kStaleRows,    // The rows lack the last token that the worker has. It then refuses plans and loses its session.
  kWrongTables,  // Entries of block tables name other blocks.
  kForgotten,    // The worker has nothing any more: the time for which it keeps its rows has passed.
  // Of a group:
  kOneForgotten,  // One rank has nothing any more.
  kOtherRows,     // One rank has kept other rows than the others.
};

// Whether an audit repairs the block tables that it compares, and which tables the worker reports.
enum class SimAudit {
  kCompare,              // The worker reports its real tables.
  kRepair,               // The same, and differences are to be repaired.
  kWrongBlock,           // The worker reports a wrong first block.
  kRepairWrongBlock,     // The same, and differences are to be repaired.
  kWrongSequence,        // The worker reports a wrong sequence.
  kRepairWrongSequence,  // The same, and differences are to be repaired: the session must end.
};

struct SimEvent {
  SimEventKind kind;
  int subject = 0;  // The request (1, 2, 3, ...) or the worker (0, 1, 2, ...).
  int argument = 0;

  bool operator==(const SimEvent&) const = default;
};

struct Scenario {
  SimModel model;
  std::vector<SimWorker> workers;
  std::map<int, SimRequest> requests;  // By id.
  // The events in their order. An event that makes no sense in its turn (a commit with no plan in flight) does nothing.
  // After the last event the workers return, except those that were lost for ever, and all loops run until all requests
  // have ended.
  std::vector<SimEvent> events;
};

// Returns INVALID_ARGUMENT if a parameter has a value that validation in the manager would refuse.
absl::Status CheckScenario(const Scenario& scenario);

// Names and members of the parameters. Printing, reading and shrinking go through these tables.
template <typename T>
struct SimField {
  const char* name;
  int T::*value;
};
absl::Span<const SimField<SimWorker>> WorkerFields();
absl::Span<const SimField<SimModel>> ModelFields();
absl::Span<const SimField<SimRequest>> RequestFields();  // All fields except the id.

// One line per worker and event. Parameters that have their default are left out.
std::string PrintScenario(const Scenario& scenario);

// Returns INVALID_ARGUMENT with the wrong line.
absl::StatusOr<Scenario> ParseScenario(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SCENARIO_H_
