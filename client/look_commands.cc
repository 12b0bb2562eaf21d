#include "client/look_commands.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/request_tree.h"
#include "client/top_view.h"

namespace quire {
namespace {

constexpr absl::Duration kDrainPollInterval = absl::Milliseconds(200);

std::string Age(uint64_t age_ms) {
  const absl::Duration age = absl::Milliseconds(age_ms);
  return absl::FormatDuration(age < absl::Seconds(10) ? absl::Floor(age, absl::Milliseconds(100))
                                                      : absl::Floor(age, absl::Seconds(1)));
}

const char* StateName(v1::RequestState state) {
  switch (state) {
    case v1::REQUEST_STATE_RUNNING:
      return "running";
    case v1::REQUEST_STATE_SWAPPED:
      return "swapped";
    case v1::REQUEST_STATE_WAITING:
      return "waiting";
    default:
      return "unknown";
  }
}

const char* KindName(v1::AuditDifference::Kind kind) {
  switch (kind) {
    case v1::AuditDifference::KIND_REFERENCES:
      return "references to block";
    case v1::AuditDifference::KIND_COPIES:
      return "copies in flight of block";
    case v1::AuditDifference::KIND_HOST_REFERENCES:
      return "references to host block";
    case v1::AuditDifference::KIND_CACHED:
      return "cache's mark of block";
    default:
      return "block";
  }
}

const char* KindName(v1::RowDifference::Kind kind) {
  switch (kind) {
    case v1::RowDifference::KIND_SEQUENCE:
      return "its sequence";
    case v1::RowDifference::KIND_COMPUTED_TOKENS:
      return "tokens computed";
    case v1::RowDifference::KIND_TABLE_LENGTH:
      return "length of its block table";
    case v1::RowDifference::KIND_BLOCK:
      return "block";
    default:
      return "it";
  }
}

void PrintDifference(const v1::RowDifference& difference) {
  std::string what = KindName(difference.kind());
  if (difference.kind() == v1::RowDifference::KIND_BLOCK) absl::StrAppend(&what, " ", difference.index());
  std::printf("  row %u of %s: %s is %llu, should be %llu\n", difference.row(),
              Printable(difference.request_id()).c_str(), what.c_str(),
              static_cast<unsigned long long>(difference.found()),
              static_cast<unsigned long long>(difference.expected()));
}

void PrintAudit(const v1::WorkerAudit& audit) {
  if (audit.num_blocks() == 0) {
    std::printf("worker %s has not joined yet\n", audit.worker().c_str());
    return;
  }
  std::printf("worker %s, step %llu: %u blocks, %llu references, %u differences%s\n", audit.worker().c_str(),
              static_cast<unsigned long long>(audit.step()), audit.num_blocks(),
              static_cast<unsigned long long>(audit.num_references()), audit.num_differences(),
              audit.is_repaired() ? ", repaired" : "");
  for (const v1::AuditDifference& difference : audit.differences()) {
    std::printf("  %s %u: counted %d, found %d\n", KindName(difference.kind()), difference.block(),
                difference.counted(), difference.recomputed());
  }
  if (!audit.contradiction().empty()) std::printf("  %s\n", audit.contradiction().c_str());
  if (!audit.rows_not_compared().empty()) {
    std::printf("  its rows were not compared: %s\n", audit.rows_not_compared().c_str());
    return;
  }
  std::printf("  %u rows of the worker compared, %u differ\n", audit.num_rows(), audit.num_row_differences());
  for (const v1::RowDifference& difference : audit.row_differences()) PrintDifference(difference);
}

bool IsClean(const v1::WorkerAudit& audit) {
  return audit.is_repaired() ||
         (audit.num_differences() == 0 && audit.num_row_differences() == 0 && audit.contradiction().empty());
}

// Its worker was asked, too.
bool IsWhole(const v1::WorkerAudit& audit) {
  return audit.rows_not_compared().empty();
}

// Seconds since the manager's start, with nothing counted: what a first look is compared with.
double SecondsSinceStart(const v1::GetStatusResponse& status) {
  return std::max<double>(static_cast<double>(status.uptime_seconds()), 1);
}

}  // namespace

LookCommands::LookCommands(CLI::App* app) {
  AddTop(app);

  CLI::App* requests = app->add_subcommand(
      "requests",
      "List the requests that run and wait, the running ones of each worker first. `quirectl explain` says "
      "why one waits, `quirectl tree` what it holds.");
  AddWorkerOption(requests);
  requests->add_option("-n,--max-requests", max_requests_, "Of each worker, 1 .. 1000")->option_text("NUMBER [100]");
  requests_ = requests;

  CLI::App* tree = app->add_subcommand(
      "tree",
      "Show the samples or beams of a request as a tree: what forks share is a line, and below it what each has "
      "for itself. An entry of a table is a block; ids follow the colon.");
  tree->add_option("request_id", request_id_, "Its name, as generate's --request-id gave it")
      ->required()
      ->option_text(" ");
  tree_ = tree;

  AddBlocks(app);

  CLI::App* audit = app->add_subcommand(
      "audit",
      "Recount who holds every block and compare that with the manager's reference counts, and the block tables in "
      "the rows of the worker with the manager's. Exit with 1 when something differs and was not repaired, with 3 when "
      "a worker could not be asked. Steps wait for it, some 20 ms for 100,000 blocks.");
  AddWorkerOption(audit);
  audit->add_flag("--repair", repairs_, "Set the counts to what was found, send the tables that differ anew");
  audit_ = audit;

  AddDrain(app);

  CLI::App* flush = app->add_subcommand(
      "flush", "Empty the prefix cache. Blocks of requests that run and of pins stay; the others are free at once.");
  AddWorkerOption(flush);
  flush->add_flag("--pins", ends_pins_, "End all pins first");
  flush_ = flush;
}

void LookCommands::AddTop(CLI::App* app) {
  CLI::App* top = app->add_subcommand(
      "top",
      "Show workers, their blocks, tokens per second and latencies, again and again until Ctrl-C; once, and since "
      "the manager's start, with -n 1 or where standard output is no terminal. TTFT: from a request's arrival to "
      "its first token; ITL: between two tokens.");
  top->add_option("-n,--frames", num_frames_, "How often; 0: until Ctrl-C")
      ->check(CLI::Range(0, 1'000'000))
      ->option_text("NUMBER [0]");
  top->add_option("-i,--interval", interval_s_, "Between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->option_text("SECONDS [1]");
  top_ = top;
}

void LookCommands::AddBlocks(CLI::App* app) {
  CLI::App* blocks = app->add_subcommand(
      "blocks",
      "Count the blocks of each worker by state; --map draws them, --block looks at one. A block is free, "
      "cached (the prefix cache alone holds it), used, shared (by several sequences) or pinned.");
  AddWorkerOption(blocks);
  blocks->add_flag("--map", draws_map_, "A character for each block, or for each group of blocks");
  blocks->add_option("--block", block_, "Who holds this one: owners, references, age, prefix")
      ->option_text("ID")
      ->excludes("--map");
  blocks_ = blocks;
}

void LookCommands::AddDrain(CLI::App* app) {
  CLI::App* drain = app->add_subcommand(
      "drain",
      "Place no more requests on a worker; those that are there finish. Until `quirectl undrain`, or the "
      "manager's end.");
  drain->add_option("worker", worker_, "Its address, as status shows it")->required()->option_text(" ");
  drain->add_flag("--wait", waits_, "Return when none is left");
  drain->add_option("--timeout", wait_timeout_s_, "With --wait: exit with 3 when it takes longer; 0: never")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("SECONDS [0]")
      ->needs("--wait");
  drain_ = drain;
  CLI::App* undrain = app->add_subcommand("undrain", "Place requests on a worker again.");
  undrain->add_option("worker", worker_, "Its address, as status shows it")->required()->option_text(" ");
  undrain_ = undrain;
}

void LookCommands::AddWorkerOption(CLI::App* command) {
  command->add_option("-w,--worker", worker_, "Only this worker, by its address as status shows it")
      ->option_text("ADDRESS");
}

bool LookCommands::is_chosen() const {
  const CLI::App* const commands[] = {top_, requests_, tree_, blocks_, audit_, drain_, undrain_, flush_};
  return std::any_of(std::begin(commands), std::end(commands), [](const CLI::App* command) { return bool{*command}; });
}

int LookCommands::Run(Client& client, const CommandContext& context) const {
  if (*top_) return RunTop(client, context);
  if (*requests_) return RunRequests(client, context);
  if (*tree_) return RunTree(client, context);
  if (*blocks_) return block_.has_value() ? RunBlock(client, context) : RunBlocks(client, context);
  if (*audit_) return RunAudit(client, context);
  if (*drain_) return RunDrain(client, context);
  if (*undrain_) return RunUndrain(client, context);
  return RunFlush(client, context);
}

int LookCommands::RunTop(Client& client, const CommandContext& context) const {
  const bool is_live = DescribeTerminal().is_terminal && context.format == OutputFormat::kText;
  const int num_frames = num_frames_ == 0 && !is_live ? 1 : num_frames_;
  v1::GetStatusResponse before;
  absl::Time looked_at;
  for (int frame = 0; num_frames == 0 || frame < num_frames; ++frame) {
    if (frame > 0) absl::SleepFor(absl::Seconds(interval_s_));
    const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
    if (!status.ok()) return ReportError(status.status(), context.endpoint);
    const absl::Time now = absl::Now();
    if (context.format == OutputFormat::kJson) {
      PrintJson(*status);
    } else {
      const double seconds = frame == 0 ? SecondsSinceStart(*status) : absl::ToDoubleSeconds(now - looked_at);
      const std::string text = DrawTop(before, *status, std::max(seconds, 1e-3), DescribeTerminal());
      // Home, and what an earlier frame has left below goes; the first one clears the screen.
      const bool redraws = is_live && num_frames != 1;
      const char* const begin = !redraws ? (frame == 0 ? "" : "\n") : frame == 0 ? "\033[2J\033[H" : "\033[H\033[J";
      std::printf("%s%s", begin, text.c_str());
    }
    if (!FlushOutput()) return kExitFailed;
    before = *status;
    looked_at = now;
  }
  return kExitOk;
}

int LookCommands::RunRequests(Client& client, const CommandContext& context) const {
  v1::ListRequestsRequest request;
  request.set_worker(worker_);
  request.set_max_requests(max_requests_);
  const absl::StatusOr<v1::ListRequestsResponse> list = client.ListRequests(request);
  if (!list.ok()) return ReportError(list.status(), context.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*list);
    return kExitOk;
  }
  std::printf("%-32s %-8s %8s %7s %7s %9s %7s %7s %7s  %s\n", "REQUEST", "STATE", "AGE", "PROMPT", "CACHED",
              "GENERATED", "SAMPLES", "BLOCKS", "SHARED", "WORKER");
  for (const v1::RequestSummary& summary : list->requests()) {
    std::printf("%-32s %-8s %8s %7u %7u %9llu %7u %7u %7u  %s\n", Printable(summary.request_id()).c_str(),
                StateName(summary.state()), Age(summary.age_ms()).c_str(), summary.prompt_tokens(),
                summary.cached_prompt_tokens(), static_cast<unsigned long long>(summary.generated_tokens()),
                summary.num_sequences(), summary.blocks(), summary.shared_blocks(), summary.worker().c_str());
  }
  const uint32_t num_left = list->num_requests() - list->requests_size();
  if (num_left > 0) std::printf("and %u more; --max-requests shows them\n", num_left);
  return kExitOk;
}

int LookCommands::RunTree(Client& client, const CommandContext& context) const {
  if (request_id_.empty()) return ReportUsage("request_id is empty; `quirectl requests` lists the names");
  const absl::StatusOr<v1::DescribeRequestResponse> request = client.DescribeRequest(request_id_);
  if (!request.ok()) return ReportError(request.status(), context.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*request);
    return kExitOk;
  }
  const absl::StatusOr<std::string> tree = DrawTree(*request);
  if (!tree.ok()) return ReportError(tree.status(), context.endpoint);
  const v1::RequestSummary& summary = request->summary();
  std::printf("%s, on worker %s, %s for %s: %u prompt tokens, %llu generated, %u blocks of %u tokens%s, %u shared\n",
              Printable(request_id_).c_str(), summary.worker().c_str(), StateName(summary.state()),
              Age(summary.age_ms()).c_str(), summary.prompt_tokens(),
              static_cast<unsigned long long>(summary.generated_tokens()), summary.blocks(), request->block_size(),
              summary.state() == v1::REQUEST_STATE_SWAPPED ? " in the host tier" : "", summary.shared_blocks());
  std::printf("%s", tree->c_str());
  if (!request->sharers().empty()) std::printf("in common with other requests:\n");
  for (const v1::BlockSharer& sharer : request->sharers()) {
    std::printf("  %s: %u blocks\n", Printable(sharer.request_id()).c_str(), sharer.num_blocks());
  }
  return kExitOk;
}

int LookCommands::RunAudit(Client& client, const CommandContext& context) const {
  v1::AuditRequest request;
  request.set_worker(worker_);
  request.set_repair(repairs_);
  const absl::StatusOr<v1::AuditResponse> response = client.Audit(request);
  if (!response.ok()) return ReportError(response.status(), context.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    for (const v1::WorkerAudit& audit : response->workers()) PrintAudit(audit);
  }
  const auto& audits = response->workers();
  if (!std::all_of(audits.begin(), audits.end(), IsClean)) return kExitFailed;
  return std::all_of(audits.begin(), audits.end(), IsWhole) ? kExitOk : kExitUnavailable;
}

int LookCommands::RunDrain(Client& client, const CommandContext& context) const {
  const absl::StatusOr<v1::DrainResponse> response = client.Drain(worker_);
  if (!response.ok()) return ReportError(response.status(), context.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    std::printf("worker %s drains: %u requests are there\n", worker_.c_str(), response->num_requests());
  }
  return waits_ ? WaitForDrain(client, context) : kExitOk;
}

int LookCommands::WaitForDrain(Client& client, const CommandContext& context) const {
  FlushOutput();
  const absl::Time give_up =
      wait_timeout_s_ > 0 ? absl::Now() + absl::Seconds(wait_timeout_s_) : absl::InfiniteFuture();
  while (true) {
    // To drain again changes nothing, and tells how many are left, those included that are not yet queued.
    const absl::StatusOr<v1::DrainResponse> left = client.Drain(worker_);
    if (!left.ok()) return ReportError(left.status(), context.endpoint);
    if (left->num_requests() == 0) break;
    if (absl::Now() >= give_up) {
      std::fprintf(stderr, "quirectl: worker %s still has %u requests after %g s; it goes on draining\n",
                   worker_.c_str(), left->num_requests(), wait_timeout_s_);
      return kExitUnavailable;
    }
    absl::SleepFor(kDrainPollInterval);
  }
  if (context.format == OutputFormat::kText) std::printf("worker %s has no requests any more\n", worker_.c_str());
  return kExitOk;
}

int LookCommands::RunUndrain(Client& client, const CommandContext& context) const {
  const absl::Status status = client.Undrain(worker_);
  if (!status.ok()) return ReportError(status, context.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(v1::UndrainResponse());
  } else {
    std::printf("worker %s gets requests again\n", worker_.c_str());
  }
  return kExitOk;
}

int LookCommands::RunFlush(Client& client, const CommandContext& context) const {
  v1::FlushPrefixCacheRequest request;
  request.set_worker(worker_);
  request.set_end_pins(ends_pins_);
  const absl::StatusOr<v1::FlushPrefixCacheResponse> response = client.FlushPrefixCache(request);
  if (!response.ok()) return ReportError(response.status(), context.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
    return kExitOk;
  }
  for (const v1::WorkerFlush& flush : response->workers()) {
    std::printf("worker %s: %u blocks freed, %u still cached\n", flush.worker().c_str(), flush.freed_blocks(),
                flush.cached_blocks());
  }
  return kExitOk;
}

}  // namespace quire
