#ifndef QUIRE_CLIENT_BENCH_COMMAND_H_
#define QUIRE_CLIENT_BENCH_COMMAND_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "client/client.h"
#include "client/load/load_generator.h"
#include "client/output.h"

namespace quire {

// `quirectl bench`: load on a manager, and what its callers saw.
class BenchCommand {
 public:
  // Declares the flags on `command`, which is borrowed and outlives this.
  explicit BenchCommand(CLI::App* command);

  // Sends the load and prints the report. Returns the exit code: 1 when a request failed. Ctrl-C cancels what runs,
  // prints what was measured and then ends the process.
  int Run(const ClientOptions& client_options, OutputFormat format) const;

 private:
  void AddLoadOptions(CLI::App* command);
  void AddRequestOptions(CLI::App* command);
  void AddReportOptions(CLI::App* command);

  absl::StatusOr<LoadShape> MakeShape() const;
  absl::StatusOr<LoadOptions> MakeOptions() const;
  // The load as JSON, with the names of `vllm bench serve` where it has one.
  nlohmann::ordered_json DescribeLoad(const std::string& model) const;
  absl::Status Save(const std::string& json) const;

  std::string rate_;
  double burstiness_ = 1;
  int concurrency_ = 0;
  int max_in_flight_ = 1024;
  std::optional<int64_t> num_requests_;
  double duration_s_ = 0;
  int num_warm_up_ = 0;
  uint32_t seed_ = 0;

  std::string input_tokens_ = "128";
  std::string output_tokens_ = "64";
  int shared_prefix_tokens_ = 0;
  std::string trace_;
  double trace_scale_ = 1;
  uint32_t num_samples_ = 1;
  uint32_t beam_width_ = 0;
  std::optional<float> temperature_;
  std::string tenant_;
  std::string cache_salt_;
  bool no_prefix_cache_ = false;
  bool multiplexes_ = false;
  double timeout_s_ = 600;

  std::string service_level_;
  std::string save_path_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_BENCH_COMMAND_H_
