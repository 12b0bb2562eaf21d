#include "worker/options.h"

#include <iterator>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/flags.h"
#include "base/status.h"
#include "base/version.h"

ABSL_FLAG(std::string, model, "",
          "Hugging Face model directory: config.json, *.safetensors, tokenizer files. Required.");
ABSL_FLAG(std::string, model_name, "", "Name under which the model is served. Default: the directory's last part.");
ABSL_FLAG(std::string, listen, "127.0.0.1:50061",
          "Where the manager connects: host:port, or unix:/path. Port 0 takes a free port and prints it.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9461",
          "Where Prometheus scrapes /metrics: host:port. Port 0 takes a free port; empty: no metrics.");
ABSL_FLAG(int32_t, block_size, 16, "Tokens per KV block: 1, 2, 4, 8 or a multiple of 16.");
ABSL_FLAG(std::string, kv_bytes, "",
          "Size of the KV pool: a number of bytes, or with a suffix, 512MiB, 1.5GiB. At most one of --kv-bytes, "
          "--num-blocks and --memory-fraction; with none, half of the available memory, but not more than "
          "--max-sequences sequences of the model's full context can fill.");
ABSL_FLAG(int64_t, num_blocks, 0, "Size of the KV pool in blocks; 0: not given.");
ABSL_FLAG(double, memory_fraction, 0,
          "Size of the KV pool as a part of the memory that is available once the weights are loaded (in a container, "
          "of what its limit leaves), above 0 and at most 1; 0: not given.");
ABSL_FLAG(bool, prefault, false,
          "Write to all memory of the KV pool at the start. Otherwise the host commits it when blocks are first used.");
ABSL_FLAG(std::string, kv_type, "auto",
          "Precision of K and V: auto (that of the weights), float32, bfloat16, float16.");
ABSL_FLAG(int32_t, max_sequences, 256, "Sequences that may run at the same time, 1 to 65536.");
ABSL_FLAG(int32_t, max_tokens_per_step, 2048,
          "Tokens that one step may compute, 1 to 1048576. Sets the scratch memory.");
ABSL_FLAG(int32_t, threads, 0, "CPU threads; 0: one per core.");
ABSL_FLAG(std::string, log_level, "info", "Least level that is logged: debug, info, warning, error.");
ABSL_FLAG(bool, help, false, "Print this and leave.");
ABSL_FLAG(bool, version, false, "Print the version and leave.");

namespace quire {
namespace {

constexpr const char* kNames[] = {"model",      "model_name", "listen",        "metrics_listen",
                                  "block_size", "kv_bytes",   "num_blocks",    "memory_fraction",
                                  "prefault",   "kv_type",    "max_sequences", "max_tokens_per_step",
                                  "threads",    "log_level",  "help",          "version"};
constexpr int kMaxSequences = 1 << 16;
constexpr int kMaxTokensPerStep = 1 << 20;
constexpr int kMaxBlockSize = 1 << 16;
constexpr int kMaxThreads = 1024;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad("--", name, " is ", value, ", allowed are ", low, " to ", high);
}

absl::Status CheckBlockSize(int block_size) {
  const bool is_small = block_size == 1 || block_size == 2 || block_size == 4 || block_size == 8;
  if (is_small || (block_size > 0 && block_size % 16 == 0 && block_size <= kMaxBlockSize)) return absl::OkStatus();
  return Bad("--block-size is ", block_size, ", allowed are 1, 2, 4, 8 and multiples of 16 up to ", kMaxBlockSize);
}

absl::StatusOr<PoolRequest> ReadPool() {
  PoolRequest pool;
  const std::string bytes = absl::GetFlag(FLAGS_kv_bytes);
  const int64_t blocks = absl::GetFlag(FLAGS_num_blocks);
  const double fraction = absl::GetFlag(FLAGS_memory_fraction);
  if (!bytes.empty()) {
    const absl::StatusOr<int64_t> parsed = ParseBytes(bytes);
    if (!parsed.ok()) return Bad("--kv-bytes: ", parsed.status().message());
    pool.bytes = *parsed;
  }
  if (blocks < 0) return Bad("--num-blocks is ", blocks, ", it must be at least 1");
  if (blocks > 0) pool.num_blocks = blocks;
  if (!(fraction >= 0 && fraction <= 1)) {
    return Bad("--memory-fraction is ", fraction, ", it must be above 0 and at most 1");
  }
  if (fraction > 0) pool.memory_fraction = fraction;
  if (pool.bytes.has_value() + pool.num_blocks.has_value() + pool.memory_fraction.has_value() > 1) {
    return Bad("--kv-bytes, --num-blocks and --memory-fraction exclude each other");
  }
  return pool;
}

absl::StatusOr<std::optional<DataType>> ReadKvType() {
  const std::string name = absl::GetFlag(FLAGS_kv_type);
  if (name == "auto") return std::optional<DataType>();
  for (DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    if (name == Name(type)) return std::optional<DataType>(type);
  }
  return Bad("--kv-type is '", name, "', allowed are auto, float32, bfloat16, float16");
}

absl::StatusOr<LogLevel> ReadLogLevel() {
  const std::string name = absl::GetFlag(FLAGS_log_level);
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return Bad("--log-level is '", name, "', allowed are debug, info, warning, error");
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
  if (options.model.empty()) return Bad("--model is missing: the directory of a model");
  options.model_name = absl::GetFlag(FLAGS_model_name);
  if (options.model_name.empty()) options.model_name = LastPart(options.model);
  options.listen = absl::GetFlag(FLAGS_listen);
  if (options.listen.find(':') == std::string::npos) {
    return Bad("--listen is '", options.listen, "', expected is host:port or unix:/path");
  }
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.block_size = absl::GetFlag(FLAGS_block_size);
  options.prefault = absl::GetFlag(FLAGS_prefault);
  options.max_sequences = absl::GetFlag(FLAGS_max_sequences);
  options.max_tokens_per_step = absl::GetFlag(FLAGS_max_tokens_per_step);
  options.threads = absl::GetFlag(FLAGS_threads);
  QUIRE_RETURN_IF_ERROR(CheckBlockSize(options.block_size));
  QUIRE_RETURN_IF_ERROR(CheckRange("max-sequences", options.max_sequences, 1, kMaxSequences));
  QUIRE_RETURN_IF_ERROR(CheckRange("max-tokens-per-step", options.max_tokens_per_step, 1, kMaxTokensPerStep));
  QUIRE_RETURN_IF_ERROR(CheckRange("threads", options.threads, 0, kMaxThreads));
  QUIRE_ASSIGN_OR_RETURN(options.pool, ReadPool());
  QUIRE_ASSIGN_OR_RETURN(options.kv_type, ReadKvType());
  QUIRE_ASSIGN_OR_RETURN(options.log_level, ReadLogLevel());
  return options;
}

}  // namespace

absl::StatusOr<WorkerCommandLine> ParseWorkerCommandLine(absl::Span<const char* const> arguments) {
  QUIRE_RETURN_IF_ERROR(SetFlags(arguments, kNames));
  WorkerCommandLine line;
  if (absl::GetFlag(FLAGS_help)) {
    line.text = absl::StrCat("quire-worker: owns a model's weights and KV blocks, and runs the manager's plans.\n\n",
                             "usage: quire-worker --model DIRECTORY [flags]\n\n", DescribeFlags(kNames));
  } else if (absl::GetFlag(FLAGS_version)) {
    line.text = absl::StrCat("quire-worker ", kVersion, "\n");
  } else {
    QUIRE_ASSIGN_OR_RETURN(line.options, ReadOptions());
  }
  return line;
}

}  // namespace quire
