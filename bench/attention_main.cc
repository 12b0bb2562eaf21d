// SPDX-License-Identifier: Apache-2.0

// Measures how fast attention over the paged cache is, compared with the time of a plain read of the bytes.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/attention_speed.h"
#include "bench/cpu_kernels_flag.h"
#include "bench/memory_reader.h"
#include "kernels/cpu/backend.h"

ABSL_FLAG(
    int32_t, threads, 0,
    "Threads that compute; 0: one per core. With one thread, times are CPU times, which other processes disturb less.");
ABSL_FLAG(int32_t, block_size, 16, "Tokens per block.");
ABSL_FLAG(std::string, kv_type, "bfloat16", "Precision of K and V: bfloat16 or int8.");
ABSL_FLAG(std::string, only, "", "Measure only the loads whose description contains this text, such as '8 x 1024'.");
ABSL_FLAG(int32_t, rounds, 5, "Rounds of each measurement; medians are printed.");
ABSL_FLAG(bool, json, false, "Print the report as JSON.");

namespace quire {
namespace {

constexpr int kMaxBlockSize = 1024;

const ProgramFlags& Flags() {
  static const auto* const flags =
      new ProgramFlags{"attention",
                       "measures attention over K and V in randomly placed blocks: decoding, shared prefixes, prompts.",
                       "[flags]",
                       {{"Backend:", {"cpu_kernels", "threads"}},
                        {"Load:", {"block_size", "kv_type", "only", "rounds"}},
                        {"Report:", {"json"}}}};
  return *flags;
}

// The first has the shape of a 0.5 B model. The second has the heads of larger models, but fewer layers.
constexpr AttentionModel kModels[] = {
    {.name = "24/6 heads of 64", .num_layers = 16, .num_heads = 24, .num_kv_heads = 6, .head_dim = 64},
    {.name = "32/4 heads of 128", .num_layers = 8, .num_heads = 32, .num_kv_heads = 4, .head_dim = 128},
};

constexpr AttentionLoad kLoads[] = {
    {.num_sequences = 1, .num_queries = 1, .context_tokens = 4096, .shared_tokens = 0},
    {.num_sequences = 8, .num_queries = 1, .context_tokens = 1024, .shared_tokens = 0},
    {.num_sequences = 8, .num_queries = 1, .context_tokens = 4096, .shared_tokens = 0},
    {.num_sequences = 16, .num_queries = 1, .context_tokens = 192, .shared_tokens = 0},
    {.num_sequences = 64, .num_queries = 1, .context_tokens = 192, .shared_tokens = 0},
    {.num_sequences = 64, .num_queries = 1, .context_tokens = 1056, .shared_tokens = 0},
    {.num_sequences = 64, .num_queries = 1, .context_tokens = 1056, .shared_tokens = 1024},
    {.num_sequences = 8, .num_queries = 1, .context_tokens = 2080, .shared_tokens = 2048},
    {.num_sequences = 1, .num_queries = 512, .context_tokens = 512, .shared_tokens = 0},
    {.num_sequences = 1, .num_queries = 512, .context_tokens = 4096, .shared_tokens = 0},
};

std::string Describe(const AttentionLoad& load) {
  if (load.num_queries > 1) {
    return absl::StrCat("prompt ", load.num_queries, " on ", load.context_tokens - load.num_queries);
  }
  return absl::StrCat(load.num_sequences, " x ", load.context_tokens,
                      load.shared_tokens > 0 ? absl::StrCat(", ", load.shared_tokens, " shared") : "");
}

void PrintHeader(const Backend& backend, KvType kv_type) {
  std::printf(
      "%s. K and V in %s. All layers of a step, medians.\n"
      "load: sequences x tokens of each; or, for a prompt, its new tokens on the tokens before them.\n"
      "reader: the GB/s of a plain reader of memory.\n"
      "memory share %%: the time in which a plain reader reads K and V once, in %% of the measured time. It shows\n"
      "how close decoding comes to the speed of the memory. Prompts are limited by arithmetic instead.\n"
      "scattered: the time with blocks in random order, divided by the time with consecutive blocks.\n\n"
      "%-18s %-24s %9s %9s %9s %9s %14s %10s\n",
      backend.Description().c_str(), Name(kv_type), "model", "load", "ms", "GB/s", "reader", "GFLOP/s",
      "memory share %", "scattered");
}

void Print(const AttentionModel& model, const AttentionLoad& load, const AttentionSpeed& speed) {
  const double seconds = speed.scattered.Median();
  std::printf("%-18s %-24s %9.3f %9.1f %9.1f %9.0f %14.0f %10.2f\n", model.name, Describe(load).c_str(), 1e3 * seconds,
              1e-9 * speed.kv_bytes / seconds, speed.bandwidth.Median(), 1e-9 * speed.flop / seconds,
              100 * speed.memory_share.Median(), speed.scatter_ratio.Median());
}

nlohmann::ordered_json ToJson(const AttentionModel& model, KvType kv_type, const AttentionLoad& load,
                              const AttentionSpeed& speed) {
  return {{"heads", model.num_heads},
          {"kv_heads", model.num_kv_heads},
          {"head_dim", model.head_dim},
          {"layers", model.num_layers},
          {"kv_type", Name(kv_type)},
          {"sequences", load.num_sequences},
          {"queries", load.num_queries},
          {"context_tokens", load.context_tokens},
          {"shared_tokens", load.shared_tokens},
          {"kv_bytes", speed.kv_bytes},
          {"flop", speed.flop},
          {"median_ms", 1e3 * speed.scattered.Median()},
          {"min_ms", 1e3 * speed.scattered.Quantile(0)},
          {"max_ms", 1e3 * speed.scattered.Quantile(1)},
          {"median_contiguous_ms", 1e3 * speed.contiguous.Median()},
          {"median_reader_gb_per_s", speed.bandwidth.Median()},
          {"median_memory_share", speed.memory_share.Median()},
          {"median_scatter_ratio", speed.scatter_ratio.Median()}};
}

absl::Status Run() {
  QUIRE_ASSIGN_OR_RETURN(const cpu::Isa isa, CpuKernelsFlag());
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 10'000));
  const int num_threads = absl::GetFlag(FLAGS_threads);
  const int block_size = absl::GetFlag(FLAGS_block_size);
  const bool is_small = block_size == 1 || block_size == 2 || block_size == 4 || block_size == 8;
  if (!is_small && (block_size < 16 || block_size > kMaxBlockSize || block_size % 16 != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--block-size is ", block_size, ", it must be 1, 2, 4, 8 or a multiple of 16 up to ", kMaxBlockSize));
  }
  QUIRE_ASSIGN_OR_RETURN(const KvType kv_type,
                         FlagChoice<KvType>(FLAGS_kv_type, {{"bfloat16", KvType::kBFloat16}, {"int8", KvType::kInt8}}));
  const std::string only = absl::GetFlag(FLAGS_only);
  const auto backend = cpu::MakeCpuBackend(num_threads, isa);
  QUIRE_ASSIGN_OR_RETURN(const auto memory, MemoryReader::Create(num_threads, size_t{1} << 30));
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  const bool prints_json = absl::GetFlag(FLAGS_json);
  if (!prints_json) PrintHeader(*backend, kv_type);
  for (const AttentionModel& model : kModels) {
    for (const AttentionLoad& load : kLoads) {
      if (!absl::StrContains(Describe(load), only)) continue;
      QUIRE_ASSIGN_OR_RETURN(const AttentionSpeed speed,
                             MeasureAttention(backend.get(), memory.get(), num_threads, model, kv_type, load,
                                              block_size, absl::GetFlag(FLAGS_rounds)));
      if (prints_json) {
        json.push_back(ToJson(model, kv_type, load, speed));
      } else {
        Print(model, load, speed);
      }
    }
  }
  if (prints_json) std::printf("%s\n", json.dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
