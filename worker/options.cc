#include "worker/options.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/configuration.h"
#include "base/status.h"
#include "base/worker_protocol.h"

ABSL_FLAG(
    std::string, model, "",
    "Required. A Hugging Face model directory: config.json, *.safetensors, and tokenizer.json or tokenizer.model.");
ABSL_FLAG(std::string, model_name, "",
          "Name under which clients see the model. Without one: the last part of the directory.");
ABSL_FLAG(
    std::string, listen, "127.0.0.1:50061",
    "Where the manager connects with gRPC: host:port or unix:path. Port 0 takes a free port and prints it; 0.0.0.0 "
    "as the host listens on all networks of the machine, which needs TLS.");
ABSL_FLAG(
    std::string, health_listen, "",
    "Where probes ask for health (grpc.health.v1) in plain text, without certificate or token: host:port. It tells "
    "whether the program lives and is ready, and nothing else. Empty: --listen alone tells.");
ABSL_FLAG(
    std::string, manager_names, "quire-manager",
    "With --tls-ca: DNS names or URIs, separated by commas, one of which the manager's certificate must have. *: any.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9461",
          "Where Prometheus scrapes /metrics: host:port. Port 0 takes a free port and prints it; empty: no metrics.");
ABSL_FLAG(std::string, kv_bytes, "", "Size of the pool in bytes, such as 1073741824, 512MiB or 1.5GiB.");
ABSL_FLAG(int64_t, num_blocks, 0, "Size of the pool in blocks, up to 16777216; 0: not given.");
ABSL_FLAG(double, memory_fraction, 0,
          "Size of the pool as a share, above 0 and at most 1, of the memory that is available once the weights are "
          "loaded (in a container: of what its limit leaves); 0: not given.");
ABSL_FLAG(std::string, swap_bytes, "0",
          "Size of the host tier in bytes, such as 4GiB: memory next to the pool to which the manager moves blocks of "
          "requests that have to wait; 0: none, they are computed again.");
ABSL_FLAG(int32_t, block_size, 16,
          "Tokens per block: 1, 2, 4, 8 or a multiple of 16 up to 65536. Small blocks waste less at the end of each "
          "sequence, large ones cost less to look up.");
ABSL_FLAG(std::string, kv_type, "auto",
          "Precision of K and V: auto (that of the weights), float32, bfloat16 or float16. Two bytes per number hold "
          "twice the tokens.");
ABSL_FLAG(bool, prefault, false,
          "Write to all memory of the pool at the start, so that memory that is missing shows at once. Otherwise the "
          "system commits it when blocks are first used.");
ABSL_FLAG(int32_t, max_sequences, 256, "Sequences that run at the same time, 1 to 65536; further ones wait.");
ABSL_FLAG(int32_t, max_tokens_per_step, 2048,
          "Tokens that one step computes at most, 1 to 1048576, all sequences together. Sets the scratch memory.");
ABSL_FLAG(int32_t, threads, 0, "Threads that compute, up to 1024; 0: one per core.");
ABSL_FLAG(bool, bind_threads, true,
          "Bind each thread that computes to a core of its own, when there are as many threads as cores. Off is better "
          "where other programs keep single cores busy.");
ABSL_FLAG(std::string, cpu_kernels, "auto",
          "Instruction set of the kernels: auto (the best that the machine has), generic, avx2, avx512, avx512_bf16 or "
          "amx. Workers with equal kernels, weights and K/V precision compute equal bits, avx2 and avx512 the same. "
          "Where machines differ, name one set that all have.");
ABSL_FLAG(std::string, device, "cpu", "What computes: cpu, cuda (the first GPU) or cuda:N.");
ABSL_FLAG(bool, exact_gpu, false,
          "On a GPU, a token's logits do not depend on what else is in the step, bit for bit, as they never do on the "
          "CPU; prompts are slower. Otherwise near ties may fall differently from run to run.");
ABSL_FLAG(std::string, gpu_tuning_cache, "",
          "File that keeps the fastest way to multiply each shape on this GPU, so that later starts need not look for "
          "it; empty: none.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "How long the manager's requests may go on after SIGTERM or Ctrl-C; no new ones come.");

namespace quire {
namespace {

constexpr int kMaxTokensPerStep = 1 << 20;
constexpr int kMaxThreads = 1024;

absl::Status CheckCount(const absl::Flag<int32_t>& flag, int min, int max) {
  return CheckFlagRange(flag.Name(), absl::GetFlag(flag), min, max);
}

absl::Status CheckBlockSize(int block_size) {
  const bool is_small = block_size == 1 || block_size == 2 || block_size == 4 || block_size == 8;
  if (is_small || (block_size > 0 && block_size % 16 == 0 && block_size <= kMaxWorkerBlockSize))
    return absl::OkStatus();
  return InvalidArgument("--block-size is ", block_size, ", it must be 1, 2, 4, 8 or a multiple of 16 up to ",
                         kMaxWorkerBlockSize);
}

absl::StatusOr<PoolRequest> ReadPool() {
  PoolRequest pool;
  const std::string bytes = absl::GetFlag(FLAGS_kv_bytes);
  const int64_t blocks = absl::GetFlag(FLAGS_num_blocks);
  const double fraction = absl::GetFlag(FLAGS_memory_fraction);
  if (!bytes.empty()) {
    const absl::StatusOr<int64_t> parsed = ParseBytes(bytes);
    if (!parsed.ok()) return InvalidArgument("--kv-bytes: ", parsed.status().message());
    pool.bytes = *parsed;
  }
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("num_blocks", blocks, 0, kMaxWorkerBlocks));
  if (blocks > 0) pool.num_blocks = blocks;
  if (!(fraction >= 0 && fraction <= 1)) {
    return InvalidArgument("--memory-fraction is ", fraction, ", it must be above 0 and at most 1");
  }
  if (fraction > 0) pool.memory_fraction = fraction;
  if (pool.bytes.has_value() + pool.num_blocks.has_value() + pool.memory_fraction.has_value() > 1) {
    return InvalidArgument("--kv-bytes, --num-blocks and --memory-fraction exclude each other");
  }
  return pool;
}

absl::StatusOr<int64_t> ReadSwapBytes() {
  const std::string bytes = absl::GetFlag(FLAGS_swap_bytes);
  if (bytes == "0") return 0;
  const absl::StatusOr<int64_t> parsed = ParseBytes(bytes);
  if (!parsed.ok()) return InvalidArgument("--swap-bytes: ", parsed.status().message());
  return parsed;
}

absl::StatusOr<std::optional<cpu::Isa>> ReadCpuKernels() {
  QUIRE_ASSIGN_OR_RETURN(const std::optional<cpu::Isa> kernels,
                         FlagChoice<std::optional<cpu::Isa>>(FLAGS_cpu_kernels, {{"auto", std::nullopt},
                                                                                 {"generic", cpu::Isa::kGeneric},
                                                                                 {"avx2", cpu::Isa::kAvx2},
                                                                                 {"avx512", cpu::Isa::kAvx512},
                                                                                 {"avx512_bf16", cpu::Isa::kAvx512Bf16},
                                                                                 {"amx", cpu::Isa::kAmx}}));
  const std::vector<cpu::Isa> supported = cpu::SupportedIsas();
  if (!kernels || std::find(supported.begin(), supported.end(), *kernels) != supported.end()) return kernels;
  const auto append_name = [](std::string* out, cpu::Isa isa) { absl::StrAppend(out, cpu::Name(isa)); };
  return InvalidArgument("--cpu-kernels is ", cpu::Name(*kernels), ", this machine has ",
                         absl::StrJoin(supported, ", ", append_name));
}

// "cpu": none.
absl::StatusOr<std::optional<int>> ReadGpu() {
  constexpr int kMaxGpus = 1024;
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device == "cpu") return std::nullopt;
  if (device == "cuda") return 0;
  absl::string_view ordinal = device;
  int gpu;
  if (absl::ConsumePrefix(&ordinal, "cuda:") && absl::SimpleAtoi(ordinal, &gpu) && gpu >= 0 && gpu < kMaxGpus)
    return gpu;
  return InvalidArgument("--device is \"", device, "\", it must be cpu, cuda or cuda:N with N in 0 .. ", kMaxGpus - 1);
}

std::string LastPart(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

absl::StatusOr<WorkerOptions> ReadOptions() {
  WorkerOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  if (options.model.empty()) return InvalidArgument("--model is missing: the directory of a model");
  options.model_name = absl::GetFlag(FLAGS_model_name);
  if (options.model_name.empty()) options.model_name = LastPart(options.model);
  QUIRE_ASSIGN_OR_RETURN(options.listen, ListenFlag(FLAGS_listen));
  QUIRE_ASSIGN_OR_RETURN(options.transport, ReadTransportFlags(options.listen, /*has_other_proof=*/false));
  options.manager_names = absl::StrSplit(absl::GetFlag(FLAGS_manager_names), ',', absl::SkipEmpty());
  QUIRE_ASSIGN_OR_RETURN(options.health_listen, OptionalPortFlag(FLAGS_health_listen));
  QUIRE_ASSIGN_OR_RETURN(options.metrics_listen, OptionalPortFlag(FLAGS_metrics_listen));
  QUIRE_RETURN_IF_ERROR(CheckBlockSize(absl::GetFlag(FLAGS_block_size)));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_sequences, 1, kMaxWorkerRows));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_tokens_per_step, 1, kMaxTokensPerStep));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_threads, 0, kMaxThreads));
  options.block_size = absl::GetFlag(FLAGS_block_size);
  options.prefault = absl::GetFlag(FLAGS_prefault);
  options.max_sequences = absl::GetFlag(FLAGS_max_sequences);
  options.max_tokens_per_step = absl::GetFlag(FLAGS_max_tokens_per_step);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.bind_threads = absl::GetFlag(FLAGS_bind_threads);
  QUIRE_ASSIGN_OR_RETURN(options.pool, ReadPool());
  QUIRE_ASSIGN_OR_RETURN(options.swap_bytes, ReadSwapBytes());
  QUIRE_ASSIGN_OR_RETURN(options.kv_type,
                         FlagChoice<std::optional<DataType>>(FLAGS_kv_type, {{"auto", std::nullopt},
                                                                             {"float32", DataType::kFloat32},
                                                                             {"bfloat16", DataType::kBFloat16},
                                                                             {"float16", DataType::kFloat16}}));
  QUIRE_ASSIGN_OR_RETURN(options.cpu_kernels, ReadCpuKernels());
  QUIRE_ASSIGN_OR_RETURN(options.gpu, ReadGpu());
  options.exact_gpu = absl::GetFlag(FLAGS_exact_gpu);
  options.gpu_tuning_cache = absl::GetFlag(FLAGS_gpu_tuning_cache);
  QUIRE_ASSIGN_OR_RETURN(options.drain_timeout, DurationFlag(FLAGS_drain_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.log, ReadLogFlags());
  return options;
}

}  // namespace

const ProgramFlags& WorkerFlags() {
  static const auto* const flags = new ProgramFlags{
      "quire-worker",
      "owns the weights of a model and the memory of its KV blocks, and runs the steps that the manager plans.",
      "--model=DIRECTORY [flags]",
      {{"Model:", {"model", "model_name"}},
       {"Addresses:", {"listen", "health_listen", "metrics_listen"}},
       TransportFlagGroup(),
       {"Who may call:", {"manager_names"}},
       {"Size of the KV pool: one of these, or none for half of the memory that is left (GPU: 0.9), but\n"
        "no more than --max-sequences sequences of the model's full context can fill:",
        {"kv_bytes", "num_blocks", "memory_fraction"}},
       {"KV blocks:", {"swap_bytes", "block_size", "kv_type", "prefault"}},
       {"Device:", {"device", "threads", "bind_threads", "cpu_kernels", "exact_gpu", "gpu_tuning_cache"}},
       {"Steps:", {"max_sequences", "max_tokens_per_step"}},
       {"Times, such as 500ms, 30s or 2m, above 0 and at most 24h:", {"drain_timeout"}},
       LogFlagGroup(),
       ConfigurationFlagGroup()},
      {"manager_names"}};
  return *flags;
}

absl::StatusOr<CommandLine<WorkerOptions>> ParseWorkerCommandLine(absl::Span<const char* const> arguments,
                                                                  absl::Span<const char* const> environment) {
  return ReadConfiguration<WorkerOptions>(WorkerFlags(), arguments, environment, ReadOptions);
}

}  // namespace quire
