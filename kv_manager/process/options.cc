// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/options.h"

#include <cstdint>
#include <limits>
#include <set>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/configuration.h"
#include "base/connection_flags.h"
#include "base/flags.h"
#include "base/local_address.h"
#include "base/number_text.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/process/tenant_file.h"
#include "kv_manager/worker_link/worker_address.h"

ABSL_FLAG(std::string, workers, "127.0.0.1:50061",
          "Addresses of the workers, separated by commas: host:port, unix:path or dns:///name:port, which means every "
          "address of the name. Such a name is looked up again every few seconds.");
ABSL_FLAG(
    std::string, listen, "127.0.0.1:50051",
    "Address for the gRPC connections of clients: host:port or unix:path. With port 0 the manager takes a free port "
    "and prints it. With 0.0.0.0 as the host it listens on all networks of the machine, which requires TLS.");
ABSL_FLAG(std::string, health_listen, "",
          "Additional address for health checks (grpc.health.v1): host:port. It has no TLS and no authentication, and "
          "tells only whether the process is alive and ready. If empty, health checks are answered only at --listen.");
ABSL_FLAG(std::string, worker_tls_ca, "",
          "PEM file with the certificates of authorities. With it the manager uses TLS to all workers, and one of "
          "these authorities must have issued each worker's certificate.");
ABSL_FLAG(std::string, worker_tls_cert, "",
          "PEM file with the certificate that the manager shows to workers. This file, the key and the CA file are "
          "read again when they change.");
ABSL_FLAG(std::string, worker_tls_key, "", "PEM file with the private key of --worker-tls-cert, without a password.");
ABSL_FLAG(std::string, worker_name, "quire-worker",
          "DNS name that the certificates of workers must contain. If empty, it is the host in each worker's address.");
ABSL_FLAG(std::string, tokens, "",
          "File of bearer tokens: each line has a tenant, the SHA-256 of the token in hexadecimal, and 'admin' if the "
          "token belongs to an operator. With this flag every call needs a token. Requests, their names and their "
          "cached prefixes then belong to the tenant of the token. The file is read again when it changes.");
ABSL_FLAG(std::string, tenants, "",
          "YAML file with the limits of tenants: weight, max_waiting_requests, max_requests and max_blocks_share of "
          "each tenant, and of * for all tenants that are not listed. The file is read again when it changes.");
ABSL_FLAG(std::string, client_names, "quire-client",
          "DNS names or URIs, separated by commas; with --tls-ca a client's certificate must contain one of them. * "
          "accepts every name.");
ABSL_FLAG(std::string, admin_names, "quire-admin",
          "DNS names or URIs, separated by commas; with --tls-ca a client whose certificate contains one of them may "
          "also make the calls for operators, such as quirectl status. * accepts every name.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9460",
          "Address at which Prometheus scrapes /metrics: host:port. With port 0 the manager takes a free port and "
          "prints it. If empty, it serves no metrics.");
ABSL_FLAG(int32_t, max_tenant_labels, quire::ManagerEngine::kMaxTenantLabels,
          "Largest number of tenants that have their own label in metrics. All later tenants share one label.");
ABSL_FLAG(bool, vllm_metrics, true,
          "Also serve the most used metrics under vLLM's names, for vLLM's dashboards and for gateways that choose "
          "endpoints by these metrics.");
ABSL_FLAG(
    std::string, status_page, "sums",
    "Contents of the read-only page at / of the metrics port: off (there is no page), sums (workers, blocks and rates) "
    "or names (also single requests with their names and tenants). Names are shown only to users of this machine, and "
    "only without --tokens and --tls-ca. Do not use names behind a proxy, because its clients look like local users.");
ABSL_FLAG(int32_t, max_tokens_per_step, quire::SchedulerOptions().max_tokens_per_step,
          "Largest number of tokens in one step of a worker, summed over all sequences. The worker's own "
          "--max-tokens-per-step may be lower.");
ABSL_FLAG(int32_t, max_chunk_tokens, quire::SchedulerOptions().max_chunk_tokens,
          "Largest number of tokens of one sequence in one step. A longer prompt takes several steps, so that running "
          "requests do not wait for the whole prompt.");
ABSL_FLAG(int32_t, max_step_ms, 300,
          "Target for the longest time between two tokens of a request that generates, in milliseconds: while requests "
          "generate, a step gets at most as many prompt tokens as the worker can compute in this time, judging by "
          "earlier steps, and fewer when these requests lose more by waiting than the prompts gain. A step in which no "
          "request generates may take 500 milliseconds, or longer where a step without prompts already takes more than "
          "125, or where this target is longer. 0 means no limit.");
ABSL_FLAG(int32_t, max_plans_in_flight, quire::SchedulerOptions().max_plans_in_flight,
          "Number of plans that may be unanswered: 1 or 2. With 2, the next step is sent while the worker runs the "
          "current one. With 1, it is sent after the result.");
ABSL_FLAG(std::string, policy, "fair-share",
          "Order in which requests are served: fair-share (first the tenant that has had the fewest tokens, then by "
          "arrival; requests of one tenant by arrival), fcfs (by arrival), priority (by the request's priority, then "
          "by arrival) or longest-prefix-first (by the length of the cached prefix, then by arrival; every request is "
          "served at some time).");
ABSL_FLAG(
    std::string, tenant_weights, "",
    "Weights of tenants under the fair-share policy: tenant=weight, separated by commas. With a=2,b=1 tenant a gets "
    "two tokens for each token of b while requests of both wait. Tenants that are not listed have the weight 1. With "
    "--tenants, the weights are in that file.");
ABSL_FLAG(std::string, batching, "continuous",
          "When new requests join the batch: continuous (in every step) or static (only when the whole batch has "
          "ended; this is slower and meant for comparisons).");
ABSL_FLAG(double, waiting_served_ratio, quire::SchedulerOptions().waiting_served_ratio,
          "Smallest number of waiting requests per running request at which new requests join the batch. With a value "
          "above 0, prefills interrupt decodes less often, and new requests wait longer.");
ABSL_FLAG(bool, prefix_cache, true,
          "Keep computed prefixes of prompts, and share them between requests with the same cache salt. They are "
          "evicted when their blocks are needed.");
ABSL_FLAG(
    int32_t, max_waiting_requests, quire::SchedulerOptions().max_waiting_requests,
    "Largest number of requests that wait on each worker. When it is reached, the tenant with the most of them by "
    "weight loses its last one to a request of another tenant; further requests are refused with "
    "RESOURCE_EXHAUSTED.");
ABSL_FLAG(
    absl::Duration, max_queue_wait, absl::Seconds(5),
    "Longest time that a request without a deadline may wait before it runs, as expected when it comes. A request that "
    "would wait longer, judging by the last seconds, is refused at once with RESOURCE_EXHAUSTED; one that was accepted "
    "waits as long as it takes. Once the queue has been that long, and until it is short again, the limit is "
    "--max-queue-share of this time. For work that nobody waits for, set a long time, or give the requests a "
    "deadline.");
ABSL_FLAG(double, max_queue_share, quire::WaitLimits().max_deadline_share,
          "Largest part of the time until a request's deadline that it may wait before it runs, above 0 and at most 1. "
          "A request that would wait longer, or would end after three quarters of the time until its deadline, is "
          "refused at once with RESOURCE_EXHAUSTED. The rule for the end applies only while load makes steps slow.");
ABSL_FLAG(int32_t, max_context_tokens, 0,
          "Largest number of tokens of prompt and output together. 0 means the number that the model was made for.");
ABSL_FLAG(double, watermark, quire::SchedulerOptions().watermark,
          "Share of a worker's KV blocks, from 0 to below 1, that stays free when a request is admitted. Running "
          "requests use these blocks when they grow, before one of them must be preempted.");
ABSL_FLAG(
    double, max_pinned_share, quire::StepLoopOptions().max_pinned_share,
    "Largest share of a worker's KV blocks, from 0 to 1, that pins of operators (quirectl pin) and pins of requests "
    "(cache_control) together protect from eviction.");
ABSL_FLAG(
    int32_t, max_requests, static_cast<int32_t>(quire::InferenceServiceOptions().max_requests),
    "Largest number of calls of Generate and requests of GenerateBatch at the same time. Further ones are refused. A "
    "reserve of 1/8 of this number is added for tenants below an equal share. The texts of all calls of Embed have the "
    "same limit, without a reserve.");
ABSL_FLAG(
    int32_t, max_batch_requests, static_cast<int32_t>(quire::InferenceServiceOptions().max_batch_requests),
    "Largest number of requests of one GenerateBatch call at the same time. Further ones are refused. One call of "
    "Embed may have as many texts.");
ABSL_FLAG(int32_t, max_message_bytes, static_cast<int32_t>(quire::InferenceServiceOptions().max_message_bytes),
          "Largest size of a message from or to a client, in bytes. A prompt of a million token ids is 5 MB.");
ABSL_FLAG(
    int64_t, max_receiving_bytes, quire::ReceiveLimits().max_bytes,
    "Memory for all messages of clients that have not arrived completely, in bytes. One connection can use half of "
    "it. When it is used up, calls of the connection that uses most end with RESOURCE_EXHAUSTED. Answers of more than "
    "16 KiB that clients have not read have a second budget of this size. When it is used up, calls of the address "
    "that uses most are cancelled.");
ABSL_FLAG(int32_t, max_prompt_bytes, static_cast<int32_t>(quire::RequestLimits().max_prompt_bytes),
          "Largest size of a text to tokenize, in bytes. Longer texts are refused.");
ABSL_FLAG(std::string, generation_config, "model",
          "Defaults for the sampling fields and the number of tokens that a request does not set: model (from the "
          "model's generation_config.json) or none (the defaults of the API). The model's end tokens are used in any "
          "case.");
ABSL_FLAG(
    int32_t, max_outbox_tokens, static_cast<int32_t>(quire::InferenceServiceOptions().max_outbox_tokens),
    "Largest number of tokens of each sample that wait for a client that reads slowly. The samples of a request share "
    "the sum, which takes at most 16 MiB. When there are more, the request ends; if it may outlive its call "
    "(on_disconnect in the API), only the call ends.");
ABSL_FLAG(
    int32_t, max_detached_requests, static_cast<int32_t>(quire::DetachOptions().max_detached),
    "Largest number of requests that continue without their client, which has left and may come back (on_disconnect in "
    "the API). The same number of finished streams is kept for their clients. Beyond either limit, the oldest one of "
    "the tenant with the most is dropped. 0: no request outlives its call.");
ABSL_FLAG(int64_t, max_replay_bytes, quire::DetachOptions().max_replay_bytes,
          "Memory for the streams that can be resumed, in bytes. A token takes about 50 bytes, and 8 more for each "
          "logprob. When it is used up, finished streams are dropped first, and then further streams can no longer be "
          "resumed. 1/8 of it is reserved for tenants below an equal share.");
ABSL_FLAG(std::string, resume_key_file, "",
          "File with a secret of at least 32 bytes, which seals resume tokens. Managers with the same file accept each "
          "other's tokens. If empty, the manager draws a key when it starts, and accepts no token of an earlier one.");
ABSL_FLAG(int32_t, max_waiting_texts, static_cast<int32_t>(quire::InferenceServiceOptions().max_waiting_texts),
          "Largest number of long texts that wait to be tokenized. Further ones are refused.");
ABSL_FLAG(int64_t, max_text_bytes, static_cast<int64_t>(quire::InferenceServiceOptions().max_text_bytes),
          "Largest size of all texts together that wait to be tokenized or are being tokenized, in bytes. A tenant may "
          "have half of it. Further texts are refused.");
ABSL_FLAG(
    int32_t, text_threads, quire::InferenceServiceOptions().num_text_threads,
    "Number of threads that tokenize long texts. The same number of other threads converts generated tokens to text.");
ABSL_FLAG(int64_t, max_worker_bytes, quire::StepLoopOptions().max_worker_bytes,
          "Memory of the manager for the blocks, rows and vocabulary of one worker. A worker that describes more is "
          "refused. A block takes 192 bytes, and 4 for each of its tokens.");
ABSL_FLAG(
    absl::Duration, step_timeout, absl::Microseconds(quire::WorkerLinkOptions().step_timeout_us),
    "Time for a step. A worker that takes longer counts as lost, and the manager connects to it again. A worker that "
    "answers health checks gets more: 20 times the duration of its slowest recent step, from this value up to 10 times "
    "this value, or 4 times this value before its first result.");
ABSL_FLAG(
    std::string, failover, "exact",
    "Where the requests of a lost worker may continue: exact (with workers of the same model and numerics, which give "
    "the same tokens; without such a worker a request waits for its own one, for --worker-grace, and then fails) or "
    "approximate (if no such worker is ready, with workers of the same model and tokenizer, which may give other "
    "tokens; the response says from which position on, in numerics_changed_at).");
ABSL_FLAG(
    absl::Duration, failover_after, absl::Microseconds(quire::StepLoopOptions().failover_after_us),
    "How long the requests of a lost worker wait for it before they move to other workers with the same model and "
    "numerics, at most 24h. 0: they move at once. An unresponsive worker is declared lost this much later, "
    "too.");
ABSL_FLAG(bool, rebalance, true,
          "Give waiting requests of a worker that has been full for a while to idle workers with the same model and "
          "numerics. They have the same tokens there. Requests that run stay.");
ABSL_FLAG(
    absl::Duration, adopt_window, absl::Seconds(5),
    "How long a manager that has started waits for workers which may still have requests of the manager before it. It "
    "continues these requests and keeps the prefix cache, see --orphan-hold of the worker. Requests need "
    "--resume-key-file. At most 24h. 0: the workers drop what they have.");
ABSL_FLAG(absl::Duration, worker_grace, absl::Microseconds(quire::StepLoopOptions().worker_grace_us),
          "How long requests wait for a lost worker to return before they fail, if no other worker can continue them.");
ABSL_FLAG(absl::Duration, worker_keepalive_timeout, absl::Seconds(30),
          "Longest time for the answer to a keepalive probe. The manager probes the connection to a worker that has "
          "sent nothing for 20s. Without an answer the connection is closed, because the worker's host is gone or "
          "overloaded. This does not apply to unix sockets.");
ABSL_FLAG(
    absl::Duration, last_write_timeout, quire::InferenceServiceOptions().last_write_timeout,
    "How long a client may take to read the end of its stream, or the answer of a call without a stream, before its "
    "call is cancelled.");
ABSL_FLAG(absl::Duration, detach_grace, quire::DetachOptions().grace,
          "How long a request whose client has left, and which is to outlive its call, waits for the client to resume "
          "its stream before it ends. A stream that has ended can be resumed for the same time.");
ABSL_FLAG(absl::Duration, receive_timeout, quire::ReceiveLimits().timeout,
          "How long the request of a call may take to arrive completely before the call ends with DEADLINE_EXCEEDED. "
          "The messages of GenerateBatch may take longer.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "How long running requests may continue after SIGTERM or Ctrl-C. New requests are refused.");

ABSL_FLAG(bool, log_requests, false,
          "Log a line for each request that ends, at any log level: name, tenant, the reason for the end, numbers of "
          "tokens, times and trace. The line never contains a prompt or output.");

namespace quire {
namespace {

constexpr double kMaxWaitingServedRatio = 1e6;

absl::Status CheckCount(const absl::Flag<int32_t>& flag, int min, int max = 1 << 30) {
  return CheckFlagRange(flag.Name(), absl::GetFlag(flag), min, max);
}

absl::StatusOr<std::vector<std::string>> Workers() {
  const std::string value = absl::GetFlag(FLAGS_workers);
  std::vector<std::string> workers = absl::StrSplit(value, ',');
  std::set<std::string> known;
  for (const std::string& worker : workers) {
    if (worker.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--workers is '", value, "', it has an empty address"));
    }
    if (const absl::Status status = CheckWorkerAddress(worker); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--workers: ", status.message()));
    }
    if (!known.insert(worker).second) {
      return absl::InvalidArgumentError(absl::StrCat("--workers names '", worker, "' twice"));
    }
  }
  return workers;
}

std::vector<std::string> Names(const absl::Flag<std::string>& flag) {
  return absl::StrSplit(absl::GetFlag(flag), ',', absl::SkipEmpty());
}

absl::Status ReadCallers(ManagerOptions* options) {
  options->tokens = absl::GetFlag(FLAGS_tokens);
  options->client_names = Names(FLAGS_client_names);
  options->admin_names = Names(FLAGS_admin_names);
  const bool is_open_text = options->transport.tls.certificate.empty() && !IsLocalAddress(options->listen);
  if (options->tokens.empty() || !is_open_text) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--tokens is set and --listen is '", options->listen,
                   "': tokens are not taken over a network without TLS, give --tls-cert"));
}

absl::Status ReadTenants(ManagerOptions* options) {
  options->tenants = absl::GetFlag(FLAGS_tenants);
  if (options->tenants.empty()) return absl::OkStatus();
  if (!options->scheduler.tenants.by_tenant.empty()) {
    return absl::InvalidArgumentError("--tenants and --tenant-weights are set, only one of them may be");
  }
  const absl::StatusOr<std::string> text = ReadFile(options->tenants);
  if (!text.ok()) return absl::InvalidArgumentError(absl::StrCat("--tenants: ", text.status().message()));
  return AboutFlag("--tenants", ParseTenantTable(options->tenants, *text).status());
}

absl::Status ReadWorkerTls(ManagerOptions* options) {
  options->worker_tls = {absl::GetFlag(FLAGS_worker_tls_cert), absl::GetFlag(FLAGS_worker_tls_key),
                         absl::GetFlag(FLAGS_worker_tls_ca)};
  options->worker_name = absl::GetFlag(FLAGS_worker_name);
  if (!options->worker_tls.authority.empty()) return absl::OkStatus();
  if (options->worker_tls != TlsFiles()) {
    return absl::InvalidArgumentError(
        "--worker-tls-ca is missing: --worker-tls-cert and --worker-tls-key mean nothing without it");
  }
  for (const std::string& worker : options->workers) {
    if (options->transport.is_insecure || IsLocalAddress(worker)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers has '", worker, "', which is reached over a network: give --worker-tls-ca, or --insecure"));
  }
  return absl::OkStatus();
}

// "a=2,b=1".
absl::StatusOr<TenantShares> TenantWeights() {
  const std::string value = absl::GetFlag(FLAGS_tenant_weights);
  TenantShares shares;
  for (const absl::string_view part : absl::StrSplit(value, ',', absl::SkipEmpty())) {
    const std::vector<std::string> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    double weight = 0;
    if (sides.size() != 2 || sides[0].empty() || !absl::SimpleAtod(sides[1], &weight)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tenant-weights has '", part,
                       "', it must be tenant=weight with a number as the weight, and a comma between two of them"));
    }
    if (!(weight >= kMinTenantWeight && weight <= kMaxTenantWeight)) {
      return absl::InvalidArgumentError(absl::StrCat("--tenant-weights gives '", sides[0], "' the weight ", sides[1],
                                                     ", it must be ", LimitText(kMinTenantWeight), " .. ",
                                                     LimitText(kMaxTenantWeight)));
    }
    if (!shares.by_tenant.emplace(sides[0], TenantShare{.weight = weight}).second) {
      return absl::InvalidArgumentError(absl::StrCat("--tenant-weights names '", sides[0], "' twice"));
    }
  }
  return shares;
}

absl::Status ReadPolicy(SchedulerOptions* options) {
  QUIRE_ASSIGN_OR_RETURN(
      options->policy,
      FlagChoice<SchedulingPolicy>(FLAGS_policy, {{"fcfs", SchedulingPolicy::kFcfs},
                                                  {"priority", SchedulingPolicy::kPriority},
                                                  {"longest-prefix-first", SchedulingPolicy::kLongestPrefixFirst},
                                                  {"fair-share", SchedulingPolicy::kFairShare}}));
  QUIRE_ASSIGN_OR_RETURN(options->tenants, TenantWeights());
  if (!options->tenants.by_tenant.empty() && options->policy != SchedulingPolicy::kFairShare) {
    return absl::InvalidArgumentError("--tenant-weights is set, it needs --policy=fair-share");
  }
  QUIRE_ASSIGN_OR_RETURN(options->batching, FlagChoice<Batching>(FLAGS_batching, {{"continuous", Batching::kContinuous},
                                                                                  {"static", Batching::kStatic}}));
  options->waiting_served_ratio = absl::GetFlag(FLAGS_waiting_served_ratio);
  if (!(options->waiting_served_ratio >= 0 && options->waiting_served_ratio <= kMaxWaitingServedRatio)) {
    return absl::InvalidArgumentError(absl::StrCat("--waiting-served-ratio is ",
                                                   NumberText(options->waiting_served_ratio), ", it must be 0 .. ",
                                                   LimitText(kMaxWaitingServedRatio)));
  }
  return absl::OkStatus();
}

absl::StatusOr<DetachOptions> MakeDetachOptions() {
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_detached_requests, 0));
  QUIRE_RETURN_IF_ERROR(
      CheckFlagRange(FLAGS_max_replay_bytes.Name(), absl::GetFlag(FLAGS_max_replay_bytes), 0, int64_t{1} << 40));
  DetachOptions options;
  options.max_detached = absl::GetFlag(FLAGS_max_detached_requests);
  options.max_replay_bytes = absl::GetFlag(FLAGS_max_replay_bytes);
  QUIRE_ASSIGN_OR_RETURN(options.grace, DurationFlag(FLAGS_detach_grace));
  const std::string path = absl::GetFlag(FLAGS_resume_key_file);
  if (path.empty()) return options;
  const absl::StatusOr<std::string> secret = ReadFile(path);
  if (!secret.ok()) return absl::InvalidArgumentError(absl::StrCat("--resume-key-file: ", secret.status().message()));
  const absl::StatusOr<SealKey> key = SealKey::FromSecret(*secret);
  if (!key.ok()) return absl::InvalidArgumentError(absl::StrCat("--resume-key-file: ", key.status().message()));
  options.resume_key = *key;
  return options;
}

absl::StatusOr<InferenceServiceOptions> MakeInferenceOptions() {
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_requests, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_batch_requests, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_message_bytes, 1 << 16));
  // So that two connections can send messages of any size.
  QUIRE_RETURN_IF_ERROR(CheckFlagRange(FLAGS_max_receiving_bytes.Name(), absl::GetFlag(FLAGS_max_receiving_bytes),
                                       int64_t{4} * absl::GetFlag(FLAGS_max_message_bytes), int64_t{1} << 40));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_prompt_bytes, 1, absl::GetFlag(FLAGS_max_message_bytes)));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_outbox_tokens, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_waiting_texts, 0));
  // So that every tenant can send a text of any size.
  QUIRE_RETURN_IF_ERROR(CheckFlagRange(FLAGS_max_text_bytes.Name(), absl::GetFlag(FLAGS_max_text_bytes),
                                       int64_t{2} * absl::GetFlag(FLAGS_max_prompt_bytes), int64_t{1} << 40));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_text_threads, 1, 1024));
  InferenceServiceOptions options;
  options.limits.max_prompt_bytes = absl::GetFlag(FLAGS_max_prompt_bytes);
  QUIRE_ASSIGN_OR_RETURN(options.limits.uses_model_defaults,
                         (FlagChoice<bool>(FLAGS_generation_config, {{"model", true}, {"none", false}})));
  options.max_requests = absl::GetFlag(FLAGS_max_requests);
  options.max_batch_requests = absl::GetFlag(FLAGS_max_batch_requests);
  options.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes);
  options.max_outbox_tokens = absl::GetFlag(FLAGS_max_outbox_tokens);
  options.logs_requests = absl::GetFlag(FLAGS_log_requests);
  options.max_waiting_texts = absl::GetFlag(FLAGS_max_waiting_texts);
  options.max_text_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_max_text_bytes));
  options.num_text_threads = absl::GetFlag(FLAGS_text_threads);
  options.receive_limits.max_bytes = absl::GetFlag(FLAGS_max_receiving_bytes);
  options.receive_limits.max_connection_bytes = options.receive_limits.max_bytes / 2;
  options.receive_limits.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes);
  QUIRE_ASSIGN_OR_RETURN(options.receive_limits.timeout, DurationFlag(FLAGS_receive_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.last_write_timeout, DurationFlag(FLAGS_last_write_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.detach, MakeDetachOptions());
  return options;
}

absl::StatusOr<SchedulerOptions> MakeSchedulerOptions() {
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_tokens_per_step, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_chunk_tokens, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_waiting_requests, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_context_tokens, 0));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_plans_in_flight, 1, kMaxPlansInFlight));
  SchedulerOptions options;
  options.max_tokens_per_step = absl::GetFlag(FLAGS_max_tokens_per_step);
  options.max_chunk_tokens = absl::GetFlag(FLAGS_max_chunk_tokens);
  options.max_waiting_requests = absl::GetFlag(FLAGS_max_waiting_requests);
  options.max_context_tokens = absl::GetFlag(FLAGS_max_context_tokens);
  if (options.max_context_tokens == 0) options.max_context_tokens = std::numeric_limits<int>::max();
  if (options.max_context_tokens == 1) {
    return absl::InvalidArgumentError("--max-context-tokens is 1, it must be 0 or at least 2");
  }
  options.max_plans_in_flight = absl::GetFlag(FLAGS_max_plans_in_flight);
  options.watermark = absl::GetFlag(FLAGS_watermark);
  if (!(options.watermark >= 0 && options.watermark < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--watermark is ", NumberText(options.watermark), ", it must be in [0, 1)"));
  }
  QUIRE_RETURN_IF_ERROR(ReadPolicy(&options));
  return options;
}

absl::StatusOr<WaitLimits> MakeWaitLimits() {
  QUIRE_ASSIGN_OR_RETURN(const absl::Duration max_wait, DurationFlag(FLAGS_max_queue_wait));
  const double share = absl::GetFlag(FLAGS_max_queue_share);
  if (!(share > 0 && share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-queue-share is ", NumberText(share), ", it must be above 0 and at most 1"));
  }
  return WaitLimits{.max_wait_us = absl::ToInt64Microseconds(max_wait), .max_deadline_share = share};
}

absl::StatusOr<ManagerOptions> MakeOptions() {
  ManagerOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.workers, Workers());
  QUIRE_ASSIGN_OR_RETURN(options.listen, ListenFlag(FLAGS_listen));
  QUIRE_ASSIGN_OR_RETURN(options.transport,
                         ReadTransportFlags(options.listen, {"--tokens", !absl::GetFlag(FLAGS_tokens).empty()}));
  QUIRE_RETURN_IF_ERROR(ReadCallers(&options));
  QUIRE_RETURN_IF_ERROR(ReadWorkerTls(&options));
  QUIRE_ASSIGN_OR_RETURN(options.health_listen, OptionalTcpAddressFlag(FLAGS_health_listen));
  QUIRE_ASSIGN_OR_RETURN(options.metrics_listen, OptionalTcpAddressFlag(FLAGS_metrics_listen));
  QUIRE_ASSIGN_OR_RETURN(options.max_connections, ReadMaxConnections());
  QUIRE_ASSIGN_OR_RETURN(options.web_access, ReadWebAccess());
  QUIRE_ASSIGN_OR_RETURN(options.standby, ReadStandbyFlags(options.transport.is_insecure));
  QUIRE_ASSIGN_OR_RETURN(options.scheduler, MakeSchedulerOptions());
  QUIRE_RETURN_IF_ERROR(ReadTenants(&options));
  QUIRE_ASSIGN_OR_RETURN(options.inference, MakeInferenceOptions());
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_tenant_labels, 0, 1000));
  options.max_tenant_labels = absl::GetFlag(FLAGS_max_tenant_labels);
  options.has_vllm_metrics = absl::GetFlag(FLAGS_vllm_metrics);
  QUIRE_ASSIGN_OR_RETURN(options.status_page,
                         (FlagChoice<StatusPageKind>(FLAGS_status_page, {{"off", StatusPageKind::kOff},
                                                                         {"sums", StatusPageKind::kSums},
                                                                         {"names", StatusPageKind::kNames}})));
  QUIRE_ASSIGN_OR_RETURN(options.wait_limits, MakeWaitLimits());
  options.has_prefix_cache = absl::GetFlag(FLAGS_prefix_cache);
  options.max_pinned_share = absl::GetFlag(FLAGS_max_pinned_share);
  if (!(options.max_pinned_share >= 0 && options.max_pinned_share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-pinned-share is ", NumberText(options.max_pinned_share), ", it must be in [0, 1]"));
  }
  QUIRE_RETURN_IF_ERROR(CheckFlagRange(FLAGS_max_worker_bytes.Name(), absl::GetFlag(FLAGS_max_worker_bytes),
                                       int64_t{1} << 20, int64_t{1} << 40));
  options.max_worker_bytes = absl::GetFlag(FLAGS_max_worker_bytes);
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_step_ms, 0, 3'600'000));
  options.max_step_ms = absl::GetFlag(FLAGS_max_step_ms);
  QUIRE_ASSIGN_OR_RETURN(options.step_timeout, DurationFlag(FLAGS_step_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.changes_numerics,
                         (FlagChoice<bool>(FLAGS_failover, {{"exact", false}, {"approximate", true}})));
  QUIRE_ASSIGN_OR_RETURN(options.failover_after, DurationOrZeroFlag(FLAGS_failover_after));
  options.rebalances = absl::GetFlag(FLAGS_rebalance);
  QUIRE_ASSIGN_OR_RETURN(options.adopt_window, DurationOrZeroFlag(FLAGS_adopt_window));
  QUIRE_ASSIGN_OR_RETURN(options.worker_grace, DurationFlag(FLAGS_worker_grace));
  QUIRE_ASSIGN_OR_RETURN(options.worker_keepalive_timeout, DurationFlag(FLAGS_worker_keepalive_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.drain_timeout, DurationFlag(FLAGS_drain_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.log, ReadLogFlags());
  QUIRE_ASSIGN_OR_RETURN(options.traces, ReadTraceFlags("quire-manager"));
  return options;
}

}  // namespace

const ProgramFlags& ManagerFlags() {
  static const auto* const flags = new ProgramFlags{
      "quire-manager",
      "schedules requests over the KV memory of its workers and streams tokens to clients.",
      "--workers=host:port[,host:port ...] [flags]",
      {{"Addresses:",
        {"workers", "listen", "health_listen", "metrics_listen", "max_connections", "host_names", "allowed_origins"}},
       {"Metrics:", {"max_tenant_labels", "vllm_metrics", "status_page"}},
       TransportFlagGroup(),
       {"Who may call, and how much:", {"tokens", "tenants", "client_names", "admin_names"}},
       {"TLS to workers:", {"worker_tls_ca", "worker_tls_cert", "worker_tls_key", "worker_name"}},
       StandbyFlagGroup(),
       {"Steps:", {"max_tokens_per_step", "max_chunk_tokens", "max_step_ms", "max_plans_in_flight"}},
       {"Workers:", {"max_worker_bytes"}},
       {"Lost workers and managers:", {"failover", "failover_after", "rebalance", "adopt_window"}},
       {"Requests:",
        {"policy", "tenant_weights", "batching", "waiting_served_ratio", "max_waiting_requests", "max_queue_share",
         "max_context_tokens", "watermark", "prefix_cache", "max_pinned_share", "generation_config"}},
       {"Calls of clients:",
        {"max_requests", "max_batch_requests", "max_message_bytes", "max_receiving_bytes", "max_prompt_bytes",
         "max_outbox_tokens", "max_detached_requests", "max_replay_bytes", "resume_key_file", "max_waiting_texts",
         "max_text_bytes", "text_threads"}},
       {"Times, such as 500ms, 30s or 2m, above 0 and at most 24h:",
        {"max_queue_wait", "step_timeout", "worker_grace", "worker_keepalive_timeout", "receive_timeout",
         "last_write_timeout", "detach_grace", "drain_timeout"}},
       LogFlagGroup({"log_requests"}),
       TraceFlagGroup(),
       ConfigurationFlagGroup()},
      {"workers", "client_names", "admin_names", "tenant_weights", "etcd", "host_names", "allowed_origins"}};
  return *flags;
}

absl::StatusOr<CommandLine<ManagerOptions>> ParseManagerCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment) {
  return ReadConfiguration<ManagerOptions>(ManagerFlags(), arguments, environment, MakeOptions);
}

}  // namespace quire
