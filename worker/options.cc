// SPDX-License-Identifier: Apache-2.0

#include "worker/options.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/configuration.h"
#include "base/connection_flags.h"
#include "base/listen_address.h"
#include "base/local_address.h"
#include "base/number_text.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "kernels/cuda/device_options.h"
#include "worker/memory_command.h"
#include "worker/model/hub_cache.h"
#include "worker/step_times_file.h"

ABSL_FLAG(
    std::string, model, "",
    "Required. A Hugging Face model directory with config.json and *.safetensors, a GGUF file, or the name of a model "
    "in the cache of the hub: hf:owner/name or hf:owner/name/FILE.gguf, with @revision at the end if it is not main. "
    "quire-download fills this cache, and HF_HUB_CACHE or HF_HOME say where it is. A tokenizer (tokenizer.json or "
    "tokenizer.model, or the tokenizer in the GGUF file) is optional; without one, clients can send and receive token "
    "ids only.");
ABSL_FLAG(std::string, model_name, "",
          "Name under which clients see the model. The default is owner/name of a model of the hub, otherwise the name "
          "of the folder or of the GGUF file.");
ABSL_FLAG(
    std::string, quantize, "none",
    "With int8, round the weights of the decoder layers to 8 bits while they are loaded, with a scale per row, and "
    "the inputs of their products to 8 bits with a scale per token (on a GPU, --gpu-int8-inputs=false keeps them). "
    "That halves the memory of these weights, and a CPU decodes nearly twice as fast. int4 rounds the weights to 4 "
    "bits, with a scale for every 128 columns of a row: they are smaller and faster still, and lose more. Embedding "
    "and norms keep their precision, and so does the output matrix without --quantize-output. none, int8 or int4; not "
    "for --device=simulated.");
ABSL_FLAG(
    bool, quantize_output, false,
    "Round the output matrix to 8 bits, too, as --quantize=int8 rounds others. It is read for every token, and in "
    "small models it has a large part of the weights. The embedding keeps its precision; where it is the output matrix "
    "as well, the rounded copy adds half of its memory. Not for --device=simulated.");
ABSL_FLAG(
    std::string, int4_inputs, "int8",
    "How a CPU rounds the inputs of products by weights of 4 bits, from --quantize or from a checkpoint. int8: to 8 "
    "bits, with a scale for each group of columns. bfloat16: to bfloat16, as a model in bfloat16 does, and with AMX "
    "the weights, too; this is more exact and slower. float32: not at all, which is the slowest with several tokens. A "
    "CPU without instructions for bfloat16 (AMX or AVX512-BF16) treats bfloat16 as float32. A GPU never rounds inputs "
    "to 8 bits.");
ABSL_FLAG(
    bool, gguf_blocks, true,
    "Multiply matrices of a GGUF file in the types Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL and MXFP4, and experts of gpt-oss in "
    "MXFP4 in any file, as they are stored, where the device can: a CPU without AMX. They keep their memory, and the "
    "inputs of their products are rounded to 8 bits with a scale for each block. With false, and on other devices, "
    "they become bfloat16 while they are loaded.");
ABSL_FLAG(
    bool, long_context, false,
    "Serve the whole context of a model whose rotary embedding has two sets of factors (longrope, such as Phi-3 with a "
    "context of 128K), with the factors for long texts. Without it, the model has its original context and the factors "
    "for short texts, so that its answers are the same as with Hugging Face transformers.");
ABSL_FLAG(
    std::string, explain_memory, "",
    "Do not start, but read config.json of this model or the metadata of this GGUF file (a value as for --model), and "
    "print the memory of weights, of K and V, and of sequences of 4096 tokens for each precision, and finally the "
    "memory that a worker with the other flags of this command line would use. With --device=cuda, the numbers are for "
    "the GPU, and a model that a GPU cannot run is refused as at a start. Not for --device=simulated.");
ABSL_FLAG(
    std::string, gpu_memory, "",
    "With --explain-memory and --device=cuda, the memory of a GPU that need not be here, such as 80GiB. If empty, "
    "the memory of the GPU of this machine is read.");
ABSL_FLAG(
    std::string, listen, "127.0.0.1:50061",
    "Address for the manager's gRPC connection: host:port or unix:path. With port 0 the worker takes a free port and "
    "prints it. With 0.0.0.0 as the host it listens on all networks of the machine, which requires TLS.");
ABSL_FLAG(std::string, health_listen, "",
          "Additional address for health checks (grpc.health.v1): host:port. It has no TLS and no authentication, and "
          "tells only whether the process is alive and ready. If empty, health checks are answered only at --listen.");
ABSL_FLAG(std::string, manager_names, "quire-manager",
          "DNS names or URIs, separated by commas; with --tls-ca the manager's certificate must contain one of them. "
          "* accepts every name.");
ABSL_FLAG(
    std::string, metrics_listen, "127.0.0.1:9461",
    "Address at which Prometheus scrapes /metrics: host:port. With port 0 the worker takes a free port and prints "
    "it. If empty, it serves no metrics.");
ABSL_FLAG(std::string, kv_bytes, "", "Size of the KV pool in bytes, such as 1073741824, 512MiB or 1.5GiB.");
ABSL_FLAG(int64_t, num_blocks, 0, "Size of the KV pool in blocks, up to 16777216. 0 means not set.");
ABSL_FLAG(double, memory_fraction, 0,
          "Size of the KV pool as a fraction, above 0 and at most 1, of the memory that is available after the weights "
          "are loaded. In a container, available memory is what its limit leaves. 0 means not set.");
ABSL_FLAG(std::string, swap_bytes, "0",
          "Size of the host tier in bytes, such as 4GiB. The manager moves blocks of preempted requests there. With 0 "
          "there is no host tier, and these blocks are computed again.");
ABSL_FLAG(int32_t, block_size, 16,
          "Tokens per block: 1, 2, 4, 8 or a multiple of 16 up to 65536. Small blocks waste less memory at the end of "
          "each sequence; large blocks take less time to look up.");
ABSL_FLAG(
    std::string, cache_groups, "one",
    "How layers with a sliding window keep K and V. one: all tokens, like the other layers. windows: only the tokens "
    "that a sequence still reads, so the pool holds more and longer sequences; then there is no prefix cache, and the "
    "requests of a lost manager are computed again. The tokens are the same. windows needs a model in which other "
    "layers see all tokens, and --device=cpu.");
ABSL_FLAG(
    std::string, kv_type, "auto",
    "Precision of K and V: auto (the precision of the weights), float32, bfloat16, float16 or int8. A 16-bit type "
    "holds twice as many tokens as float32 in the same memory. int8 rounds K and V to 8 bits, with a scale for each "
    "token and KV head: it holds nearly twice as many tokens as a 16-bit type. float32 is only for --device=cpu, and "
    "on a GPU int8 needs blocks of at least 16 tokens and heads of at most 128 dimensions.");
ABSL_FLAG(bool, prefault, false,
          "Write to all memory of the KV pool at the start, so that missing memory is noticed at once. Otherwise the "
          "operating system commits memory when blocks are first used.");
ABSL_FLAG(int32_t, max_sequences, 256,
          "Largest number of sequences that run at the same time, 1 to 65536. Further sequences wait.");
ABSL_FLAG(
    int32_t, max_tokens_per_step, 2048,
    "Largest number of tokens in one step, 1 to 1048576, summed over all sequences. The scratch memory grows with "
    "it.");
ABSL_FLAG(int32_t, threads, 0,
          "Number of threads that compute, up to 1024, of each rank. 0 means one per core, or per core of the rank.");
ABSL_FLAG(
    int32_t, tp, 1,
    "Number of ranks that hold the model together (tensor parallelism): 1, 2, 4 or 8. The program starts a process for "
    "each, divides its cores, and starts a rank again that has ended. Rank 0 listens at --listen, and rank r at the "
    "port + r, or at the path with .r at its end; so does --metrics-listen. With --tp-hosts, this holds for the ranks "
    "of one host, counted from its first one. --kv-bytes and --swap-bytes are for all "
    "ranks together. The ranks give the tokens of one worker, bit for bit. For --device=cpu and simulated.");
ABSL_FLAG(
    std::string, tp_hosts, "",
    "The hosts over which the ranks of --tp are divided: for each, the address at which the manager reaches its first "
    "rank, as host:port, separated by commas. Each host has as many ranks as the others, at adjacent ports, and runs "
    "this program with the same list. If empty, all ranks are on this host.");
ABSL_FLAG(int32_t, tp_host, -1, "With --tp-hosts, the place of this host in the list, from 0. -1 means not set.");
ABSL_FLAG(std::string, tp_network, "",
          "With --tp-hosts, the network devices through which the ranks reach each other, such as eth0 or mlx5_0:1, "
          "separated by commas. What they send there is not encrypted: choose a network that others cannot read.");
ABSL_FLAG(int32_t, rank, -1,
          "With --tp and --group, be this rank, 0 .. tp - 1, and start no other one. The program sets it for the "
          "processes that it starts. -1 means not set.");
ABSL_FLAG(std::string, group, "",
          "With --rank, a text of at most 64 bytes that is the same for all ranks of a group and another one for each "
          "group.");
ABSL_FLAG(bool, bind_threads, true,
          "Bind each thread that computes to a core of its own, if there are as many threads as cores. Turn it off "
          "where other programs keep single cores busy.");
ABSL_FLAG(
    std::string, cpu_kernels, "auto",
    "Instruction set of the CPU kernels: auto (the best one of the machine), generic, avx2, avx512, avx512_vnni, "
    "avx512_bf16 or amx. Workers compute equal bits if they have the same kernels, weights and precision of K and V; "
    "avx2, avx512 and avx512_vnni also agree with each other. If your machines differ, choose a set that all of them "
    "have.");
ABSL_FLAG(
    std::string, device, "cpu",
    "Device that computes: cpu, cuda (the first GPU), cuda:N or simulated. N counts the GPUs that the process sees, in "
    "the order of CUDA, which is the order of nvidia-smi if CUDA_DEVICE_ORDER=PCI_BUS_ID is set; the worker's first "
    "lines give the PCI address. A simulated device reads no weights and computes nothing; its tokens come from a hash "
    "of all tokens before them.");
ABSL_FLAG(
    std::string, simulated_step_times, "",
    "With --device=simulated, YAML file with how long steps take: step, prefill_token, decode_row and "
    "context_token, each a duration. If empty, a step takes 10ms, 50us for each prompt token and for each "
    "sequence that decodes, and 5ns for each token of the contexts. With 0, steps take no longer than they need.");
ABSL_FLAG(
    int32_t, simulated_output_tokens, 0,
    "With --device=simulated, mean number of tokens after which the model ends its output, up to 1000000000. With 0, "
    "it never does, and outputs end at the limits of their requests.");
ABSL_FLAG(
    bool, exact_gpu, false,
    "On a GPU, make the logits of a token independent of the other tokens in the step, bit for bit, as they "
    "always are on a CPU. Prompts take longer. For every query head, every token of --max-tokens-per-step and every "
    "256 tokens of the context, attention keeps 4 x (head size + 2) bytes of the GPU's memory instead of at most "
    "256 MiB in all: 16.3 GiB for 32 heads of 128, 2048 tokens and a context of 131072. A line of the start has the "
    "size. Without --exact-gpu, near ties may be decided differently from run to run.");
ABSL_FLAG(
    std::string, gpu_tuning_cache, "",
    "File that stores the fastest matrix multiplication for each shape on this GPU, so that later starts need not "
    "search again. If empty, nothing is stored.");
ABSL_FLAG(std::string, gpu_library, "",
          "Library with the code for NVIDIA GPUs. If empty, it is libquire_cuda.so in the folder of the program.");
ABSL_FLAG(bool, gpu_graphs, true,
          "On a GPU, record the layers of a decode step as a CUDA graph and repeat it. Without graphs, a debugger or a "
          "sanitizer sees every kernel by itself.");
ABSL_FLAG(bool, gpu_overlap, false,
          "On a GPU of sm_90 or newer, set up each kernel while the one before it ends (programmatic dependent "
          "launch). It makes decode steps on an H100 less than 1 % shorter.");
ABSL_FLAG(
    bool, gpu_warp_groups, true,
    "On a GPU of compute capability 9.0 (H100, H200), use its instructions for groups of warps (wgmma) and its bulk "
    "copies, for the attention of prompts and for inputs of FP8. Without them, the kernels for sm_80 compute "
    "everything, and prompts take longer.");
ABSL_FLAG(
    bool, gpu_int8_inputs, true,
    "On a GPU, round the inputs of products by weights of int8 to 8 bits, with a scale for each token, as a CPU does. "
    "The products are then the same bits for every number of tokens in a step, with and without --exact-gpu. If false, "
    "the inputs keep 16 bits, which is more exact.");
ABSL_FLAG(
    bool, gpu_fp8_inputs, true,
    "On a GPU of compute capability 9.0, round the inputs of products by weights of FP8 to FP8, with a scale for each "
    "token, or for each 128 columns of a token if the weights have blocks of 128 x 128. Prompts are then faster than "
    "in 16 bits. If false, and with --exact-gpu or --gpu-warp-groups=false, the inputs keep 16 bits, which is more "
    "exact.");
ABSL_FLAG(
    absl::Duration, gpu_timeout, absl::Milliseconds(quire::cuda::DeviceOptions().longest_wait.count()),
    "The worker ends when its GPU has not finished a step in this time. Set it higher, together with the manager's "
    "--step-timeout, for a GPU under a debugger or a sanitizer.");
ABSL_FLAG(absl::Duration, gpu_record_time, absl::Seconds(5),
          "How much longer the start of a worker on a GPU may take to record decode steps of usual sizes. What is not "
          "recorded by then is recorded in the first steps of requests. Without --gpu-graphs nothing is recorded.");
ABSL_FLAG(
    absl::Duration, orphan_hold, absl::Seconds(30),
    "How long rows and blocks stay after the manager's session has ended, so that a session that asks for them can "
    "adopt them; at most 24h. With 0 they are dropped at once, and the contents of blocks are not recorded.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "How long running requests may continue after SIGTERM or Ctrl-C. New requests are refused.");

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
    return InvalidArgument("--memory-fraction is ", NumberText(fraction), ", it must be above 0 and at most 1");
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
                                                                                 {"avx512_vnni", cpu::Isa::kAvx512Vnni},
                                                                                 {"avx512_bf16", cpu::Isa::kAvx512Bf16},
                                                                                 {"amx", cpu::Isa::kAmx}}));
  const std::vector<cpu::Isa> supported = cpu::SupportedIsas();
  if (!kernels || std::find(supported.begin(), supported.end(), *kernels) != supported.end()) return kernels;
  const auto append_name = [](std::string* out, cpu::Isa isa) { absl::StrAppend(out, cpu::Name(isa)); };
  return InvalidArgument("--cpu-kernels is ", cpu::Name(*kernels), ", this machine has ",
                         absl::StrJoin(supported, ", ", append_name));
}

constexpr char kSimulated[] = "simulated";

absl::StatusOr<WeightRounding> ReadRounding() {
  WeightRounding rounding;
  QUIRE_ASSIGN_OR_RETURN(rounding.layers,
                         FlagChoice<Quantization>(FLAGS_quantize, {{Name(Quantization::kNone), Quantization::kNone},
                                                                   {Name(Quantization::kInt8), Quantization::kInt8},
                                                                   {Name(Quantization::kInt4), Quantization::kInt4}}));
  rounding.output = absl::GetFlag(FLAGS_quantize_output);
  rounding.keeps_blocks = absl::GetFlag(FLAGS_gguf_blocks);
  QUIRE_ASSIGN_OR_RETURN(
      rounding.int4_inputs,
      FlagChoice<Int4Inputs>(FLAGS_int4_inputs, {{Name(Int4Inputs::kInt8), Int4Inputs::kInt8},
                                                 {Name(Int4Inputs::kBFloat16), Int4Inputs::kBFloat16},
                                                 {Name(Int4Inputs::kFloat32), Int4Inputs::kFloat32}}));
  const std::string device = absl::GetFlag(FLAGS_device);
  if (rounding.layers != Quantization::kNone && device == kSimulated) {
    return InvalidArgument("--quantize is ", Name(rounding.layers), ", with --device=", device, " it must be none");
  }
  if (rounding.output && device == kSimulated) {
    return InvalidArgument("--quantize-output is true, with --device=", device, " it must be false");
  }
  return rounding;
}

// Returns the number of the GPU, or nothing for "cpu" and "simulated".
absl::StatusOr<std::optional<int>> ReadGpu() {
  constexpr int kMaxGpus = 1024;
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device == "cpu" || device == kSimulated) return std::nullopt;
  if (device == "cuda") return 0;
  absl::string_view ordinal = device;
  int gpu;
  if (absl::ConsumePrefix(&ordinal, "cuda:") && absl::SimpleAtoi(ordinal, &gpu) && gpu >= 0 && gpu < kMaxGpus)
    return gpu;
  return InvalidArgument("--device is \"", device, "\", it must be cpu, simulated, cuda or cuda:N with N in 0 .. ",
                         kMaxGpus - 1);
}

// Returns nothing for the precision of the weights.
absl::StatusOr<std::optional<KvType>> ReadKvType() {
  QUIRE_ASSIGN_OR_RETURN(const std::optional<KvType> type,
                         FlagChoice<std::optional<KvType>>(FLAGS_kv_type, {{"auto", std::nullopt},
                                                                           {"float32", KvType::kFloat32},
                                                                           {"bfloat16", KvType::kBFloat16},
                                                                           {"float16", KvType::kFloat16},
                                                                           {"int8", KvType::kInt8}}));
  const std::string device = absl::GetFlag(FLAGS_device);
  if (!type || device == "cpu") return type;
  if (device == kSimulated) {
    return InvalidArgument("--kv-type is ", Name(*type), ", with --device=simulated it must be auto");
  }
  if (*type != KvType::kFloat32) return type;
  return InvalidArgument("--kv-type is ", Name(*type), ", with --device=", device,
                         " it must be auto, bfloat16, float16 or int8");
}

// Returns whether layers with a window keep their K and V apart.
absl::StatusOr<bool> ReadCacheGroups() {
  QUIRE_ASSIGN_OR_RETURN(const bool divides, FlagChoice<bool>(FLAGS_cache_groups, {{"one", false}, {"windows", true}}));
  const std::string device = absl::GetFlag(FLAGS_device);
  if (!divides || device == "cpu") return divides;
  return InvalidArgument("--cache-groups is windows, with --device=", device, " it must be one");
}

absl::StatusOr<simulated::StepTimes> ReadStepTimes() {
  const std::string path = absl::GetFlag(FLAGS_simulated_step_times);
  if (path.empty()) return DefaultStepTimes();
  if (path == "0") return simulated::StepTimes();
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return InvalidArgument("--simulated-step-times: ", text.status().message());
  const absl::StatusOr<simulated::StepTimes> times = ParseStepTimes(path, *text);
  if (!times.ok()) return AboutFlag("--simulated-step-times", times.status());
  return times;
}

// Returns nothing unless the device is simulated.
absl::StatusOr<std::optional<SimulationOptions>> ReadSimulation() {
  constexpr int kMaxOutputTokens = 1'000'000'000;
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device != kSimulated) {
    const bool has_times = !absl::GetFlag(FLAGS_simulated_step_times).empty();
    if (!has_times && absl::GetFlag(FLAGS_simulated_output_tokens) == 0) return std::nullopt;
    return InvalidArgument(has_times ? "--simulated-step-times" : "--simulated-output-tokens",
                           " is set, but --device is ", device, ", not ", kSimulated);
  }
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_simulated_output_tokens, 0, kMaxOutputTokens));
  SimulationOptions simulation;
  simulation.mean_output_tokens = absl::GetFlag(FLAGS_simulated_output_tokens);
  QUIRE_ASSIGN_OR_RETURN(simulation.step_times, ReadStepTimes());
  return simulation;
}

// Reads the flags of ranks on several hosts.
absl::StatusOr<RankHosts> ReadRankHosts(int size, const std::string& listen) {
  const std::string hosts = absl::GetFlag(FLAGS_tp_hosts);
  const int host = absl::GetFlag(FLAGS_tp_host);
  const std::string network = absl::GetFlag(FLAGS_tp_network);
  if (hosts.empty()) {
    if (host != -1) return InvalidArgument("--tp-host is ", host, ", but --tp-hosts is not set");
    if (!network.empty()) return InvalidArgument("--tp-network is \"", network, "\", but --tp-hosts is not set");
    return OneHost(size);
  }
  QUIRE_ASSIGN_OR_RETURN(RankHosts places, ParseRankHosts(hosts, host, size));
  if (network.empty()) {
    return InvalidArgument("--tp-network is missing; with --tp-hosts it names the network devices between the hosts");
  }
  const std::string& own = places.addresses[places.first_rank];
  const bool is_unix = absl::StartsWith(listen, kUnixPrefix);
  if (is_unix || (IsLocalAddress(listen) && !IsLocalAddress(own))) {
    return InvalidArgument("--listen is ", listen, ", but --tp-hosts says that the manager reaches this host at ", own);
  }
  places.network_devices = network;
  return places;
}

// Reads the flags of ranks.
absl::Status ReadRanks(WorkerOptions* options) {
  const int size = absl::GetFlag(FLAGS_tp);
  const int rank = absl::GetFlag(FLAGS_rank);
  const std::string group = absl::GetFlag(FLAGS_group);
  if (size < 1 || size > kMaxRanks || (size & (size - 1)) != 0) {
    return InvalidArgument("--tp is ", size, ", it must be 1, 2, 4 or 8");
  }
  if (size > 1 && options->gpu) {
    return InvalidArgument("--tp is ", size, ", with --device=", options->device, " it must be 1");
  }
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("rank", rank, -1, size - 1));
  if (group.size() > kMaxGroupIdBytes) {
    return InvalidArgument("--group has ", group.size(), " bytes, the limit is ", kMaxGroupIdBytes);
  }
  if ((rank >= 0) != !group.empty()) return InvalidArgument("--rank and --group must be set together");
  if (rank >= 0 && size == 1) return InvalidArgument("--rank is set, but --tp is 1");
  const std::optional<HostPort> listen = SplitHostPort(options->listen);
  if (size > 1 && rank < 0 && listen && listen->port == "0") {
    return InvalidArgument("--listen is ", options->listen, ", with --tp it must name a port: rank r takes port + r");
  }
  QUIRE_ASSIGN_OR_RETURN(options->rank_hosts, ReadRankHosts(size, options->listen));
  const int first_rank = options->rank_hosts.first_rank;
  const int last_rank = first_rank + options->rank_hosts.num_ranks - 1;
  if (rank >= 0 && (rank < first_rank || rank > last_rank)) {
    return InvalidArgument("--rank is ", rank, ", this host has the ranks ", first_rank, " to ", last_rank);
  }
  options->num_ranks = size;
  if (rank >= 0) options->rank = rank;
  options->group_id = group;
  return absl::OkStatus();
}

bool IsForGpu(absl::string_view flag) {
  return flag == "exact_gpu" || absl::StartsWith(flag, "gpu_");
}

// Refuses flags for GPUs on the command line of a worker on another device, where somebody has forgotten --device. The
// environment and a file may belong to several workers, and only some of them may have a GPU.
absl::Status CheckGpuFlags(absl::Span<const char* const> arguments) {
  std::vector<FlagValue> values;
  QUIRE_RETURN_IF_ERROR(ParseArguments(WorkerFlags(), arguments, &values));
  for (const FlagValue& value : values) {
    if (!IsForGpu(value.flag->Name()) || value.flag->CurrentValue() == value.flag->DefaultValue()) continue;
    return InvalidArgument(value.name, " is set, but --device is ", absl::GetFlag(FLAGS_device), ", not cuda");
  }
  return absl::OkStatus();
}

// Returns nothing if the memory of the GPU shall be read.
absl::StatusOr<std::optional<int64_t>> ReadGpuMemory() {
  const std::string bytes = absl::GetFlag(FLAGS_gpu_memory);
  if (bytes.empty()) return std::nullopt;
  if (absl::GetFlag(FLAGS_explain_memory).empty()) {
    return InvalidArgument("--gpu-memory is set, but --explain-memory is not");
  }
  const absl::StatusOr<int64_t> parsed = ParseBytes(bytes);
  if (!parsed.ok()) return InvalidArgument("--gpu-memory: ", parsed.status().message());
  return *parsed;
}

absl::StatusOr<absl::Duration> ReadOrphanHold() {
  const absl::Duration hold = absl::GetFlag(FLAGS_orphan_hold);
  if (hold >= absl::ZeroDuration() && hold <= absl::Hours(24)) return hold;
  return InvalidArgument("--orphan-hold is ", absl::FormatDuration(hold), ", it must be 0 to 24h");
}

std::string LastPart(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

// Returns the name of the folder or of the file at `path`, also if the path names a folder and ends with "." or "..".
// Other symbolic links keep their names. Returns an error if there is no name.
absl::StatusOr<std::string> NameOfPath(absl::string_view flag, const std::string& path) {
  std::string name = LastPart(path);
  if (name == "." || name == "..") {
    std::error_code error;
    name = LastPart(std::filesystem::weakly_canonical(path, error).string());
  }
  if (!name.empty()) return name;
  return InvalidArgument(flag, " is ", path, ", which has no name; give the model one with --model-name");
}

// Returns the name under which clients see the model: --model-name, or that of the model. Checks a name of the hub,
// which is the value of `flag`.
absl::StatusOr<std::string> NameOfModel(absl::string_view flag, const std::string& model) {
  const std::string given = absl::GetFlag(FLAGS_model_name);
  if (!IsHubName(model)) {
    if (!given.empty()) return given;
    return NameOfPath(flag, model);
  }
  const absl::StatusOr<HubModel> parsed = ParseHubName(model);
  if (!parsed.ok()) return InvalidArgument(flag, " is ", parsed.status().message());
  if (!given.empty()) return given;
  return parsed->file.empty() ? parsed->repository : LastPart(parsed->file);
}

absl::StatusOr<WorkerOptions> ReadOptions() {
  WorkerOptions options;
  options.explain_memory = absl::GetFlag(FLAGS_explain_memory);
  options.model = options.explain_memory.empty() ? absl::GetFlag(FLAGS_model) : options.explain_memory;
  if (options.model.empty())
    return InvalidArgument("--model is missing; it is the directory of a model, a GGUF file, or hf:owner/name");
  QUIRE_ASSIGN_OR_RETURN(options.model_name,
                         NameOfModel(options.explain_memory.empty() ? "--model" : "--explain-memory", options.model));
  QUIRE_ASSIGN_OR_RETURN(options.listen, ListenFlag(FLAGS_listen));
  QUIRE_ASSIGN_OR_RETURN(options.transport, ReadTransportFlags(options.listen));
  options.manager_names = absl::StrSplit(absl::GetFlag(FLAGS_manager_names), ',', absl::SkipEmpty());
  QUIRE_ASSIGN_OR_RETURN(options.health_listen, OptionalTcpAddressFlag(FLAGS_health_listen));
  QUIRE_ASSIGN_OR_RETURN(options.metrics_listen, OptionalTcpAddressFlag(FLAGS_metrics_listen));
  QUIRE_ASSIGN_OR_RETURN(options.max_connections, ReadMaxConnections());
  QUIRE_ASSIGN_OR_RETURN(options.web_access, ReadWebAccess());
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
  QUIRE_ASSIGN_OR_RETURN(options.cpu_kernels, ReadCpuKernels());
  options.device = absl::GetFlag(FLAGS_device);
  QUIRE_ASSIGN_OR_RETURN(options.gpu, ReadGpu());
  QUIRE_ASSIGN_OR_RETURN(options.divides_by_windows, ReadCacheGroups());
  QUIRE_ASSIGN_OR_RETURN(options.kv_type, ReadKvType());
  QUIRE_ASSIGN_OR_RETURN(options.simulation, ReadSimulation());
  QUIRE_ASSIGN_OR_RETURN(options.rounding, ReadRounding());
  QUIRE_RETURN_IF_ERROR(ReadRanks(&options));
  options.long_context = absl::GetFlag(FLAGS_long_context);
  QUIRE_ASSIGN_OR_RETURN(options.gpu_memory, ReadGpuMemory());
  options.exact_gpu = absl::GetFlag(FLAGS_exact_gpu);
  options.gpu_tuning_cache = absl::GetFlag(FLAGS_gpu_tuning_cache);
  options.gpu_library = absl::GetFlag(FLAGS_gpu_library);
  options.gpu_graphs = absl::GetFlag(FLAGS_gpu_graphs);
  options.gpu_overlap = absl::GetFlag(FLAGS_gpu_overlap);
  options.gpu_warp_groups = absl::GetFlag(FLAGS_gpu_warp_groups);
  options.gpu_int8_inputs = absl::GetFlag(FLAGS_gpu_int8_inputs);
  options.gpu_fp8_inputs = absl::GetFlag(FLAGS_gpu_fp8_inputs);
  QUIRE_ASSIGN_OR_RETURN(options.gpu_timeout, DurationFlag(FLAGS_gpu_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.gpu_record_time, DurationFlag(FLAGS_gpu_record_time));
  QUIRE_ASSIGN_OR_RETURN(options.orphan_hold, ReadOrphanHold());
  QUIRE_ASSIGN_OR_RETURN(options.drain_timeout, DurationFlag(FLAGS_drain_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.log, ReadLogFlags());
  return options;
}

}  // namespace

const ProgramFlags& WorkerFlags() {
  static const auto* const flags = new ProgramFlags{
      "quire-worker",
      "owns the weights of a model and the memory of its KV blocks, and runs the steps that the manager plans.",
      "--model=MODEL [flags]",
      {{"Model:",
        {"model", "model_name", "quantize", "quantize_output", "int4_inputs", "gguf_blocks", "long_context",
         "explain_memory", "gpu_memory"}},
       {"Addresses:",
        {"listen", "health_listen", "metrics_listen", "max_connections", "host_names", "allowed_origins"}},
       TransportFlagGroup(),
       {"Authorization:", {"manager_names"}},
       {"Size of the KV pool. Set at most one of these. The default is half of the free memory (90 % on a\n"
        "GPU). It is less when --max-sequences sequences of the model's full context need less:",
        {"kv_bytes", "num_blocks", "memory_fraction"}},
       {"KV blocks:", {"swap_bytes", "block_size", "kv_type", "prefault"}},
       {"Device:", {"device", "threads", "bind_threads", "cpu_kernels"}},
       {"Ranks:", {"tp", "tp_hosts", "tp_host", "tp_network", "rank", "group"}},
       {"Simulation:", {"simulated_step_times", "simulated_output_tokens"}},
       {"GPU. On the command line, these flags and those for its times need --device=cuda. In the\n"
        "environment and in a file, where several workers may find them, they do nothing on another device:",
        {"exact_gpu", "gpu_tuning_cache", "gpu_library", "gpu_graphs", "gpu_overlap", "gpu_warp_groups",
         "gpu_int8_inputs", "gpu_fp8_inputs"}},
       {"Steps:", {"max_sequences", "max_tokens_per_step"}},
       {"Sessions:", {"orphan_hold"}},
       {"Times, such as 500ms, 30s or 2m, above 0 and at most 24h:",
        {"drain_timeout", "gpu_timeout", "gpu_record_time"}},
       LogFlagGroup(),
       ConfigurationFlagGroup()},
      {"manager_names", "host_names", "allowed_origins"}};
  return *flags;
}

absl::StatusOr<CommandLine<WorkerOptions>> ParseWorkerCommandLine(absl::Span<const char* const> arguments,
                                                                  absl::Span<const char* const> environment,
                                                                  cuda::DeviceOpener open_device) {
  QUIRE_ASSIGN_OR_RETURN(CommandLine<WorkerOptions> line,
                         ReadConfiguration<WorkerOptions>(WorkerFlags(), arguments, environment, ReadOptions));
  const bool has_options = !line.options.model.empty();  // There are none with --help.
  if (has_options && !line.options.gpu) QUIRE_RETURN_IF_ERROR(CheckGpuFlags(arguments));
  if (line.text || line.options.explain_memory.empty()) return line;
  QUIRE_ASSIGN_OR_RETURN(line.text, ExplainMemoryOf(line.options, open_device));
  return line;
}

}  // namespace quire
