// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_BENCH_OPTIONS_H_
#define QUIRE_CLIENT_COMMANDS_BENCH_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "client/load/load_generator.h"
#include "client/load/load_plan.h"

namespace quire {

// The options of `quirectl bench`. The errors of its functions are INVALID_ARGUMENT and name the option.
struct BenchOptions {
  // The requests and when they are due.
  absl::StatusOr<LoadShape> MakeShape() const;
  // The options of the generator, without progress reports.
  absl::StatusOr<LoadOptions> MakeLoadOptions() const;
  // The load as JSON for the report, with the names of `vllm bench serve` where it has one.
  nlohmann::ordered_json DescribeLoad(const std::string& model) const;

  std::string rate;
  double burstiness = 1;
  int concurrency = 0;
  int max_in_flight = 1024;
  std::optional<int64_t> num_requests;
  double duration_s = 0;
  int num_warm_up = 0;
  uint32_t seed = 0;

  std::string input_tokens = "128";
  std::string output_tokens = "64";
  int shared_prefix_tokens = 0;
  std::string trace;
  double trace_scale = 1;
  uint32_t num_samples = 1;
  uint32_t beam_width = 0;
  std::optional<float> temperature;
  std::string tenant;
  std::string cache_salt;
  bool no_prefix_cache = false;
  bool multiplexes = false;
  double timeout_s = 600;

  std::string service_level;
  std::string save_path;
};

// Declares the options on `command`. Both are borrowed; `options` outlives `command`.
void AddBenchOptions(CLI::App* command, BenchOptions* options);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_BENCH_OPTIONS_H_
