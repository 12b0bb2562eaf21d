// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/scenario.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "tests/sim/shadow_model.h"

namespace quire {
namespace {

// About 30 years, longer than any run.
constexpr int64_t kForeverUs = int64_t{1} << 50;

constexpr SimField<SimWorker> kWorkerFields[] = {
    {"blocks", &SimWorker::blocks},
    {"block_size", &SimWorker::block_size},
    {"window", &SimWorker::window},
    {"window_width", &SimWorker::window_width},
    {"host_blocks", &SimWorker::host_blocks},
    {"prefix_cache", &SimWorker::prefix_cache},
    {"policy", &SimWorker::policy},
    {"is_static", &SimWorker::is_static},
    {"served_percent", &SimWorker::served_percent},
    {"step_tokens", &SimWorker::step_tokens},
    {"token_budget", &SimWorker::token_budget},
    {"chunk_tokens", &SimWorker::chunk_tokens},
    {"rows", &SimWorker::rows},
    {"queue", &SimWorker::queue},
    {"context", &SimWorker::context},
    {"watermark_percent", &SimWorker::watermark_percent},
    {"plans_in_flight", &SimWorker::plans_in_flight},
    {"grace", &SimWorker::grace},
    {"timeout", &SimWorker::timeout},
    {"first_percent", &SimWorker::first_percent},
    {"others_percent", &SimWorker::others_percent},
    {"other_block_size", &SimWorker::other_block_size},
    {"keeps_rows", &SimWorker::keeps_rows},
    {"pinned_percent", &SimWorker::pinned_percent},
    {"rebalances", &SimWorker::rebalances},
    {"numerics", &SimWorker::numerics},
    {"approximate", &SimWorker::approximate},
    {"postpones", &SimWorker::postpones},
    {"ranks", &SimWorker::ranks},
};
constexpr SimField<SimModel> kModelFields[] = {
    {"vocab", &SimModel::vocab},
    {"stop_percent", &SimModel::stop_percent},
};
constexpr SimField<SimRequest> kRequestFields[] = {
    {"follows", &SimRequest::follows},
    {"stream", &SimRequest::stream},
    {"num_shared", &SimRequest::num_shared},
    {"num_own", &SimRequest::num_own},
    {"repeats", &SimRequest::repeats},
    {"max_tokens", &SimRequest::max_tokens},
    {"stops", &SimRequest::stops},
    {"priority", &SimRequest::priority},
    {"tenant", &SimRequest::tenant},
    {"salt", &SimRequest::salt},
    {"bypass_cache", &SimRequest::bypass_cache},
    {"resumable", &SimRequest::resumable},
    {"prompt_logprobs", &SimRequest::prompt_logprobs},
    {"pooling", &SimRequest::pooling},
    {"pin_tokens", &SimRequest::pin_tokens},
    {"pin_events", &SimRequest::pin_events},
    {"has_short_pin", &SimRequest::has_short_pin},
    {"deadline", &SimRequest::deadline},
    {"samples", &SimRequest::samples},
    {"beams", &SimRequest::beams},
    {"groups", &SimRequest::groups},
    {"returned", &SimRequest::returned},
    {"half_length_penalty", &SimRequest::half_length_penalty},
    {"early_stopping", &SimRequest::early_stopping},
    {"poison", &SimRequest::poison},
    {"named", &SimRequest::named},
    {"poison_sample", &SimRequest::poison_sample},
};

// The names of the events, by SimEventKind.
constexpr const char* kEventNames[] = {
    "submit", "cancel", "cancel_sample", "plan",    "commit", "lose",  "lose_for_ever", "return", "late_result",
    "probe",  "drain",  "set_draining",  "silence", "ask",    "audit", "manager_lost",  "damage", "diverge"};

bool HasArgument(SimEventKind kind) {
  return kind != SimEventKind::kSubmit;  // It has the fields of its request.
}

template <typename T>
void PrintFields(const T& object, absl::Span<const SimField<T>> fields, std::string* text) {
  const T defaults;
  for (const SimField<T>& field : fields) {
    if (object.*field.value == defaults.*field.value) continue;
    absl::StrAppend(text, " ", field.name, "=", object.*field.value);
  }
}

template <typename T>
absl::Status ParseFields(absl::Span<const absl::string_view> words, absl::Span<const SimField<T>> fields, T* object) {
  for (const absl::string_view word : words) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const SimField<T>& candidate) { return candidate.name == parts.first; });
    if (field == fields.end() || !absl::SimpleAtoi(parts.second, &(object->*field->value))) {
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' is no parameter"));
    }
  }
  return absl::OkStatus();
}

TokenId TokenOf(uint64_t key, int position) {
  return 1 + static_cast<TokenId>(MixBits(key * 1000003 + static_cast<uint64_t>(position)) % 999);
}

absl::Status ParseEvent(absl::Span<const absl::string_view> words, Scenario* scenario) {
  const auto name = std::find(std::begin(kEventNames), std::end(kEventNames), words[0]);
  if (name == std::end(kEventNames)) return absl::InvalidArgumentError("no such event");
  SimEvent event{static_cast<SimEventKind>(name - std::begin(kEventNames))};
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &event.subject)) {
    return absl::InvalidArgumentError("a number is missing");
  }
  if (event.kind == SimEventKind::kCancelSample && words.size() < 3) {
    return absl::InvalidArgumentError("the sample is missing");
  }
  if (HasArgument(event.kind) && words.size() >= 3 && !absl::SimpleAtoi(words[2], &event.argument)) {
    return absl::InvalidArgumentError(absl::StrCat("'", words[2], "' is no number"));
  }
  if (event.kind == SimEventKind::kSubmit) {
    SimRequest request;
    request.id = event.subject;
    QUIRE_RETURN_IF_ERROR(ParseFields(words.subspan(2), RequestFields(), &request));
    scenario->requests[request.id] = request;
  }
  scenario->events.push_back(event);
  return absl::OkStatus();
}

absl::Status ParseLine(absl::string_view line, Scenario* scenario) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  const absl::Span<const absl::string_view> parameters = absl::MakeConstSpan(words).subspan(1);
  if (words[0] == "model") return ParseFields(parameters, ModelFields(), &scenario->model);
  if (words[0] == "worker") return ParseFields(parameters, WorkerFields(), &scenario->workers.emplace_back());
  return ParseEvent(words, scenario);
}

}  // namespace

absl::Span<const SimField<SimWorker>> WorkerFields() {
  return kWorkerFields;
}
absl::Span<const SimField<SimModel>> ModelFields() {
  return kModelFields;
}
absl::Span<const SimField<SimRequest>> RequestFields() {
  return kRequestFields;
}

double SimWorker::WeightOf(const std::string& tenant) const {
  return tenant == "1" ? 2 : tenant == "2" ? 0.5 : 1;
}

int64_t SimWorker::MaxBlocksOf(const std::string& tenant) const {
  const int percent = tenant == "0" ? first_percent : others_percent;
  return percent == 100 ? std::numeric_limits<int64_t>::max() : std::max(percent * blocks / 100, 1);
}

StepLimit SimWorker::Limit() const {
  StepLimit limit;
  if (token_budget == 0) return limit;
  limit.fixed_us = 300;
  limit.us_per_token = 100;
  limit.max_step_us = limit.fixed_us + limit.us_per_token * token_budget;
  limit.max_prompt_step_us = limit.fixed_us + limit.us_per_token * kPromptStepRatio * token_budget;
  return limit;
}

StepLoopOptions SimWorker::LoopOptions() const {
  StepLoopOptions options;
  options.address = "worker";
  options.scheduler = Options();
  options.has_prefix_cache = prefix_cache != 0;
  options.max_pinned_share = 0.01 * pinned_percent;
  options.worker_grace_us = grace == 0 ? kForeverUs : grace * kMicrosPerEvent;
  options.max_inbox_requests = 1 << 20;
  options.max_questions = 1 << 20;
  options.rebalances = rebalances != 0;
  options.changes_numerics = approximate != 0;
  options.link = {.adopts = keeps_rows != 0,
                  .connect_timeout_us = 20 * kMicrosPerEvent,
                  .step_timeout_us = timeout == 0 ? kForeverUs : timeout * kMicrosPerEvent,
                  // That a process is silent is known when the time for its step is up, and not before.
                  .probe_interval_us = timeout == 0 ? kForeverUs : (timeout + 1) / 2 * kMicrosPerEvent,
                  .probe_timeout_us = timeout == 0 ? kForeverUs : (timeout + 1) / 2 * kMicrosPerEvent,
                  .min_backoff_us = kMicrosPerEvent,
                  .max_backoff_us = 8 * kMicrosPerEvent};
  return options;
}

WorkerDescription SimWorker::Description() const {
  WorkerDescription worker;
  worker.model_name = "shadow";
  worker.max_context_tokens = context;
  worker.block_size = block_size;
  if (window > 0) worker.groups.push_back({.window_tokens = window, .blocks_per_sheet = window_width});
  worker.num_blocks = blocks;
  worker.num_host_blocks = host_blocks;
  worker.max_sequences = rows;
  worker.max_tokens_per_step = step_tokens;
  worker.keeps_rows = keeps_rows != 0;
  worker.numerics_fingerprint = absl::StrCat("shadow/", numerics);
  return worker;
}

CacheGroups SimWorker::Groups() const {
  return {block_size, Description().groups, std::min(chunk_tokens, step_tokens)};
}

SchedulerOptions SimWorker::Options() const {
  SchedulerOptions options;
  options.policy = static_cast<SchedulingPolicy>(policy);
  for (const char* tenant : {"0", "1", "2"}) {
    const int percent = absl::string_view(tenant) == "0" ? first_percent : others_percent;
    options.tenants.by_tenant[tenant] = {.weight = WeightOf(tenant), .max_blocks_share = 0.01 * percent};
  }
  options.batching = is_static != 0 ? Batching::kStatic : Batching::kContinuous;
  options.waiting_served_ratio = 0.01 * served_percent;
  options.max_tokens_per_step = step_tokens;
  options.max_chunk_tokens = chunk_tokens;
  options.max_sequences = rows;
  options.max_waiting_requests = queue;
  options.max_context_tokens = context;
  options.watermark = 0.01 * watermark_percent;
  options.max_plans_in_flight = plans_in_flight;
  return options;
}

std::string RecordOf(int request, int num_repeats) {
  return num_repeats == 0 ? absl::StrCat("request ", request) : absl::StrCat("request ", request, ".", num_repeats);
}

std::optional<int> RequestOfRecord(absl::string_view record) {
  int request = 0;
  if (!absl::ConsumePrefix(&record, "request ")) return std::nullopt;
  if (!absl::SimpleAtoi(record.substr(0, record.find('.')), &request)) return std::nullopt;
  return request;
}

uint64_t SimRequest::seed() const {
  return MixBits(static_cast<uint64_t>(id)) << 8;  // Sample i draws with seed + i.
}

std::vector<TokenId> SimRequest::Prompt(absl::Span<const TokenId> transcript) const {
  std::vector<TokenId> prompt(transcript.begin(), transcript.end());
  for (int i = 0; i < num_shared; ++i) {
    const int key = i < 16 ? stream / 4 : i < 48 ? stream / 2 : stream;
    prompt.push_back(TokenOf(1000 + static_cast<uint64_t>(key), i));
  }
  for (int i = 0; i < num_own; ++i) prompt.push_back(TokenOf(seed(), repeats != 0 ? 0 : i));
  return prompt;
}

Request SimRequest::Build(absl::Span<const TokenId> transcript) const {
  Request request;
  request.id = RequestId{static_cast<uint64_t>(id)};
  request.prompt = Prompt(transcript);
  request.max_tokens = max_tokens;
  if (stops != 0) request.stop_token_ids = {ShadowModel::kStopToken};
  request.priority = priority;
  request.tenant = absl::StrCat(tenant);
  if (salt != 0) request.cache_salt = absl::StrCat("salt", salt);
  request.bypass_prefix_cache = bypass_cache != 0;
  if (resumable != 0) request.record = std::make_shared<const std::string>(RecordOf(id));
  request.sampling.seed = seed();
  if (pooling != 0) {
    request.sampling.pooling = static_cast<Pooling>(pooling);
    request.is_prompt_only = true;
    request.max_tokens = 1;
    request.stop_token_ids.clear();
    return request;
  }
  if (pin_tokens != 0 && bypass_cache == 0) {
    const int num_tokens = std::min(pin_tokens, static_cast<int>(request.prompt.size()));
    const int64_t ttl_us = pin_events * kMicrosPerEvent;
    request.pins.push_back({.num_tokens = num_tokens, .ttl_us = ttl_us});
    if (has_short_pin != 0) request.pins.push_back({.num_tokens = num_tokens / 2, .ttl_us = 2 * ttl_us});
  }
  if (prompt_logprobs != 0) request.sampling.num_prompt_logprobs = 0;
  request.num_samples = samples;
  if (prompt_logprobs != 0 || id % 4 == 1) request.sampling.num_logprobs = 0;
  if (beams == 0) return request;
  BeamParams& params = request.beam.emplace();
  params.width = beams;
  params.num_groups = groups;
  params.num_return = returned;
  params.length_penalty = 0.5f * static_cast<float>(half_length_penalty);
  params.diversity_penalty = groups > 1 ? 0.5f : 0.0f;
  params.early_stopping = static_cast<EarlyStopping>(early_stopping);
  return request;
}

std::string PrintScenario(const Scenario& scenario) {
  std::string text = "model";
  PrintFields(scenario.model, ModelFields(), &text);
  for (const SimWorker& worker : scenario.workers) {
    text += "\nworker";
    PrintFields(worker, WorkerFields(), &text);
  }
  for (const SimEvent& event : scenario.events) {
    absl::StrAppend(&text, "\n", kEventNames[static_cast<int>(event.kind)], " ", event.subject);
    const bool is_printed = event.kind == SimEventKind::kCancelSample || event.argument != 0;
    if (is_printed) absl::StrAppend(&text, " ", event.argument);
    if (event.kind == SimEventKind::kSubmit) PrintFields(scenario.requests.at(event.subject), RequestFields(), &text);
  }
  return text + "\n";
}

absl::Status CheckScenario(const Scenario& scenario) {
  const int num_workers = static_cast<int>(scenario.workers.size());
  if (num_workers == 0) return absl::InvalidArgumentError("there is no worker");
  if (scenario.model.vocab < 2) return absl::InvalidArgumentError("the vocabulary has one token");
  for (const SimWorker& worker : scenario.workers) {
    QUIRE_RETURN_IF_ERROR(CheckSchedulerOptions(worker.Options()));
    if (worker.blocks < 1 || worker.block_size < 1 || worker.host_blocks < 0 || worker.policy < 0 ||
        worker.policy > 3 || worker.window < 0 || worker.window_width < 1 ||
        (worker.window > 0 && worker.prefix_cache + worker.keeps_rows > 0) || worker.grace < 0 || worker.timeout < 0 ||
        worker.ranks < 1 || worker.ranks > SimWorker::kMaxRanks || worker.pinned_percent < 0 ||
        worker.pinned_percent > 100) {
      return absl::InvalidArgumentError("a parameter of a worker is out of range");
    }
  }
  for (const auto& [id, request] : scenario.requests) {
    const bool has_beams = request.groups >= 1 && request.beams >= request.groups &&
                           request.beams % request.groups == 0 && request.returned >= 1 &&
                           request.returned <= request.beams && request.samples == 1 && request.early_stopping >= 0 &&
                           request.early_stopping <= 2;
    if (request.max_tokens < 1 || request.samples < 1 || request.num_shared < 0 || request.num_own < 0 ||
        request.stream < 0 || request.pin_tokens < 0 || request.pin_events < 1 || request.pooling < 0 ||
        request.pooling > 3 || (request.beams != 0 && !has_beams)) {
      return absl::InvalidArgumentError(absl::StrCat("a parameter of request ", id, " is out of range"));
    }
  }
  for (const SimEvent& event : scenario.events) {
    const bool is_of_request = event.kind <= SimEventKind::kCancelSample || event.kind == SimEventKind::kProbe;
    if (event.kind == SimEventKind::kManagerLost) {
      if (event.subject >= 0 && event.subject <= kMaxPlansInFlight) continue;
      return absl::InvalidArgumentError(absl::StrCat("workers finish ", event.subject, " plans"));
    }
    if (!is_of_request && (event.subject < 0 || event.subject >= num_workers)) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", event.subject, " of ", num_workers));
    }
    const int max_argument = event.kind == SimEventKind::kReturn   ? 1 << 20
                             : event.kind == SimEventKind::kAudit  ? static_cast<int>(SimAudit::kRepairWrongSequence)
                             : event.kind == SimEventKind::kDamage ? static_cast<int>(SimDamage::kOtherRows)
                             : event.kind == SimEventKind::kSetDraining ? 2
                             : event.kind == SimEventKind::kSilence     ? SimWorker::kMaxRanks + 1
                                                                        : SimWorker::kMaxRanks;
    if (!is_of_request && (event.argument < 0 || event.argument > max_argument)) {
      return absl::InvalidArgumentError(absl::StrCat("the argument ", event.argument, " is out of range"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Scenario> ParseScenario(absl::string_view text) {
  Scenario scenario;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const absl::Status status = ParseLine(line, &scenario);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ", '", line, "': ", status.message()));
    }
  }
  QUIRE_RETURN_IF_ERROR(CheckScenario(scenario));
  return scenario;
}

}  // namespace quire
