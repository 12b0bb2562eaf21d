#include "worker/pool_size.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

struct Unit {
  const char* suffix;
  double bytes;
};
constexpr Unit kUnits[] = {{"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}};

// Far from the end of 32-bit block ids; a manager accepts no more.
constexpr int64_t kMaxBlocks = int64_t{1} << 30;

// Blocks that the rows can fill when every sequence is as long as can be.
int64_t UsefulBlocks(const WorkerLimits& limits) {
  return int64_t{limits.max_sequences} * limits.BlocksFor(limits.max_context_tokens);
}

}  // namespace

absl::StatusOr<uint32_t> PlanPool(const PoolRequest& request, const KvLayout& layout, const WorkerLimits& limits,
                                  int64_t available_bytes) {
  const int64_t block_bytes = static_cast<int64_t>(layout.block_bytes_all_layers());
  if (request.num_blocks.has_value() + request.bytes.has_value() + request.memory_fraction.has_value() > 1) {
    return absl::InvalidArgumentError("the pool's size is given more than once: use one of blocks, bytes and fraction");
  }
  int64_t blocks;
  if (request.num_blocks) {
    blocks = *request.num_blocks;
  } else if (request.bytes) {
    blocks = *request.bytes / block_bytes;
  } else if (request.memory_fraction) {
    blocks = static_cast<int64_t>(available_bytes * *request.memory_fraction) / block_bytes;
  } else {
    blocks =
        std::min(static_cast<int64_t>(available_bytes * kDefaultMemoryFraction) / block_bytes, UsefulBlocks(limits));
  }
  blocks = std::min(blocks, kMaxBlocks);
  if (blocks < 1) {
    return absl::ResourceExhaustedError(absl::StrCat("the KV pool has no room for a single block: a block of ",
                                                     layout.block_size, " tokens needs ", FormatBytes(block_bytes),
                                                     ", available are ", FormatBytes(available_bytes)));
  }
  if (blocks > available_bytes / block_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a KV pool of ", blocks, " blocks needs ",
                                                     FormatBytes(blocks * block_bytes), ", available are ",
                                                     FormatBytes(available_bytes)));
  }
  return static_cast<uint32_t>(blocks);
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  absl::string_view number = text;
  double factor = 1;
  for (const Unit& unit : kUnits) {
    if (absl::ConsumeSuffix(&number, unit.suffix)) {
      factor = unit.bytes;
      break;
    }
  }
  double value;
  if (!absl::SimpleAtod(number, &value) || !(value * factor >= 1 && value * factor < 9e18)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a number of bytes; examples: 1073741824, 512MiB, 1.5GiB"));
  }
  return static_cast<int64_t>(value * factor);
}

std::string FormatBytes(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes) return absl::StrFormat("%.1f %s", bytes / unit.bytes, unit.suffix);
  }
  return absl::StrCat(bytes, " bytes");
}

}  // namespace quire
