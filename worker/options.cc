// SPDX-License-Identifier: Apache-2.0

#include "worker/options.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/configuration.h"
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

namespace quire {
namespace {

constexpr int kMaxTokensPerStep = 1 << 20;
constexpr int kMaxThreads = 1024;
constexpr char kSimulated[] = "simulated";

void AddModelFlags(WorkerFlags* options, Settings* table) {
  table->Group("Model:");
  table->Add("model", &options->model,
             "Required. A Hugging Face model directory with config.json and *.safetensors, a GGUF file, or the name "
             "of a model in the cache of the hub: hf:owner/name or hf:owner/name/FILE.gguf, with @revision at the "
             "end if it is not main. quire-download fills this cache, and HF_HUB_CACHE or HF_HOME say where it is. A "
             "tokenizer (tokenizer.json or tokenizer.model, or the tokenizer in the GGUF file) is optional; without "
             "one, clients can send and receive token ids only.");
  table->Add("model_name", &options->model_name,
             "Name under which clients see the model. The default is owner/name of a model of the hub, otherwise the "
             "name of the folder or of the GGUF file.");
  table->AddChoice(
      "quantize", &options->rounding.layers,
      {{Name(Quantization::kNone), Quantization::kNone},
       {Name(Quantization::kInt8), Quantization::kInt8},
       {Name(Quantization::kInt4), Quantization::kInt4}},
      "With int8, round the weights of the decoder layers to 8 bits while they are loaded, with a scale per row, and "
      "the inputs of their products to 8 bits with a scale per token (on a GPU, --gpu-int8-inputs=false keeps them). "
      "That halves the memory of these weights, and a CPU decodes nearly twice as fast. int4 rounds the weights to 4 "
      "bits, with a scale for every 128 columns of a row: they are smaller and faster still, and lose more. Embedding "
      "and norms keep their precision, and so does the output matrix without --quantize-output. none, int8 or int4; "
      "not for --device=simulated.");
  table->Add("quantize_output", &options->rounding.output,
             "Round the output matrix to 8 bits, too, as --quantize=int8 rounds others. It is read for every token, "
             "and in small models it has a large part of the weights. The embedding keeps its precision; where it is "
             "the output matrix as well, the rounded copy adds half of its memory. Not for --device=simulated.");
  table->AddChoice("int4_inputs", &options->rounding.int4_inputs,
                   {{Name(Int4Inputs::kInt8), Int4Inputs::kInt8},
                    {Name(Int4Inputs::kBFloat16), Int4Inputs::kBFloat16},
                    {Name(Int4Inputs::kFloat32), Int4Inputs::kFloat32}},
                   "How a CPU rounds the inputs of products by weights of 4 bits, from --quantize or from a "
                   "checkpoint. int8: to 8 bits, with a scale for each group of columns. bfloat16: to bfloat16, as a "
                   "model in bfloat16 does, and with AMX the weights, too; this is more exact and slower. float32: "
                   "not at all, which is the slowest with several tokens. A CPU without instructions for bfloat16 "
                   "(AMX or AVX512-BF16) treats bfloat16 as float32. A GPU never rounds inputs to 8 bits.");
  table->Add("gguf_blocks", &options->rounding.keeps_blocks,
             "Multiply matrices of a GGUF file in the types Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL and MXFP4, and experts of "
             "gpt-oss in MXFP4 in any file, as they are stored, where the device can: a CPU without AMX. They keep "
             "their memory, and the inputs of their products are rounded to 8 bits with a scale for each block. With "
             "false, and on other devices, they become bfloat16 while they are loaded.");
  table->Add(
      "long_context", &options->long_context,
      "Serve the whole context of a model whose rotary embedding has two sets of factors (longrope, such as Phi-3 with "
      "a context of 128K), with the factors for long texts. Without it, the model has its original context and the "
      "factors for short texts, so that its answers are the same as with Hugging Face transformers.");
  table->Add(
      "explain_memory", &options->explain_memory,
      "Do not start, but read config.json of this model or the metadata of this GGUF file (a value as for --model), "
      "and print the memory of weights, of K and V, and of sequences of 4096 tokens for each precision, and finally "
      "the memory that a worker with the other flags of this command line would use. With --device=cuda, the numbers "
      "are for the GPU, and a model that a GPU cannot run is refused as at a start. Not for --device=simulated.");
  table->Add("gpu_memory", &options->gpu_memory_text,
             "With --explain-memory and --device=cuda, the memory of a GPU that need not be here, such as 80GiB. If "
             "empty, the memory of the GPU of this machine is read.");
}

void AddAddressFlags(WorkerOptions* options, Settings* table) {
  table->Group("Addresses:");
  table->Add(
      "listen", &options->listen,
      "Address for the manager's gRPC connection: host:port or unix:path. With port 0 the worker takes a free port and "
      "prints it. With 0.0.0.0 as the host it listens on all networks of the machine, which requires TLS.",
      &CheckListenAddress);
  table->Add(
      "health_listen", &options->health_listen,
      "Additional address for health checks (grpc.health.v1): host:port. It has no TLS and no authentication, and "
      "tells only whether the process is alive and ready. If empty, health checks are answered only at --listen.",
      &CheckOptionalTcpAddress);
  table->Add("metrics_listen", &options->metrics_listen,
             "Address at which Prometheus scrapes /metrics: host:port. With port 0 the worker takes a free port and "
             "prints it. If empty, it serves no metrics.",
             &CheckOptionalTcpAddress);
  AddMaxConnectionsFlag(&options->max_connections, table);
  AddWebFlags(&options->web_access, table);
  AddTransportFlags(&options->transport, table);
  table->Group("Authorization:");
  table->AddList("manager_names", &options->manager_names,
                 "DNS names or URIs, separated by commas; with --tls-ca the manager's certificate must contain one "
                 "of them. * accepts every name.");
}

void AddBlockFlags(WorkerFlags* options, Settings* table) {
  table->Group(
      "Size of the KV pool. Set at most one of these. The default is half of the free memory (90 % on a\n"
      "GPU). It is less when --max-sequences sequences of the model's full context need less:");
  table->Add("kv_bytes", &options->kv_bytes, "Size of the KV pool in bytes, such as 1073741824, 512MiB or 1.5GiB.");
  table->Add("num_blocks", &options->num_blocks, {0, kMaxWorkerBlocks},
             "Size of the KV pool in blocks, up to 16777216. 0 means not set.");
  table->Add("memory_fraction", &options->memory_fraction, {0, 1, "above 0 and at most 1"},
             "Size of the KV pool as a fraction, above 0 and at most 1, of the memory that is available after the "
             "weights are loaded. In a container, available memory is what its limit leaves. 0 means not set.");
  table->Group("KV blocks:");
  table->Add("swap_bytes", &options->swap_text,
             "Size of the host tier in bytes, such as 4GiB. The manager moves blocks of preempted requests there. "
             "With 0 there is no host tier, and these blocks are computed again.");
  table->Add("block_size", &options->block_size, kAnyNumber,
             "Tokens per block: 1, 2, 4, 8 or a multiple of 16 up to 65536. Small blocks waste less memory at the "
             "end of each sequence; large blocks take less time to look up.");
  table->AddChoice("cache_groups", &options->divides_by_windows, {{"one", false}, {"windows", true}},
                   "How layers with a sliding window keep K and V. one: all tokens, like the other layers. windows: "
                   "only the tokens that a sequence still reads, so the pool holds more and longer sequences; then "
                   "there is no prefix cache, and the requests of a lost manager are computed again. The tokens are "
                   "the same. windows needs a model in which other layers see all tokens, and --device=cpu.");
  table->AddChoice(
      "kv_type", &options->kv_type,
      {{"auto", std::nullopt},
       {"float32", KvType::kFloat32},
       {"bfloat16", KvType::kBFloat16},
       {"float16", KvType::kFloat16},
       {"int8", KvType::kInt8}},
      "Precision of K and V: auto (the precision of the weights), float32, bfloat16, float16 or int8. A 16-bit type "
      "holds twice as many tokens as float32 in the same memory. int8 rounds K and V to 8 bits, with a scale for each "
      "token and KV head: it holds nearly twice as many tokens as a 16-bit type. float32 is only for --device=cpu, and "
      "on a GPU int8 needs blocks of at least 16 tokens and heads of at most 128 dimensions.");
  table->Add("prefault", &options->prefault,
             "Write to all memory of the KV pool at the start, so that missing memory is noticed at once. Otherwise "
             "the operating system commits memory when blocks are first used.");
}

void AddDeviceFlags(WorkerFlags* options, Settings* table) {
  table->Group("Device:");
  table->Add("device", &options->device,
             "Device that computes: cpu, cuda (the first GPU), cuda:N or simulated. N counts the GPUs that the "
             "process sees, in the order of CUDA, which is the order of nvidia-smi if CUDA_DEVICE_ORDER=PCI_BUS_ID "
             "is set; the worker's first lines give the PCI address. A simulated device reads no weights and "
             "computes nothing; its tokens come from a hash of all tokens before them.");
  table->Add(
      "threads", &options->threads, {0, kMaxThreads},
      "Number of threads that compute, up to 1024, of each rank. 0 means one per core, or per core of the rank.");
  table->Add("bind_threads", &options->bind_threads,
             "Bind each thread that computes to a core of its own, if there are as many threads as cores. Turn it "
             "off where other programs keep single cores busy.");
  table->AddChoice("cpu_kernels", &options->cpu_kernels,
                   {{"auto", std::nullopt},
                    {"generic", cpu::Isa::kGeneric},
                    {"avx2", cpu::Isa::kAvx2},
                    {"avx512", cpu::Isa::kAvx512},
                    {"avx512_vnni", cpu::Isa::kAvx512Vnni},
                    {"avx512_bf16", cpu::Isa::kAvx512Bf16},
                    {"amx", cpu::Isa::kAmx}},
                   "Instruction set of the CPU kernels: auto (the best one of the machine), generic, avx2, avx512, "
                   "avx512_vnni, avx512_bf16 or amx. Workers compute equal bits if they have the same kernels, "
                   "weights and precision of K and V; avx2, avx512 and avx512_vnni also agree with each other. If "
                   "your machines differ, choose a set that all of them have.");
  table->Group("Ranks:");
  table->Add(
      "tp", &options->num_ranks, kAnyNumber,
      "Number of ranks that hold the model together (tensor parallelism): 1, 2, 4 or 8. The program starts a process "
      "for each, divides its cores, and starts a rank again that has ended. Rank 0 listens at --listen, and rank r at "
      "the port + r, or at the path with .r at its end; so does --metrics-listen. With --tp-hosts, this holds for the "
      "ranks of one host, counted from its first one. --kv-bytes and --swap-bytes are for all ranks together. The "
      "ranks give the tokens of one worker, bit for bit, on CPUs. With --device=cuda:N, rank r has the GPU N + r.");
  table->Add("tp_hosts", &options->tp_hosts,
             "The hosts over which the ranks of --tp are divided: for each, the address at which the manager reaches "
             "its first rank, as host:port, separated by commas. Each host has as many ranks as the others, at "
             "adjacent ports, and runs this program with the same list. If empty, all ranks are on this host.");
  table->Add("tp_host", &options->tp_host, kAnyNumber,
             "With --tp-hosts, the place of this host in the list, from 0. -1 means not set.");
  table->Add("tp_network", &options->tp_network,
             "With --tp-hosts, the network devices through which the ranks reach each other, such as eth0 or mlx5_0:1, "
             "separated by commas. What they send there is not encrypted: choose a network that others cannot read.");
  table->Add("rank", &options->rank_number, kAnyNumber,
             "With --tp and --group, be this rank, 0 .. tp - 1, and start no other one. The program sets it for the "
             "processes that it starts. -1 means not set.");
  table->Add("group", &options->group_id,
             "With --rank, a text of at most 64 bytes that is the same for all ranks of a group and another one for "
             "each group.");
  table->Group("Simulation:");
  table->Add(
      "simulated_step_times", &options->step_times,
      "With --device=simulated, YAML file with how long steps take: step, prefill_token, decode_row and context_token, "
      "each a duration. If empty, a step takes 10ms, 50us for each prompt token and for each sequence that decodes, "
      "and 5ns for each token of the contexts. With 0, steps take no longer than they need.");
  table->Add("simulated_output_tokens", &options->mean_output_tokens, kAnyNumber,
             "With --device=simulated, mean number of tokens after which the model ends its output, up to "
             "1000000000. With 0, it never does, and outputs end at the limits of their requests.");
}

void AddGpuFlags(WorkerOptions* options, Settings* table) {
  table->Group(
      "GPU. On the command line, these flags and those for its times need --device=cuda. In the\n"
      "environment and in a file, where several workers may find them, they do nothing on another device:");
  table->Add(
      "exact_gpu", &options->exact_gpu,
      "On a GPU, make the logits of a token independent of the other tokens in the step, bit for bit, as they always "
      "are on a CPU. Prompts take longer. For every query head, every token of --max-tokens-per-step and every 256 "
      "tokens of the context, attention keeps 4 x (head size + 2) bytes of the GPU's memory instead of at most 256 MiB "
      "in all: 16.3 GiB for 32 heads of 128, 2048 tokens and a context of 131072. A line of the start has the size. "
      "Without --exact-gpu, near ties may be decided differently from run to run.");
  table->Add("gpu_tuning_cache", &options->gpu_tuning_cache,
             "File that stores the fastest matrix multiplication for each shape on this GPU, so that later starts "
             "need not search again. If empty, nothing is stored.");
  table->Add("gpu_library", &options->gpu_library,
             "Library with the code for NVIDIA GPUs. If empty, it is libquire_cuda.so in the folder of the program.");
  table->Add("gpu_graphs", &options->gpu_graphs,
             "On a GPU, record the layers of a decode step as a CUDA graph and repeat it. Without graphs, a debugger "
             "or a sanitizer sees every kernel by itself.");
  table->Add("gpu_overlap", &options->gpu_overlap,
             "On a GPU of sm_90 or newer, set up each kernel while the one before it ends (programmatic dependent "
             "launch). It makes decode steps on an H100 less than 1 % shorter.");
  table->Add("gpu_warp_groups", &options->gpu_warp_groups,
             "On a GPU of compute capability 9.0 (H100, H200), use its instructions for groups of warps (wgmma) and "
             "its bulk copies, for the attention of prompts and for inputs of FP8. Without them, the kernels for "
             "sm_80 compute everything, and prompts take longer.");
  table->Add("gpu_int8_inputs", &options->gpu_int8_inputs,
             "On a GPU, round the inputs of products by weights of int8 to 8 bits, with a scale for each token, as a "
             "CPU does. The products are then the same bits for every number of tokens in a step, with and without "
             "--exact-gpu. If false, the inputs keep 16 bits, which is more exact.");
  table->Add("gpu_fp8_inputs", &options->gpu_fp8_inputs,
             "On a GPU of compute capability 9.0, round the inputs of products by weights of FP8 to FP8, with a "
             "scale for each token, or for each 128 columns of a token if the weights have blocks of 128 x 128. "
             "Prompts are then faster than in 16 bits. If false, and with --exact-gpu or --gpu-warp-groups=false, "
             "the inputs keep 16 bits, which is more exact.");
}

absl::Status CheckBlockSize(int block_size) {
  const bool is_small = block_size == 1 || block_size == 2 || block_size == 4 || block_size == 8;
  if (is_small || (block_size > 0 && block_size % 16 == 0 && block_size <= kMaxWorkerBlockSize))
    return absl::OkStatus();
  return InvalidArgument("--block-size is ", block_size, ", it must be 1, 2, 4, 8 or a multiple of 16 up to ",
                         kMaxWorkerBlockSize);
}

absl::StatusOr<int64_t> BytesFlag(absl::string_view flag, const std::string& text) {
  const absl::StatusOr<int64_t> bytes = ParseBytes(text);
  return bytes.ok() ? bytes : AboutFlag(flag, bytes.status());
}

absl::StatusOr<PoolRequest> ReadPool(const WorkerFlags& values) {
  PoolRequest pool;
  if (!values.kv_bytes.empty()) {
    QUIRE_ASSIGN_OR_RETURN(pool.bytes, BytesFlag("--kv-bytes", values.kv_bytes));
  }
  if (values.num_blocks > 0) pool.num_blocks = values.num_blocks;
  if (values.memory_fraction > 0) pool.memory_fraction = values.memory_fraction;
  if (pool.bytes.has_value() + pool.num_blocks.has_value() + pool.memory_fraction.has_value() > 1) {
    return InvalidArgument("--kv-bytes, --num-blocks and --memory-fraction exclude each other");
  }
  return pool;
}

absl::Status CheckCpuKernels(std::optional<cpu::Isa> kernels) {
  const std::vector<cpu::Isa> supported = cpu::SupportedIsas();
  if (!kernels || std::find(supported.begin(), supported.end(), *kernels) != supported.end()) {
    return absl::OkStatus();
  }
  const auto append_name = [](std::string* out, cpu::Isa isa) { absl::StrAppend(out, cpu::Name(isa)); };
  return InvalidArgument("--cpu-kernels is ", cpu::Name(*kernels), ", this machine has ",
                         absl::StrJoin(supported, ", ", append_name));
}

absl::Status CheckRounding(const WorkerOptions& options) {
  if (options.device != kSimulated) return absl::OkStatus();
  if (options.rounding.layers != Quantization::kNone) {
    return InvalidArgument("--quantize is ", Name(options.rounding.layers), ", with --device=", options.device,
                           " it must be none");
  }
  if (options.rounding.output) {
    return InvalidArgument("--quantize-output is true, with --device=", options.device, " it must be false");
  }
  return absl::OkStatus();
}

// Returns the number of the GPU, or nothing for "cpu" and "simulated".
absl::StatusOr<std::optional<int>> ReadGpu(const std::string& device) {
  constexpr int kMaxGpus = 1024;
  if (device == "cpu" || device == kSimulated) return std::nullopt;
  if (device == "cuda") return 0;
  absl::string_view ordinal = device;
  int gpu;
  if (absl::ConsumePrefix(&ordinal, "cuda:") && absl::SimpleAtoi(ordinal, &gpu) && gpu >= 0 && gpu < kMaxGpus)
    return gpu;
  return InvalidArgument("--device is \"", device, "\", it must be cpu, simulated, cuda or cuda:N with N in 0 .. ",
                         kMaxGpus - 1);
}

absl::Status CheckCacheGroups(const WorkerOptions& options) {
  if (!options.divides_by_windows || options.device == "cpu") return absl::OkStatus();
  return InvalidArgument("--cache-groups is windows, with --device=", options.device, " it must be one");
}

absl::Status CheckKvType(const WorkerOptions& options) {
  if (!options.kv_type || options.device == "cpu") return absl::OkStatus();
  const std::string is = absl::StrCat("--kv-type is ", Name(*options.kv_type), ", with --device=", options.device);
  if (options.device == kSimulated) return InvalidArgument(is, " it must be auto");
  if (*options.kv_type != KvType::kFloat32) return absl::OkStatus();
  return InvalidArgument(is, " it must be auto, bfloat16, float16 or int8");
}

absl::StatusOr<simulated::StepTimes> ReadStepTimes(const std::string& path) {
  if (path.empty()) return DefaultStepTimes();
  if (path == "0") return simulated::StepTimes();
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return InvalidArgument("--simulated-step-times: ", text.status().message());
  const absl::StatusOr<simulated::StepTimes> times = ParseStepTimes(path, *text);
  if (!times.ok()) return AboutFlag("--simulated-step-times", times.status());
  return times;
}

// Returns nothing unless the device is simulated.
absl::StatusOr<std::optional<SimulationOptions>> ReadSimulation(const WorkerFlags& values) {
  constexpr int kMaxOutputTokens = 1'000'000'000;
  if (values.device != kSimulated) {
    const bool has_times = !values.step_times.empty();
    if (!has_times && values.mean_output_tokens == 0) return std::nullopt;
    return InvalidArgument(has_times ? "--simulated-step-times" : "--simulated-output-tokens",
                           " is set, but --device is ", values.device, ", not ", kSimulated);
  }
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("simulated_output_tokens", values.mean_output_tokens, 0, kMaxOutputTokens));
  SimulationOptions simulation{.step_times = {}, .mean_output_tokens = values.mean_output_tokens};
  QUIRE_ASSIGN_OR_RETURN(simulation.step_times, ReadStepTimes(values.step_times));
  return simulation;
}

// Returns where the ranks are, by the flags of ranks on several hosts.
absl::StatusOr<RankHosts> ReadRankHosts(const WorkerFlags& values) {
  const int size = values.num_ranks;
  const std::string& network = values.tp_network;
  if (values.tp_hosts.empty()) {
    if (values.tp_host != -1) return InvalidArgument("--tp-host is ", values.tp_host, ", but --tp-hosts is not set");
    if (!network.empty()) return InvalidArgument("--tp-network is \"", network, "\", but --tp-hosts is not set");
    return OneHost(size);
  }
  QUIRE_ASSIGN_OR_RETURN(RankHosts places, ParseRankHosts(values.tp_hosts, values.tp_host, size));
  if (network.empty()) {
    return InvalidArgument("--tp-network is missing; with --tp-hosts it names the network devices between the hosts");
  }
  const std::string& own = places.addresses[places.first_rank];
  const bool is_unix = absl::StartsWith(values.listen, kUnixPrefix);
  if (is_unix || (IsLocalAddress(values.listen) && !IsLocalAddress(own))) {
    return InvalidArgument("--listen is ", values.listen,
                           ", but --tp-hosts says that the manager reaches this host at ", own);
  }
  places.network_devices = network;
  return places;
}

// Reads the flags of ranks.
absl::Status ReadRanks(WorkerFlags* options) {
  const int size = options->num_ranks;
  const int rank = options->rank_number;
  const std::string& group = options->group_id;
  if (size < 1 || size > kMaxRanks || (size & (size - 1)) != 0) {
    return InvalidArgument("--tp is ", size, ", it must be 1, 2, 4 or 8");
  }
  if (size > 1 && options->gpu && options->exact_gpu) {
    return InvalidArgument("--tp is ", size,
                           ", with --exact-gpu it must be 1: GPUs add the sums of ranks in another order");
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
  QUIRE_ASSIGN_OR_RETURN(options->rank_hosts, ReadRankHosts(*options));
  const int first_rank = options->rank_hosts.first_rank;
  const int last_rank = first_rank + options->rank_hosts.num_ranks - 1;
  if (rank >= 0 && (rank < first_rank || rank > last_rank)) {
    return InvalidArgument("--rank is ", rank, ", this host has the ranks ", first_rank, " to ", last_rank);
  }
  if (rank < 0) return absl::OkStatus();
  options->rank = rank;
  if (options->gpu) *options->gpu += rank - first_rank;
  return absl::OkStatus();
}

bool IsForGpu(absl::string_view flag) {
  return flag == "exact_gpu" || absl::StartsWith(flag, "gpu_");
}

// Refuses flags for GPUs on the command line of a worker on another device, where somebody has forgotten --device. The
// environment and a file may belong to several workers, and only some of them may have a GPU.
absl::Status CheckGpuFlags(const Settings& settings, const std::string& device,
                           absl::Span<const char* const> arguments) {
  std::vector<FlagValue> values;
  QUIRE_RETURN_IF_ERROR(ParseArguments(settings, arguments, &values));
  for (const FlagValue& value : values) {
    const Setting& setting = *value.setting;
    if (!IsForGpu(setting.name) || setting.text() == setting.default_text) continue;
    return InvalidArgument(value.name, " is set, but --device is ", device, ", not cuda");
  }
  return absl::OkStatus();
}

// Returns nothing if the memory of the GPU shall be read.
absl::StatusOr<std::optional<int64_t>> ReadGpuMemory(const WorkerFlags& values) {
  if (values.gpu_memory_text.empty()) return std::nullopt;
  if (values.explain_memory.empty()) return InvalidArgument("--gpu-memory is set, but --explain-memory is not");
  return BytesFlag("--gpu-memory", values.gpu_memory_text);
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

// Returns the name under which clients see the model: the `given` one, or that of the model. Checks a name of the hub,
// which is the value of `flag`.
absl::StatusOr<std::string> NameOfModel(absl::string_view flag, const std::string& model, const std::string& given) {
  if (!IsHubName(model)) {
    if (!given.empty()) return given;
    return NameOfPath(flag, model);
  }
  const absl::StatusOr<HubModel> parsed = ParseHubName(model);
  if (!parsed.ok()) return InvalidArgument(flag, " is ", parsed.status().message());
  if (!given.empty()) return given;
  return parsed->file.empty() ? parsed->repository : LastPart(parsed->file);
}

// Checks what depends on several flags, and makes the options that are no flag.
absl::Status Finish(WorkerFlags* options) {
  const bool is_explained = !options->explain_memory.empty();
  if (is_explained) options->model = options->explain_memory;
  if (options->model.empty())
    return InvalidArgument("--model is missing; it is the directory of a model, a GGUF file, or hf:owner/name");
  QUIRE_ASSIGN_OR_RETURN(options->model_name, NameOfModel(is_explained ? "--explain-memory" : "--model", options->model,
                                                          options->model_name));
  QUIRE_RETURN_IF_ERROR(CheckTransport(options->transport, options->listen));
  QUIRE_RETURN_IF_ERROR(CheckBlockSize(options->block_size));
  QUIRE_ASSIGN_OR_RETURN(options->pool, ReadPool(*options));
  if (options->swap_text != "0") {
    QUIRE_ASSIGN_OR_RETURN(options->swap_bytes, BytesFlag("--swap-bytes", options->swap_text));
  }
  QUIRE_RETURN_IF_ERROR(CheckCpuKernels(options->cpu_kernels));
  QUIRE_ASSIGN_OR_RETURN(options->gpu, ReadGpu(options->device));
  QUIRE_RETURN_IF_ERROR(CheckCacheGroups(*options));
  QUIRE_RETURN_IF_ERROR(CheckKvType(*options));
  QUIRE_ASSIGN_OR_RETURN(options->simulation, ReadSimulation(*options));
  QUIRE_RETURN_IF_ERROR(CheckRounding(*options));
  QUIRE_RETURN_IF_ERROR(ReadRanks(options));
  QUIRE_ASSIGN_OR_RETURN(options->gpu_memory, ReadGpuMemory(*options));
  return absl::OkStatus();
}

}  // namespace

Settings WorkerSettings(WorkerFlags* options) {
  Settings table{
      "quire-worker",
      "owns the weights of a model and the memory of its KV blocks, and runs the steps that the manager plans.",
      "--model=MODEL [flags]"};
  AddModelFlags(options, &table);
  AddAddressFlags(options, &table);
  AddBlockFlags(options, &table);
  AddDeviceFlags(options, &table);
  AddGpuFlags(options, &table);

  table.Group("Steps:");
  table.Add("max_sequences", &options->max_sequences, {1, kMaxWorkerRows},
            "Largest number of sequences that run at the same time, 1 to 65536. Further sequences wait.");
  table.Add("max_tokens_per_step", &options->max_tokens_per_step, {1, kMaxTokensPerStep},
            "Largest number of tokens in one step, 1 to 1048576, summed over all sequences. The scratch memory "
            "grows with it.");

  table.Group("Sessions:");
  table.Add(
      "orphan_hold", &options->orphan_hold, TimeRange::kFromZero,
      "How long rows and blocks stay after the manager's session has ended, so that a session that asks for them can "
      "adopt them; at most 24h. With 0 they are dropped at once, and the contents of blocks are not recorded.");

  table.Group("Times, such as 500ms, 30s or 2m, above 0 and at most 24h:");
  table.Add("drain_timeout", &options->drain_timeout, TimeRange::kAboveZero,
            "How long running requests may continue after SIGTERM or Ctrl-C. New requests are refused.");
  table.Add("gpu_timeout", &options->gpu_timeout, TimeRange::kAboveZero,
            "The worker ends when its GPU has not finished a step in this time. Set it higher, together with the "
            "manager's --step-timeout, for a GPU under a debugger or a sanitizer.");
  table.Add(
      "gpu_record_time", &options->gpu_record_time, TimeRange::kAboveZero,
      "How much longer the start of a worker on a GPU may take to record decode steps of usual sizes. What is not "
      "recorded by then is recorded in the first steps of requests. Without --gpu-graphs nothing is recorded.");

  AddLogFlags(&options->log, &table);
  AddConfigurationFlags(&table);
  return table;
}

absl::StatusOr<CommandLine<WorkerOptions>> ParseWorkerCommandLine(absl::Span<const char* const> arguments,
                                                                  absl::Span<const char* const> environment,
                                                                  cuda::DeviceOpener open_device) {
  const auto values = std::make_unique<WorkerFlags>();
  const Settings settings = WorkerSettings(values.get());
  QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> text,
                         ReadConfiguration(settings, arguments, environment, [&] { return Finish(values.get()); }));
  const bool has_options = !values->model.empty();  // There are none with --help.
  if (has_options && !values->gpu) QUIRE_RETURN_IF_ERROR(CheckGpuFlags(settings, values->device, arguments));
  CommandLine<WorkerOptions> line{std::move(text), std::move(*values)};
  if (line.text || line.options.explain_memory.empty()) return line;
  QUIRE_ASSIGN_OR_RETURN(line.text, ExplainMemoryOf(line.options, open_device));
  return line;
}

}  // namespace quire
