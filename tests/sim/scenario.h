#ifndef QUIRE_TESTS_SIM_SCENARIO_H_
#define QUIRE_TESTS_SIM_SCENARIO_H_

#include <cstdint>
#include <map>
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

namespace quire {

// The clock advances by this before each event.
inline constexpr int64_t kMicrosPerEvent = 1000;

// Everything that one run of the simulator depends on, as a value: it can be drawn from a seed, printed, read back and
// made smaller. All parameters are small integers with a default, so that a printed scenario names only what matters.
// Time is counted in events: the clock advances by one millisecond before each.

// A worker, its pool and the options of its step loop.
struct SimWorker {
  int blocks = 16;
  int block_size = 4;
  int host_blocks = 0;
  int prefix_cache = 1;  // Or 0.
  int policy = 0;        // SchedulingPolicy.
  int is_static = 0;     // Or 1: Batching::kStatic.
  int served_percent = 0;
  int step_tokens = 256;
  int token_budget = 0;  // The argument of SetTokenBudget; 0: it is not called.
  int chunk_tokens = 256;
  int rows = 16;
  int queue = 1000;
  int context = 256;
  int watermark_percent = 1;
  int plans_in_flight = 1;
  int grace = 0;    // Events that requests wait for a lost worker; 0: any number.
  int timeout = 0;  // Events that the worker may take to answer a plan; 0: any number.

  StepLoopOptions LoopOptions() const;
  SchedulerOptions Options() const;
  WorkerDescription Description() const;
};

// The language model that all workers compute.
struct SimModel {
  int vocab = 1000;
  int stop_percent = 0;
};

// A request. Its prompt is the transcript of an earlier request or the beginning of a stream that others begin with,
// and tokens of its own.
struct SimRequest {
  int id = 0;          // 1, 2, 3, ...
  int follows = 0;     // The prompt begins with the prompt and the first output of this request; 0: none.
  int stream = 0;      // Streams 4 * i .. 4 * i + 3 agree in 16 tokens, 2 * i and 2 * i + 1 in 48.
  int num_shared = 0;  // Tokens of the stream.
  int num_own = 0;
  int repeats = 0;  // Or 1: its own tokens are all the same, so they are easy to mix up.
  int max_tokens = 1;
  int stops = 0;  // Or 1: at the stop token.
  int priority = 0;
  int tenant = 0;
  int salt = 0;
  int bypass_cache = 0;     // Or 1.
  int prompt_logprobs = 0;  // Or 1.
  int deadline = 0;         // Events until its deadline; 0: it has none.
  int samples = 1;
  int beams = 0;  // 0: it draws.
  int groups = 1;
  int returned = 1;
  int half_length_penalty = 2;  // In halves.
  int early_stopping = 0;       // EarlyStopping.

  uint64_t seed() const;
  // `transcript` is the prompt and the first output of the request that it follows.
  std::vector<TokenId> Prompt(absl::Span<const TokenId> transcript) const;
  Request Build(absl::Span<const TokenId> transcript) const;
};

enum class SimEventKind {
  kSubmit,        // The request is submitted.
  kCancel,        // The request is cancelled.
  kCancelSample,  // The caller ends the sample `argument` of the request.
  kPlan,          // The step loop of the worker runs a round.
  kCommit,        // The worker executes its oldest plan and sends the result.
  kLose,          // The worker dies.
  kReturn,        // A worker that is dead starts again, empty; with `argument` > 0 its pool has so many blocks.
  kLateResult,    // The worker's last result arrives once more.
  kProbe,         // What the worker's cache holds of the request is compared with what it should hold.
  kDrain,         // The worker says that it drains; it ends with its session.
  kSetDraining,   // The operator drains the worker (`argument` 1), or no longer (0).
  kSilence,       // The worker stops answering (`argument` 1), or goes on (0).
  kAsk,           // The step loop is asked a question.
  kAudit,         // The step loop is asked to compare block tables; `argument` is a SimAudit.
};

// How a comparison of block tables is asked for, and what the worker tells.
enum class SimAudit {
  kCompare,              // The worker tells its tables as they are.
  kRepair,               // The same, and differences are to be repaired.
  kWrongBlock,           // The worker tells a wrong first block.
  kRepairWrongBlock,     // The same, and differences are to be repaired.
  kWrongSequence,        // The worker tells a wrong sequence.
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
  // In this order. An event that makes no sense when its turn comes (a commit with nothing in flight) does nothing.
  // After the last event the workers return and all loops run until all requests have ended.
  std::vector<SimEvent> events;
};

// INVALID_ARGUMENT when a parameter has a value that validation above the core would refuse.
absl::Status CheckScenario(const Scenario& scenario);

// Name and place of the parameters. Printing, reading and shrinking go through these tables.
template <typename T>
struct SimField {
  const char* name;
  int T::*value;
};
absl::Span<const SimField<SimWorker>> WorkerFields();
absl::Span<const SimField<SimModel>> ModelFields();
absl::Span<const SimField<SimRequest>> RequestFields();  // Without the id.

// One line per worker and event. Parameters that have their default are left out.
std::string PrintScenario(const Scenario& scenario);

// INVALID_ARGUMENT names the line.
absl::StatusOr<Scenario> ParseScenario(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SCENARIO_H_
