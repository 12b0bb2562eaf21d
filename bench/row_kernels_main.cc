// SPDX-License-Identifier: Apache-2.0

// Measures the kernels of a CPU that work on single rows: sampling and RMS norm.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/clocks.h"
#include "bench/cpu_kernels_flag.h"
#include "client/load/samples.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/kernel_test_util.h"

ABSL_FLAG(
    int32_t, threads, 0,
    "Threads that compute; 0: one per core. With one thread, times are CPU times, which other processes disturb less.");
ABSL_FLAG(int32_t, rounds, 50, "Rounds of each measurement; medians are printed.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{"row_kernels",
                                                    "measures sampling and RMS norm.",
                                                    "[flags]",
                                                    {{"Backend:", {"cpu_kernels", "threads"}}, {"Load:", {"rounds"}}}};
  return *flags;
}

class Measurement {
 public:
  // Uses the backend, which has `num_threads` threads. 0 means one per core.
  Measurement(Backend* backend, int num_threads, int num_rounds)
      : backend_(backend), num_threads_(num_threads), num_rounds_(num_rounds) {}

  void AllSampling() {
    SamplingRow row = {};
    row.temperature = 0;
    row.num_top = row.given_token = -1;
    Sampling("greedy", row);
    row.num_top = 20;
    Sampling("greedy with 20 logprobs", row);
    row.num_top = -1;
    row.temperature = 1;
    Sampling("plain", row);
    row.top_n_sigma = 1.5f;
    Sampling("top-n-sigma 1.5", row);
    row.top_n_sigma = 0;
    row.top_k = 50;
    Sampling("top-k 50", row);
    row.top_p = 0.9f;
    Sampling("top-k 50, top-p 0.9", row);
    row.top_k = 0;
    Sampling("top-p 0.9", row);
    row.temperature = 1e6;
    row.top_p = 0.5f;
    Sampling("top-p 0.5 of nearly equal scores", row);
    row.top_p = 1;
    row.top_k = 31'999;
    Sampling("top-k 31999 of nearly equal scores", row);
    row.temperature = 1;
    row.top_k = 0;
    for (const int num_candidates : {8, 32, 256}) {
      row.num_candidates = num_candidates;
      Sampling(absl::StrCat(num_candidates, " candidates"), row, 16, 128 * 1024);
    }
  }

  void RmsNorm(int num_rows, int dim) {
    Random random(4);
    const std::vector<float> x = random.Normals(size_t(num_rows) * dim), weight = random.Normals(dim);
    std::vector<float> y(x.size());
    Time(absl::StrCat("RMS norm of ", num_rows, " x ", dim), 2 * sizeof(float) * y.size(), [&] {
      backend_->RmsNorm(
          {.x = x.data(), .weight = weight.data(), .y = y.data(), .num_rows = num_rows, .dim = dim, .epsilon = 1e-5f});
    });
  }

 private:
  void Sampling(const std::string& name, const SamplingRow& row, int num_rows = 64, int vocab_size = 32'000) {
    Random random(3);
    const int max_top = std::max(20, row.num_candidates);
    const std::vector<float> logits = random.Normals(size_t(num_rows) * vocab_size, 2);
    const std::vector<SamplingRow> rows(num_rows, row);
    std::vector<SamplingResult> results(num_rows);
    std::vector<ScoredCandidate> top(size_t(num_rows) * max_top);
    Time(absl::StrCat("sample ", num_rows, " x ", vocab_size, ", ", name), sizeof(float) * logits.size(), [&] {
      backend_->Sample({.logits = logits.data(),
                        .logit_rows = nullptr,
                        .num_rows = num_rows,
                        .vocab_size = vocab_size,
                        .rows = rows.data(),
                        .results = results.data(),
                        .top = top.data(),
                        .max_top = max_top});
    });
  }

  // Prints the median time of a call, after one that is not measured.
  void Time(const std::string& name, size_t num_bytes, const std::function<void()>& call) {
    call();
    Samples seconds;
    for (int round = 0; round < num_rounds_; ++round) {
      const double start = SecondsOf(num_threads_);
      call();
      seconds.Add(SecondsOf(num_threads_) - start);
    }
    std::printf("%-44s %10.1f %10.1f %10.1f %8.1f\n", name.c_str(), 1e6 * seconds.Median(),
                1e6 * seconds.Quantile(0.25), 1e6 * seconds.Quantile(0.75),
                1e-9 * double(num_bytes) / seconds.Median());
  }

  Backend* const backend_;
  const int num_threads_, num_rounds_;
};

absl::Status Run() {
  QUIRE_ASSIGN_OR_RETURN(const cpu::Isa isa, CpuKernelsFlag());
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 10'000));
  const int num_threads = absl::GetFlag(FLAGS_threads);
  const auto backend = cpu::MakeCpuBackend(num_threads, isa);
  std::printf("%s\n%-44s %10s %10s %10s %8s\n", backend->Description().c_str(), "", "median us", "quartile", "quartile",
              "GB/s");
  Measurement measurement(backend.get(), num_threads, absl::GetFlag(FLAGS_rounds));
  measurement.AllSampling();
  measurement.RmsNorm(64, 4096);
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
