// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/options.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/configuration.h"
#include "base/local_address.h"
#include "base/number_text.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "kv_manager/process/tenant_file.h"
#include "kv_manager/worker_link/worker_address.h"

namespace quire {
namespace {

constexpr WholeRange kCount = {1, 1 << 30};
constexpr WholeRange kCountOrZero = {0, 1 << 30};
constexpr int64_t kMaxBytes = int64_t{1} << 40;

absl::Status CheckWorkers(const std::vector<std::string>& workers) {
  std::set<std::string> known;
  for (const std::string& worker : workers) {
    if (worker.empty()) {
      return InvalidArgument("--workers is '", absl::StrJoin(workers, ","), "', it has an empty address");
    }
    if (const absl::Status status = CheckWorkerAddress(worker); !status.ok()) {
      return InvalidArgument("--workers: ", status.message());
    }
    if (!known.insert(worker).second) return InvalidArgument("--workers names '", worker, "' twice");
  }
  return absl::OkStatus();
}

void AddStepFlags(ManagerOptions* options, Settings* table) {
  table->Group("Steps:");
  table->Add("max_tokens_per_step", &options->scheduler.max_tokens_per_step, kCount,
             "Largest number of tokens in one step of a worker, summed over all sequences. The worker's own "
             "--max-tokens-per-step may be lower.");
  table->Add("max_chunk_tokens", &options->scheduler.max_chunk_tokens, kCount,
             "Largest number of tokens of one sequence in one step. A longer prompt takes several steps, so that "
             "running requests do not wait for the whole prompt.");
  table->Add("max_step_ms", &options->max_step_ms, {0, 3'600'000},
             "Target for the longest time between two tokens of a request that generates, in milliseconds: while "
             "requests generate, a step gets at most as many prompt tokens as the worker can compute in this time, "
             "judging by earlier steps, and fewer when these requests lose more by waiting than the prompts gain. A "
             "step in which no request generates may take 500 milliseconds, or longer where a step without prompts "
             "already takes more than 125, or where this target is longer. 0 means no limit.");
  table->Add("max_plans_in_flight", &options->scheduler.max_plans_in_flight, {1, kMaxPlansInFlight},
             "Number of plans that may be unanswered: 1 or 2. With 2, the next step is sent while the worker runs "
             "the current one. With 1, it is sent after the result.");

  table->Group("Workers:");
  table->Add("max_worker_bytes", &options->max_worker_bytes, {1 << 20, kMaxBytes},
             "Memory of the manager for the blocks, rows and vocabulary of one worker. A worker that describes more "
             "is refused. A block takes 192 bytes, and 4 for each of its tokens.");

  table->Group("Lost workers and managers:");
  table->AddChoice(
      "failover", &options->changes_numerics, {{"exact", false}, {"approximate", true}},
      "Where the requests of a lost worker may continue: exact (with workers of the same model and numerics, which "
      "give the same tokens; without such a worker a request waits for its own one, for --worker-grace, and then "
      "fails) or approximate (if no such worker is ready, with workers of the same model and tokenizer, which may give "
      "other tokens; the response says from which position on, in numerics_changed_at).");
  table->Add(
      "failover_after", &options->failover_after, TimeRange::kFromZero,
      "How long the requests of a lost worker wait for it before they move to other workers with the same model and "
      "numerics, at most 24h. 0: they move at once. An unresponsive worker is declared lost this much later, too.");
  table->Add("rebalance", &options->rebalances,
             "Give waiting requests of a worker that has been full for a while to idle workers with the same model "
             "and numerics. They have the same tokens there. Requests that run stay.");
  table->Add("adopt_window", &options->adopt_window, TimeRange::kFromZero,
             "How long a manager that has started waits for workers which may still have requests of the manager "
             "before it. It continues these requests and keeps the prefix cache, see --orphan-hold of the worker. "
             "Requests need --resume-key-file. At most 24h. 0: the workers drop what they have.");
}

void AddRequestFlags(ManagerOptions* options, Settings* table) {
  SchedulerOptions* const scheduler = &options->scheduler;
  // Flags have other defaults here than the struct.
  scheduler->policy = SchedulingPolicy::kFairShare;
  scheduler->max_context_tokens = 0;
  table->Group("Requests:");
  table->AddChoice("policy", &scheduler->policy,
                   {{"fcfs", SchedulingPolicy::kFcfs},
                    {"priority", SchedulingPolicy::kPriority},
                    {"longest-prefix-first", SchedulingPolicy::kLongestPrefixFirst},
                    {"fair-share", SchedulingPolicy::kFairShare}},
                   "Order in which requests are served: fair-share (first the tenant that has had the fewest tokens, "
                   "then by arrival; requests of one tenant by arrival), fcfs (by arrival), priority (by the "
                   "request's priority, then by arrival) or longest-prefix-first (by the length of the cached "
                   "prefix, then by arrival; every request is served at some time).");
  table->AddList("tenant_weights", &options->tenant_weights,
                 "Weights of tenants under the fair-share policy: tenant=weight, separated by commas. With a=2,b=1 "
                 "tenant a gets two tokens for each token of b while requests of both wait. Tenants that are not "
                 "listed have the weight 1. With --tenants, the weights are in that file.");
  table->AddChoice("batching", &scheduler->batching,
                   {{"continuous", Batching::kContinuous}, {"static", Batching::kStatic}},
                   "When new requests join the batch: continuous (in every step) or static (only when the whole "
                   "batch has ended; this is slower and meant for comparisons).");
  table->Add("waiting_served_ratio", &scheduler->waiting_served_ratio, {0, 1e6, "0 .. 1000000"},
             "Smallest number of waiting requests per running request at which new requests join the batch. With a "
             "value above 0, prefills interrupt decodes less often, and new requests wait longer.");
  table->Add("max_waiting_requests", &scheduler->max_waiting_requests, kCount,
             "Largest number of requests that wait on each worker. When it is reached, the tenant with the most of "
             "them by weight loses its last one to a request of another tenant; further requests are refused with "
             "RESOURCE_EXHAUSTED.");
  table->Add(
      "max_queue_share", &options->wait_limits.max_deadline_share, {0, 1, "above 0 and at most 1", /*has_min=*/false},
      "Largest part of the time until a request's deadline that it may wait before it runs, above 0 and at most 1. A "
      "request that would wait longer, or would end after three quarters of the time until its deadline, is refused at "
      "once with RESOURCE_EXHAUSTED. The rule for the end applies only while load makes steps slow.");
  table->Add("max_context_tokens", &scheduler->max_context_tokens, kCountOrZero,
             "Largest number of tokens of prompt and output together. 0 means the number that the model was made for.");
  table->Add("watermark", &scheduler->watermark, {0, 1, "in [0, 1)", /*has_min=*/true, /*has_max=*/false},
             "Share of a worker's KV blocks, from 0 to below 1, that stays free when a request is admitted. Running "
             "requests use these blocks when they grow, before one of them must be preempted.");
  table->Add("prefix_cache", &options->has_prefix_cache,
             "Keep computed prefixes of prompts, and share them between requests with the same cache salt. They are "
             "evicted when their blocks are needed.");
  table->Add("max_pinned_share", &options->max_pinned_share, {0, 1, "in [0, 1]"},
             "Largest share of a worker's KV blocks, from 0 to 1, that pins of operators (quirectl pin) and pins of "
             "requests (cache_control) together protect from eviction.");
  table->AddChoice(
      "generation_config", &options->inference.limits.uses_model_defaults, {{"model", true}, {"none", false}},
      "Defaults for the sampling fields and the number of tokens that a request does not set: model (from the model's "
      "generation_config.json) or none (the defaults of the API). The model's end tokens are used in any case.");
}

void AddCallFlags(ManagerOptions* options, Settings* table) {
  InferenceServiceOptions* const inference = &options->inference;
  table->Group("Calls of clients:");
  table->Add("max_requests", &inference->max_requests, kCount,
             "Largest number of calls of Generate and requests of GenerateBatch at the same time. Further ones are "
             "refused. A reserve of 1/8 of this number is added for tenants below an equal share. The texts of all "
             "calls of Embed have the same limit, without a reserve.");
  table->Add("max_batch_requests", &inference->max_batch_requests, kCount,
             "Largest number of requests of one GenerateBatch call at the same time. Further ones are refused. One "
             "call of Embed may have as many texts.");
  table->Add("max_message_bytes", &inference->max_message_bytes, {1 << 16, 1 << 30},
             "Largest size of a message from or to a client, in bytes. A prompt of a million token ids is 5 MB.");
  table->Add("max_receiving_bytes", &inference->receive_limits.max_bytes, kAnyNumber,
             "Memory for all messages of clients that have not arrived completely, in bytes. One connection can use "
             "half of it. When it is used up, calls of the connection that uses most end with RESOURCE_EXHAUSTED. "
             "Answers of more than 16 KiB that clients have not read have a second budget of this size. When it is "
             "used up, calls of the address that uses most are cancelled.");
  table->Add("max_prompt_bytes", &inference->limits.max_prompt_bytes, kAnyNumber,
             "Largest size of a text to tokenize, in bytes. Longer texts are refused.");
  table->Add("max_outbox_tokens", &inference->max_outbox_tokens, kCount,
             "Largest number of tokens of each sample that wait for a client that reads slowly. The samples of a "
             "request share the sum, which takes at most 16 MiB. When there are more, the request ends; if it may "
             "outlive its call (on_disconnect in the API), only the call ends.");
  table->Add("max_detached_requests", &inference->detach.max_detached, kCountOrZero,
             "Largest number of requests that continue without their client, which has left and may come back "
             "(on_disconnect in the API). The same number of finished streams is kept for their clients. Beyond "
             "either limit, the oldest one of the tenant with the most is dropped. 0: no request outlives its call.");
  table->Add("max_replay_bytes", &inference->detach.max_replay_bytes, {0, kMaxBytes},
             "Memory for the streams that can be resumed, in bytes. A token takes about 50 bytes, and 8 more for "
             "each logprob. When it is used up, finished streams are dropped first, and then further streams can no "
             "longer be resumed. 1/8 of it is reserved for tenants below an equal share.");
  table->Add(
      "resume_key_file", &options->resume_key_file,
      "File with a secret of at least 32 bytes, which seals resume tokens. Managers with the same file accept each "
      "other's tokens. If empty, the manager draws a key when it starts, and accepts no token of an earlier one.");
  table->Add("max_waiting_texts", &inference->max_waiting_texts, kCountOrZero,
             "Largest number of long texts that wait to be tokenized. Further ones are refused.");
  table->Add("max_text_bytes", &inference->max_text_bytes, kAnyNumber,
             "Largest size of all texts together that wait to be tokenized or are being tokenized, in bytes. A "
             "tenant may have half of it. Further texts are refused.");
  table->Add("text_threads", &inference->num_text_threads, {1, 1024},
             "Number of threads that tokenize long texts. The same number of other threads converts generated tokens "
             "to text.");
}

void AddTimeFlags(ManagerOptions* options, Settings* table) {
  table->Group("Times, such as 500ms, 30s or 2m, above 0 and at most 24h:");
  table->Add("max_queue_wait", &options->max_queue_wait, TimeRange::kAboveZero,
             "Longest time that a request without a deadline may wait before it runs, as expected when it comes. A "
             "request that would wait longer, judging by the last seconds, is refused at once with "
             "RESOURCE_EXHAUSTED; one that was accepted waits as long as it takes. Once the queue has been that "
             "long, and until it is short again, the limit is --max-queue-share of this time. For work that nobody "
             "waits for, set a long time, or give the requests a deadline.");
  table->Add("step_timeout", &options->step_timeout, TimeRange::kAboveZero,
             "Time for a step. A worker that takes longer counts as lost, and the manager connects to it again. A "
             "worker that answers health checks gets more: 20 times the duration of its slowest recent step, from "
             "this value up to 10 times this value, or 4 times this value before its first result.");
  table->Add(
      "worker_grace", &options->worker_grace, TimeRange::kAboveZero,
      "How long requests wait for a lost worker to return before they fail, if no other worker can continue them.");
  table->Add("worker_keepalive_timeout", &options->worker_keepalive_timeout, TimeRange::kAboveZero,
             "Longest time for the answer to a keepalive probe. The manager probes the connection to a worker that "
             "has sent nothing for 20s. Without an answer the connection is closed, because the worker's host is "
             "gone or overloaded. This does not apply to unix sockets.");
  table->Add("receive_timeout", &options->inference.receive_limits.timeout, TimeRange::kAboveZero,
             "How long the request of a call may take to arrive completely before the call ends with "
             "DEADLINE_EXCEEDED. The messages of GenerateBatch may take longer.");
  table->Add("last_write_timeout", &options->inference.last_write_timeout, TimeRange::kAboveZero,
             "How long a client may take to read the end of its stream, or the answer of a call without a stream, "
             "before its call is cancelled.");
  table->Add("detach_grace", &options->inference.detach.grace, TimeRange::kAboveZero,
             "How long a request whose client has left, and which is to outlive its call, waits for the client to "
             "resume its stream before it ends. A stream that has ended can be resumed for the same time.");
  table->Add("drain_timeout", &options->drain_timeout, TimeRange::kAboveZero,
             "How long running requests may continue after SIGTERM or Ctrl-C. New requests are refused.");
}

absl::Status CheckWorkerTls(const ManagerOptions& options) {
  if (!options.worker_tls.authority.empty()) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckHasAuthority(options.worker_tls, "--worker-tls-"));
  for (const std::string& worker : options.workers) {
    if (options.transport.is_insecure || IsLocalAddress(worker)) continue;
    return InvalidArgument("--workers has '", worker,
                           "', which is reached over a network: give --worker-tls-ca, or --insecure");
  }
  return absl::OkStatus();
}

// Reads weights such as "a=2".
absl::Status ReadTenantWeights(const std::vector<std::string>& weights, TenantShares* shares) {
  for (const std::string& part : weights) {
    const std::vector<std::string> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    double weight = 0;
    if (sides.size() != 2 || sides[0].empty() || !absl::SimpleAtod(sides[1], &weight)) {
      return InvalidArgument(
          "--tenant-weights has '", part,
          "', it must be tenant=weight with a number as the weight, and a comma between two of them");
    }
    if (!(weight >= kMinTenantWeight && weight <= kMaxTenantWeight)) {
      return InvalidArgument("--tenant-weights gives '", sides[0], "' the weight ", sides[1], ", it must be ",
                             LimitText(kMinTenantWeight), " .. ", LimitText(kMaxTenantWeight));
    }
    if (!shares->by_tenant.emplace(sides[0], TenantShare{.weight = weight}).second) {
      return InvalidArgument("--tenant-weights names '", sides[0], "' twice");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTenants(const ManagerOptions& options) {
  const bool has_weights = !options.scheduler.tenants.by_tenant.empty();
  if (has_weights && options.scheduler.policy != SchedulingPolicy::kFairShare) {
    return InvalidArgument("--tenant-weights is set, it needs --policy=fair-share");
  }
  if (options.tenants.empty()) return absl::OkStatus();
  if (has_weights) return InvalidArgument("--tenants and --tenant-weights are set, only one of them may be");
  const absl::StatusOr<std::string> text = ReadFile(options.tenants);
  if (!text.ok()) return InvalidArgument("--tenants: ", text.status().message());
  return AboutFlag("--tenants", ParseTenantTable(options.tenants, *text).status());
}

absl::Status ReadResumeKey(const std::string& path, DetachOptions* options) {
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> secret = ReadFile(path);
  if (!secret.ok()) return InvalidArgument("--resume-key-file: ", secret.status().message());
  const absl::StatusOr<SealKey> key = SealKey::FromSecret(*secret);
  if (!key.ok()) return InvalidArgument("--resume-key-file: ", key.status().message());
  options->resume_key = *key;
  return absl::OkStatus();
}

absl::Status FinishCalls(InferenceServiceOptions* options) {
  const auto max_message_bytes = static_cast<int64_t>(options->max_message_bytes);
  const auto max_prompt_bytes = static_cast<int64_t>(options->limits.max_prompt_bytes);
  ReceiveLimits* const receiving = &options->receive_limits;
  // So that two connections can send messages of any size.
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_receiving_bytes", receiving->max_bytes, 4 * max_message_bytes, kMaxBytes));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_prompt_bytes", max_prompt_bytes, 1, max_message_bytes));
  // So that every tenant can send a text of any size.
  QUIRE_RETURN_IF_ERROR(
      CheckFlagRange("max_text_bytes", static_cast<int64_t>(options->max_text_bytes), 2 * max_prompt_bytes, kMaxBytes));
  receiving->max_connection_bytes = receiving->max_bytes / 2;
  receiving->max_message_bytes = options->max_message_bytes;
  return absl::OkStatus();
}

// Checks what depends on several flags, and makes the options that are no flag.
absl::Status Finish(ManagerOptions* options) {
  QUIRE_RETURN_IF_ERROR(CheckTransport(options->transport, options->listen, {"--tokens", !options->tokens.empty()}));
  QUIRE_RETURN_IF_ERROR(CheckWorkerTls(*options));
  QUIRE_RETURN_IF_ERROR(FinishStandby(options->transport.is_insecure, &options->standby));
  int* const max_context_tokens = &options->scheduler.max_context_tokens;
  if (*max_context_tokens == 1) return InvalidArgument("--max-context-tokens is 1, it must be 0 or at least 2");
  if (*max_context_tokens == 0) *max_context_tokens = std::numeric_limits<int>::max();
  QUIRE_RETURN_IF_ERROR(ReadTenantWeights(options->tenant_weights, &options->scheduler.tenants));
  QUIRE_RETURN_IF_ERROR(CheckTenants(*options));
  QUIRE_RETURN_IF_ERROR(FinishCalls(&options->inference));
  QUIRE_RETURN_IF_ERROR(ReadResumeKey(options->resume_key_file, &options->inference.detach));
  if (options->traces.service_name.empty()) options->traces.service_name = "quire-manager";
  options->wait_limits.max_wait_us = absl::ToInt64Microseconds(options->max_queue_wait);
  return absl::OkStatus();
}

}  // namespace

Settings ManagerSettings(ManagerOptions* options) {
  Settings table{"quire-manager", "schedules requests over the KV memory of its workers and streams tokens to clients.",
                 "--workers=host:port[,host:port ...] [flags]"};
  table.Group("Addresses:");
  table.AddList("workers", &options->workers,
                "Addresses of the workers, separated by commas: host:port, unix:path or dns:///name:port, which means "
                "every address of the name. Such a name is looked up again every few seconds.",
                &CheckWorkers, /*keeps_empty=*/true);
  table.Add(
      "listen", &options->listen,
      "Address for the gRPC connections of clients: host:port or unix:path. With port 0 the manager takes a free port "
      "and prints it. With 0.0.0.0 as the host it listens on all networks of the machine, which requires TLS.",
      &CheckListenAddress);
  table.Add(
      "health_listen", &options->health_listen,
      "Additional address for health checks (grpc.health.v1): host:port. It has no TLS and no authentication, and "
      "tells only whether the process is alive and ready. If empty, health checks are answered only at --listen.",
      &CheckOptionalTcpAddress);
  table.Add("metrics_listen", &options->metrics_listen,
            "Address at which Prometheus scrapes /metrics: host:port. With port 0 the manager takes a free port and "
            "prints it. If empty, it serves no metrics.",
            &CheckOptionalTcpAddress);
  AddMaxConnectionsFlag(&options->max_connections, &table);
  AddWebFlags(&options->web_access, &table);

  table.Group("Metrics:");
  table.Add("max_tenant_labels", &options->max_tenant_labels, {0, 1000},
            "Largest number of tenants that have their own label in metrics. All later tenants share one label.");
  table.Add("vllm_metrics", &options->has_vllm_metrics,
            "Also serve the most used metrics under vLLM's names, for vLLM's dashboards and for gateways that "
            "choose endpoints by these metrics.");
  table.AddChoice(
      "status_page", &options->status_page,
      {{"off", StatusPageKind::kOff}, {"sums", StatusPageKind::kSums}, {"names", StatusPageKind::kNames}},
      "Contents of the read-only page at / of the metrics port: off (there is no page), sums (workers, blocks and "
      "rates) or names (also single requests with their names and tenants). Names are shown only to users of this "
      "machine, and only without --tokens and --tls-ca. Do not use names behind a proxy, because its clients look like "
      "local users.");

  AddTransportFlags(&options->transport, &table);

  table.Group("Who may call, and how much:");
  table.Add("tokens", &options->tokens,
            "File of bearer tokens: each line has a tenant, the SHA-256 of the token in hexadecimal, and 'admin' if "
            "the token belongs to an operator. With this flag every call needs a token. Requests, their names and "
            "their cached prefixes then belong to the tenant of the token. The file is read again when it changes.");
  table.Add("tenants", &options->tenants,
            "YAML file with the limits of tenants: weight, max_waiting_requests, max_requests and max_blocks_share "
            "of each tenant, and of * for all tenants that are not listed. The file is read again when it changes.");
  table.AddList("client_names", &options->client_names,
                "DNS names or URIs, separated by commas; with --tls-ca a client's certificate must contain one of "
                "them. * accepts every name.");
  table.AddList("admin_names", &options->admin_names,
                "DNS names or URIs, separated by commas; with --tls-ca a client whose certificate contains one of "
                "them may also make the calls for operators, such as quirectl status. * accepts every name.");

  table.Group("TLS to workers:");
  table.Add("worker_tls_ca", &options->worker_tls.authority,
            "PEM file with the certificates of authorities. With it the manager uses TLS to all workers, and one of "
            "these authorities must have issued each worker's certificate.");
  table.Add("worker_tls_cert", &options->worker_tls.certificate,
            "PEM file with the certificate that the manager shows to workers. This file, the key and the CA file "
            "are read again when they change.");
  table.Add("worker_tls_key", &options->worker_tls.key,
            "PEM file with the private key of --worker-tls-cert, without a password.");
  table.Add(
      "worker_name", &options->worker_name,
      "DNS name that the certificates of workers must contain. If empty, it is the host in each worker's address.");

  AddStandbyFlags(&options->standby, &table);
  AddStepFlags(options, &table);
  AddRequestFlags(options, &table);
  AddCallFlags(options, &table);
  AddTimeFlags(options, &table);

  AddLogFlags(&options->log, &table);
  table.Add("log_requests", &options->inference.logs_requests,
            "Log a line for each request that ends, at any log level: name, tenant, the reason for the end, numbers "
            "of tokens, times and trace. The line never contains a prompt or output.");
  AddTraceFlags(&options->traces, &table);
  AddConfigurationFlags(&table);
  return table;
}

absl::StatusOr<CommandLine<ManagerOptions>> ParseManagerCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment) {
  const auto line = std::make_unique<CommandLine<ManagerOptions>>();  // The options are large.
  ManagerOptions* const options = &line->options;
  QUIRE_ASSIGN_OR_RETURN(line->text, ReadConfiguration(ManagerSettings(options), arguments, environment,
                                                       [options] { return Finish(options); }));
  return std::move(*line);
}

}  // namespace quire
