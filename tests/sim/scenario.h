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
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// Everything that one run of the simulator depends on, as a value: it can be drawn from a seed, printed, read back and
// made smaller. All parameters are small integers with a default, so that a printed scenario names only what matters.

// A worker, its pool and the options of its scheduler.
struct SimWorker {
  int blocks = 16;
  int block_size = 4;
  int host_blocks = 0;
  int prefix_cache = 1;  // Or 0.
  int policy = 0;        // SchedulingPolicy.
  int is_static = 0;     // Or 1: Batching::kStatic.
  int served_percent = 0;
  int step_tokens = 256;
  int token_budget = 0;  // Of SetTokenBudget; 0: not called.
  int chunk_tokens = 256;
  int rows = 16;
  int queue = 1000;
  int context = 256;
  int watermark_percent = 1;
  int plans_in_flight = 1;

  PagedBlockManagerOptions BlockOptions() const;
  SchedulerOptions Options() const;
};

// What every run has in common, whatever the worker.
struct SimModel {
  int vocab = 1000;
  int stop_percent = 0;
};

// A request. Its prompt is the transcript of an earlier request or the beginning of a stream that others begin with,
// and tokens of its own.
struct SimRequest {
  int id = 0;          // 1, 2, 3, ...
  int follows = 0;     // The request whose prompt and first output come first; 0: none.
  int stream = 0;      // Streams 4 * i .. 4 * i + 3 agree in 16 tokens, 2 * i and 2 * i + 1 in 48.
  int num_shared = 0;  // Tokens of the stream.
  int num_own = 0;
  int repeats = 0;  // Or 1: its own tokens are all the same, hence the easiest to mix up.
  int max_tokens = 1;
  int stops = 0;  // Or 1: at the stop token.
  int priority = 0;
  int tenant = 0;
  int salt = 0;
  int bypass_cache = 0;     // Or 1.
  int prompt_logprobs = 0;  // Or 1.
  int deadline = 0;         // Events that it has; 0: any number.
  int samples = 1;
  int beams = 0;  // 0: it draws.
  int groups = 1;
  int returned = 1;
  int half_length_penalty = 2;  // In halves.
  int early_stopping = 0;       // EarlyStopping.

  uint64_t seed() const;
  // `transcript` is that of the request that it follows.
  std::vector<TokenId> Prompt(absl::Span<const TokenId> transcript) const;
  Request Build(absl::Span<const TokenId> transcript) const;
};

enum class SimEventKind {
  kSubmit,        // Of the request.
  kCancel,        // Of the request.
  kCancelSample,  // Of the request.
  kPlan,          // By the worker's scheduler.
  kCommit,        // The worker executes its oldest plan.
  kLose,          // The worker dies.
  kReturn,        // It starts again, empty.
  kLateResult,    // The worker's last result comes once more.
  kProbe,         // Whatever the worker's cache has of the request is compared with what it should be.
};

struct SimEvent {
  SimEventKind kind;
  int subject = 0;  // A request or a worker, from 1 and from 0 on.
  int sample = 0;

  bool operator==(const SimEvent&) const = default;
};

struct Scenario {
  SimModel model;
  std::vector<SimWorker> workers;
  std::map<int, SimRequest> requests;  // By id.
  // In this order. What makes no sense when its turn comes (a commit with nothing in flight) is passed over. After the
  // last one, plans are made and committed until all requests have ended.
  std::vector<SimEvent> events;
};

// INVALID_ARGUMENT when a parameter is one that nobody can ask for, because validation above the core refuses it.
absl::Status CheckScenario(const Scenario& scenario);

// Name and place of the parameters, for whoever prints, reads or shrinks them.
template <typename T>
struct SimField {
  const char* name;
  int T::*value;
};
absl::Span<const SimField<SimWorker>> WorkerFields();
absl::Span<const SimField<SimModel>> ModelFields();
absl::Span<const SimField<SimRequest>> RequestFields();  // Without the id.

// One line per worker and event, without what has its default.
std::string PrintScenario(const Scenario& scenario);

// INVALID_ARGUMENT names the line.
absl::StatusOr<Scenario> ParseScenario(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SCENARIO_H_
