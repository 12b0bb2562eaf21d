// SPDX-License-Identifier: Apache-2.0

// Times attention, sampling and norms of the CPU at the shapes of a 0.5 B parameter model and prints a table. This is
// not a test. The figures of CPUs in docs/kernel_measurements.md come from this program, bench/gemm and
// bench/attention.
//
//   kernel_speed [threads, 0: all] [generic | avx2 | avx512]
//
// With one thread the times are CPU time, which other work on the machine disturbs less.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>

#include "tests/kernels/paged_batch.h"

namespace quire {
namespace {

bool g_count_cpu_time = false;

double Now() {
  timespec now;
  clock_gettime(g_count_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// Returns the median seconds of a call, measured for about half a second.
double MedianSeconds(const std::function<void(int)>& call) {
  call(0);
  std::vector<double> times;
  const double start = Now();
  for (int i = 1; times.size() < 5 || Now() - start < 0.5; ++i) {
    const double begin = Now();
    call(i);
    times.push_back(Now() - begin);
  }
  std::nth_element(times.begin(), times.begin() + int64_t(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void Print(const std::string& name, double seconds, double gigabytes, double gigaflops) {
  printf("%-44s %10.1f us %8.1f GB/s %8.1f GFLOP/s\n", name.c_str(), seconds * 1e6, gigabytes / seconds,
         gigaflops / seconds);
  fflush(stdout);
}

// Each sequence has `num_queries` new tokens.
void TimeAttention(Backend* backend, KvType type, int block_size, int num_sequences, int context_len, int num_queries) {
  Random random(2);
  const KvLayout layout = {.num_layers = 1, .num_kv_heads = 6, .head_dim = 64, .block_size = block_size, .type = type};
  const int num_heads = 24, q_size = num_heads * layout.head_dim;
  PagedPool pool(layout, num_sequences * (context_len / block_size + 1), &random);
  std::fill_n(static_cast<char*>(pool.data()), pool.bytes(), char(0));
  PagedBatch batch;
  for (int i = 0; i < num_sequences; ++i) {
    batch.Add(pool.MakeTable(context_len), context_len - num_queries, context_len, block_size);
  }
  const BatchView view = batch.View();
  const std::vector<float> q = random.Normals(size_t(view.num_tokens) * q_size);
  std::vector<float> out(q.size());
  const double seconds = MedianSeconds([&](int) {
    backend->Attention({.batch = &view,
                        .q = q.data(),
                        .q_stride = q_size,
                        .out = out.data(),
                        .num_heads = num_heads,
                        .scale = 0.125f,
                        .window = 0,
                        .layout = &layout,
                        .kv_pool = pool.data()});
  });
  const double tokens_read = context_len - (num_queries - 1) / 2.0;  // Average per query.
  Print("attention " + std::string(Name(type)) + "/" + std::to_string(block_size) + ", " +
            std::to_string(num_sequences) + " x " + std::to_string(num_queries) + " of " + std::to_string(context_len),
        seconds, 1e-9 * num_sequences * context_len * double(layout.block_bytes()) / block_size,
        4e-9 * view.num_tokens * tokens_read * q_size);
}

void TimeSampling(Backend* backend, const std::string& name, const SamplingRow& row, int num_rows = 64,
                  int vocab_size = 32'000) {
  Random random(3);
  const int max_top = std::max(20, row.num_candidates);
  const std::vector<float> logits = random.Normals(size_t(num_rows) * vocab_size, 2);
  const std::vector<SamplingRow> rows(num_rows, row);
  std::vector<SamplingResult> results(num_rows);
  std::vector<ScoredCandidate> top(num_rows * max_top);
  const double seconds = MedianSeconds([&](int) {
    backend->Sample({.logits = logits.data(),
                     .logit_rows = nullptr,
                     .num_rows = num_rows,
                     .vocab_size = vocab_size,
                     .rows = rows.data(),
                     .results = results.data(),
                     .top = top.data(),
                     .max_top = max_top});
  });
  Print("sample " + std::to_string(num_rows) + " x " + std::to_string(vocab_size) + ", " + name, seconds,
        4e-9 * num_rows * vocab_size, 0);
}

void TimeAllSampling(Backend* backend) {
  SamplingRow row = {};
  row.top_p = row.repetition_penalty = 1;
  row.num_top = row.given_token = -1;
  TimeSampling(backend, "greedy", row);
  row.num_top = 20;
  TimeSampling(backend, "greedy with 20 logprobs", row);
  row.num_top = -1;
  row.temperature = 1;
  TimeSampling(backend, "plain", row);
  row.top_k = 50;
  TimeSampling(backend, "top-k 50", row);
  row.top_p = 0.9f;
  TimeSampling(backend, "top-k 50, top-p 0.9", row);
  row.top_k = 0;
  TimeSampling(backend, "top-p 0.9", row);
  row.top_p = 1;
  for (const int num_candidates : {8, 32, 256}) {
    row.num_candidates = num_candidates;
    TimeSampling(backend, std::to_string(num_candidates) + " candidates", row, 16, 128 * 1024);
  }
}

void TimeRows(Backend* backend) {
  Random random(4);
  const int num_tokens = 64, dim = 4096;
  const std::vector<float> x = random.Normals(size_t(num_tokens) * 2 * dim), weight = random.Normals(dim);
  std::vector<float> y(size_t(num_tokens) * dim);
  const double bytes = 8e-9 * num_tokens * dim;
  Print("rms norm 64 x 4096", MedianSeconds([&](int) {
          backend->RmsNorm({.x = x.data(),
                            .weight = weight.data(),
                            .y = y.data(),
                            .num_rows = num_tokens,
                            .dim = dim,
                            .epsilon = 1e-5f});
        }),
        bytes, 0);
}

int Main(int argc, char** argv) {
  const int num_threads = argc > 1 ? atoi(argv[1]) : 0;
  g_count_cpu_time = num_threads == 1;
  cpu::Isa isa = cpu::SupportedIsas().back();
  for (const cpu::Isa candidate : cpu::SupportedIsas()) {
    if (argc > 2 && argv[2] == std::string(cpu::Name(candidate))) isa = candidate;
  }
  const auto backend = cpu::MakeCpuBackend(num_threads, isa);
  printf("%s\n", backend->Description().c_str());
  for (const KvType type : {KvType::kBFloat16, KvType::kFloat32, KvType::kInt8}) {
    TimeAttention(backend.get(), type, 16, 1, 4096, 1);
    TimeAttention(backend.get(), type, 16, 64, 1024, 1);
    TimeAttention(backend.get(), type, 16, 1, 512, 512);
    TimeAttention(backend.get(), type, 16, 1, 4096, 512);
  }
  TimeAttention(backend.get(), KvType::kBFloat16, 1, 64, 1024, 1);
  TimeAllSampling(backend.get());
  TimeRows(backend.get());
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(argc, argv);
}
