// SPDX-License-Identifier: Apache-2.0

#include "worker/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/configuration.h"
#include "base/worker_protocol.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/flag_reference.h"
#include "tests/test_paths.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<CommandLine<WorkerOptions>> Parse(const std::vector<const char*>& arguments) {
  return ParseWorkerCommandLine(arguments);
}

std::string Text(const std::vector<const char*>& arguments) {
  return Parse(arguments)->text.value();
}

WorkerOptions OptionsOf(const std::vector<const char*>& arguments) {
  const absl::StatusOr<CommandLine<WorkerOptions>> line = Parse(arguments);
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() ? line->options : WorkerOptions{};
}

TEST(WorkerOptionsTest, AModelMayBeANameOfTheHub) {
  EXPECT_EQ(OptionsOf({"--model=hf:owner/name@v1"}).model, "hf:owner/name@v1");
  EXPECT_EQ(OptionsOf({"--model=hf:owner/name@v1"}).model_name, "owner/name");
  EXPECT_EQ(OptionsOf({"--model=hf:owner/name/big/m.gguf@v1"}).model_name, "m.gguf");
  EXPECT_EQ(OptionsOf({"--model=hf:owner/name", "--model-name=mine"}).model_name, "mine");
  for (const char* name : {"", "--model-name=mine"}) {
    std::vector<const char*> arguments = {"--model=hf:name"};
    if (*name != '\0') arguments.push_back(name);
    EXPECT_THAT(std::string(Parse(arguments).status().message()),
                HasSubstr("--model is hf:name, a name of a model must"));
  }
  EXPECT_THAT(std::string(Parse({"--explain-memory=hf:name"}).status().message()),
              HasSubstr("--explain-memory is hf:"));
}

TEST(WorkerOptionsTest, RanksRunOnSeveralHosts) {
  const WorkerOptions one = OptionsOf({"--model=m", "--tp=4"});
  EXPECT_TRUE(one.rank_hosts.IsOneHost());
  EXPECT_EQ(one.rank_hosts.num_ranks, 4);
  const WorkerOptions two = OptionsOf({"--model=m", "--tp=4", "--tp-hosts=10.0.0.1:50061,10.0.0.2:50061", "--tp-host=1",
                                       "--tp-network=eth1", "--listen=0.0.0.0:50061", "--insecure"});
  EXPECT_EQ(two.num_ranks, 4);
  EXPECT_EQ(two.rank_hosts.first_rank, 2);
  EXPECT_EQ(two.rank_hosts.num_ranks, 2);
  EXPECT_EQ(two.rank_hosts.network_devices, "eth1");
  const auto error = [](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"--model=m", "--tp=2"});
    return std::string(Parse(flags).status().message());
  };
  const char* const hosts = "--tp-hosts=127.0.0.1:50061,127.0.0.2:50061";
  EXPECT_EQ(error({"--tp-host=0"}), "--tp-host is 0, but --tp-hosts is not set");
  EXPECT_EQ(error({"--tp-network=lo"}), "--tp-network is \"lo\", but --tp-hosts is not set");
  EXPECT_EQ(error({hosts, "--tp-network=lo"}),
            "--tp-host is -1, it must be the place of this host in --tp-hosts, 0 to 1");
  EXPECT_EQ(error({hosts, "--tp-host=0"}),
            "--tp-network is missing; with --tp-hosts it names the network devices between the hosts");
  EXPECT_EQ(error({hosts, "--tp-host=1", "--tp-network=lo", "--listen=unix:/run/w"}),
            "--listen is unix:/run/w, but --tp-hosts says that the manager reaches this host at 127.0.0.2:50061");
  EXPECT_EQ(error({"--tp-hosts=a:50061,b:50061", "--tp-host=0", "--tp-network=eth0"}),
            "--listen is 127.0.0.1:50061, but --tp-hosts says that the manager reaches this host at a:50061");
  EXPECT_EQ(error({hosts, "--tp-host=1", "--tp-network=lo", "--rank=0", "--group=g"}),
            "--rank is 0, this host has the ranks 1 to 1");
}

TEST(WorkerOptionsTest, EachRankHasAGpu) {
  const auto gpu = [](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"--model=m", "--tp=4", "--group=g"});
    return *OptionsOf(flags).gpu;
  };
  EXPECT_EQ(gpu({"--device=cuda", "--rank=3"}), 3);
  EXPECT_EQ(gpu({"--device=cuda:4", "--rank=3"}), 7);
  EXPECT_EQ(gpu({"--device=cuda:1", "--rank=3", "--tp-hosts=127.0.0.1:50061,127.0.0.2:50061", "--tp-host=1",
                 "--tp-network=lo"}),
            2);
  EXPECT_EQ(std::string(Parse({"--model=m", "--tp=2", "--device=cuda", "--exact-gpu"}).status().message()),
            "--tp is 2, with --exact-gpu it must be 1: GPUs add the sums of ranks in another order");
}

TEST(WorkerOptionsTest, AModelIsEnough) {
  const WorkerOptions options = OptionsOf({"--model=/models/tiny/"});
  EXPECT_EQ(options.model, "/models/tiny/");
  EXPECT_EQ(options.model_name, "tiny");
  EXPECT_EQ(options.listen, "127.0.0.1:50061");
  EXPECT_EQ(options.metrics_listen, "127.0.0.1:9461");
  EXPECT_EQ(options.manager_names, std::vector<std::string>({"quire-manager"}));
  EXPECT_EQ(options.block_size, 16);
  EXPECT_EQ(options.max_sequences, 256);
  EXPECT_EQ(options.max_tokens_per_step, 2048);
  EXPECT_FALSE(options.pool.bytes || options.pool.num_blocks || options.pool.memory_fraction);
  EXPECT_EQ(options.swap_bytes, 0);
  EXPECT_FALSE(options.kv_type);
  EXPECT_FALSE(options.prefault);
  EXPECT_EQ(options.orphan_hold, absl::Seconds(30));
}

TEST(WorkerOptionsTest, TheOrphanHoldMayBeSwitchedOff) {
  EXPECT_EQ(OptionsOf({"--model=x", "--orphan-hold=0"}).orphan_hold, absl::ZeroDuration());
  EXPECT_EQ(OptionsOf({"--model=x", "--orphan-hold=24h"}).orphan_hold, absl::Hours(24));
}

TEST(WorkerOptionsTest, DashesAndUnderscoresAreTheSame) {
  EXPECT_EQ(OptionsOf({"--model=x", "--max-sequences=7"}).max_sequences, 7);
  EXPECT_EQ(OptionsOf({"--model=x", "--max_sequences=7"}).max_sequences, 7);
}

TEST(WorkerOptionsTest, AValueMayBeTheNextWord) {
  const WorkerOptions options = OptionsOf({"--model", "x", "--prefault", "--kv-bytes", "1GiB"});
  EXPECT_TRUE(options.prefault);
  EXPECT_EQ(options.pool.bytes, int64_t{1} << 30);
}

TEST(WorkerOptionsTest, EveryKindOfPoolSizeIsRead) {
  EXPECT_EQ(OptionsOf({"--model=x", "--num-blocks=12"}).pool.num_blocks, 12);
  EXPECT_EQ(OptionsOf({"--model=x", "--memory-fraction=0.5"}).pool.memory_fraction, 0.5);
  EXPECT_EQ(OptionsOf({"--model=x", "--swap-bytes=3MiB"}).swap_bytes, 3 << 20);
  EXPECT_EQ(OptionsOf({"--model=x", "--kv-type=bfloat16"}).kv_type, KvType::kBFloat16);
  EXPECT_EQ(OptionsOf({"--model=x", "--kv-type=int8"}).kv_type, KvType::kInt8);
  EXPECT_EQ(OptionsOf({"--model=x", "--device=cuda", "--kv-type=int8"}).kv_type, KvType::kInt8);
  EXPECT_FALSE(OptionsOf({"--model=x"}).divides_by_windows);
  EXPECT_TRUE(OptionsOf({"--model=x", "--cache-groups=windows"}).divides_by_windows);
}

TEST(WorkerOptionsTest, KernelsAreThoseThatTheMachineHas) {
  EXPECT_FALSE(OptionsOf({"--model=x"}).cpu_kernels);
  EXPECT_FALSE(OptionsOf({"--model=x", "--cpu-kernels=auto"}).cpu_kernels);
  const std::vector<cpu::Isa> supported = cpu::SupportedIsas();
  for (const cpu::Isa isa : {cpu::Isa::kGeneric, cpu::Isa::kAvx2, cpu::Isa::kAvx512, cpu::Isa::kAvx512Vnni,
                             cpu::Isa::kAvx512Bf16, cpu::Isa::kAmx}) {
    const std::string flag = absl::StrCat("--cpu-kernels=", cpu::Name(isa));
    const absl::StatusOr<CommandLine<WorkerOptions>> line = Parse({"--model=x", flag.c_str()});
    if (std::find(supported.begin(), supported.end(), isa) != supported.end()) {
      ASSERT_TRUE(line.ok()) << line.status();
      EXPECT_EQ(line->options.cpu_kernels, isa);
    } else {
      EXPECT_THAT(std::string(line.status().message()),
                  HasSubstr(absl::StrCat("--cpu-kernels is ", cpu::Name(isa), ", this machine has generic")));
    }
  }
}

TEST(WorkerOptionsTest, PartsOfTheGpuCodeCanBeTurnedOnAndOff) {
  const WorkerOptions options = OptionsOf({"--model=x", "--device=cuda"});
  EXPECT_TRUE(options.gpu_graphs);
  EXPECT_FALSE(options.gpu_overlap);
  EXPECT_TRUE(options.gpu_warp_groups);
  EXPECT_TRUE(options.gpu_int8_inputs);
  EXPECT_TRUE(options.gpu_fp8_inputs);
  EXPECT_EQ(options.gpu_record_time, absl::Seconds(5));
  const WorkerOptions changed =
      OptionsOf({"--model=x", "--device=cuda", "--gpu-graphs=false", "--gpu-overlap", "--gpu-warp-groups=false",
                 "--gpu-int8-inputs=false", "--gpu-fp8-inputs=false", "--gpu-record-time=1m"});
  EXPECT_FALSE(changed.gpu_graphs);
  EXPECT_TRUE(changed.gpu_overlap);
  EXPECT_FALSE(changed.gpu_warp_groups);
  EXPECT_FALSE(changed.gpu_int8_inputs);
  EXPECT_FALSE(changed.gpu_fp8_inputs);
  EXPECT_EQ(changed.gpu_record_time, absl::Minutes(1));
}

TEST(WorkerOptionsTest, ASimulatedDeviceHasStepTimesFromAFileOrNone) {
  EXPECT_FALSE(OptionsOf({"--model=x"}).simulation);
  const WorkerOptions options = OptionsOf({"--model=x", "--device=simulated"});
  ASSERT_TRUE(options.simulation);
  EXPECT_FALSE(options.gpu);
  EXPECT_EQ(options.simulation->step_times.step, std::chrono::milliseconds(10));
  EXPECT_EQ(options.simulation->mean_output_tokens, 0);
  const WorkerOptions fast =
      OptionsOf({"--model=x", "--device=simulated", "--simulated-step-times=0", "--simulated-output-tokens=200"});
  EXPECT_EQ(fast.simulation->step_times, simulated::StepTimes());
  EXPECT_EQ(fast.simulation->mean_output_tokens, 200);

  const std::string path = absl::StrCat(testing::TempDir(), "/times.", getpid());
  std::ofstream(path) << "step: 3ms\n";
  const std::string flag = "--simulated-step-times=" + path;
  EXPECT_EQ(OptionsOf({"--model=x", "--device=simulated", flag.c_str()}).simulation->step_times.step,
            std::chrono::milliseconds(3));
  std::ofstream(path) << "steps: 3ms\n";
  EXPECT_THAT(std::string(Parse({"--model=x", "--device=simulated", flag.c_str()}).status().message()),
              HasSubstr("--simulated-step-times: " + path + ":1: unknown key steps"));
  unlink(path.c_str());
  EXPECT_THAT(std::string(Parse({"--model=x", "--device=simulated", flag.c_str()}).status().message()),
              HasSubstr("--simulated-step-times: cannot read " + path));
}

TEST(WorkerOptionsTest, WhatIsWrongIsOneLineThatNamesTheFlag) {
  const struct {
    std::vector<const char*> arguments;
    const char* message;
  } cases[] = {
      {{}, "--model is missing"},
      {{"--modle=x"}, "there is no flag --modle"},
      {{"--undefok=x"}, "there is no flag --undefok"},
      {{"model"}, "'model' is not a flag"},
      {{"--model"}, "--model has no value"},
      {{"--model=x", "--threads=many"}, "--threads is 'many', it must be a whole number"},
      {{"--model=x", "--threads=-1"}, "--threads is -1, it must be 0 .. 1024"},
      {{"--model=x", "--prefault=maybe"}, "--prefault is 'maybe', it must be true or false"},
      {{"--model=x", "--block-size=12"}, "--block-size is 12, it must be 1, 2, 4, 8 or a multiple of 16 up to 65536"},
      {{"--model=x", "--block-size=0"}, "--block-size is 0"},
      {{"--model=x", "--kv-bytes=12XB"}, "--kv-bytes: '12XB' is not a number of bytes"},
      {{"--model=x", "--swap-bytes=-1"}, "--swap-bytes: '-1' is not a number of bytes"},
      {{"--model=x", "--num-blocks=-4"}, "--num-blocks is -4"},
      {{"--model=x", "--num-blocks=16777217"}, "--num-blocks is 16777217, it must be 0 .. 16777216"},
      {{"--model=x", "--memory-fraction=1.5"}, "--memory-fraction is 1.5, it must be above 0 and at most 1"},
      {{"--model=x", "--memory-fraction=nan"}, "--memory-fraction is nan"},
      {{"--model=x", "--num-blocks=4", "--kv-bytes=1GiB"}, "exclude each other"},
      {{"--model=x", "--kv-type=int4"},
       "--kv-type is 'int4', it must be one of auto, float32, bfloat16, float16, int8"},
      {{"--model=x", "--cache-groups=two"}, "--cache-groups is 'two', it must be one of one, windows"},
      {{"--model=x", "--device=cuda", "--cache-groups=windows"},
       "--cache-groups is windows, with --device=cuda it must be one"},
      {{"--model=x", "--quantize=fp8"}, "--quantize is 'fp8', it must be one of none, int8, int4"},
      {{"--model=x", "--int4-inputs=bf16"}, "--int4-inputs is 'bf16', it must be one of int8, bfloat16, float32"},
      {{"--model=x", "--quantize=int8", "--device=simulated"},
       "--quantize is int8, with --device=simulated it must be none"},
      {{"--model=x", "--quantize-output", "--device=simulated"},
       "--quantize-output is true, with --device=simulated it must be false"},
      {{"--model=x", "--cpu-kernels=sse"},
       "--cpu-kernels is 'sse', it must be one of auto, generic, avx2, avx512, avx512_vnni, avx512_bf16, amx"},
      {{"--model=x", "--device=gpu"}, "--device is \"gpu\", it must be cpu, simulated, cuda or cuda:N"},
      {{"--model=x", "--simulated-step-times=0"}, "--simulated-step-times is set, but --device is cpu, not simulated"},
      {{"--model=x", "--device=cuda", "--simulated-output-tokens=5"},
       "--simulated-output-tokens is set, but --device is cuda, not simulated"},
      {{"--model=x", "--device=simulated", "--simulated-output-tokens=-1"},
       "--simulated-output-tokens is -1, it must be 0 .. 1000000000"},
      {{"--model=x", "--device=simulated", "--kv-type=float32"},
       "--kv-type is float32, with --device=simulated it must be auto"},
      {{"--model=x", "--device=cuda:1", "--kv-type=float32"},
       "--kv-type is float32, with --device=cuda:1 it must be auto, bfloat16, float16 or int8"},
      {{"--model=x", "--exact-gpu"}, "--exact-gpu is set, but --device is cpu, not cuda"},
      {{"--model=x", "--gpu-graphs=false"}, "--gpu-graphs is set, but --device is cpu, not cuda"},
      {{"--model=x", "--check-config", "--gpu-library=/x"}, "--gpu-library is set, but --device is cpu, not cuda"},
      {{"--model=x", "--device=simulated", "--gpu-timeout=1h"},
       "--gpu-timeout is set, but --device is simulated, not cuda"},
      {{"--model=x", "--max-sequences=0"}, "--max-sequences is 0, it must be 1 .. 65536"},
      {{"--model=x", "--max-tokens-per-step=0"}, "--max-tokens-per-step is 0"},
      {{"--model=x", "--orphan-hold=-1s"}, "--orphan-hold is -1s, it must be 0 .. 24h"},
      {{"--model=x", "--orphan-hold=25h"}, "--orphan-hold is 25h, it must be 0 .. 24h"},
      {{"--model=x", "--listen=50061"}, "--listen is '50061', it must be host:port or unix:path"},
      {{"--model=x", "--listen=127.0.0.1:70000"}, "--listen is '127.0.0.1:70000', its port must be 0 .. 65535"},
      {{"--model=x", "--metrics-listen=a:b"}, "--metrics-listen is 'a:b', its port must be 0 .. 65535"},
      {{"--model=x", "--log-level=loud"}, "--log-level is 'loud', it must be one of debug, info, warning, error"},
  };
  for (const auto& test : cases) {
    const absl::Status status = Parse(test.arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
}

TEST(WorkerOptionsTest, FlagsForGpusMayBeInTheEnvironmentOfWorkersOnOtherDevices) {
  const absl::StatusOr<CommandLine<WorkerOptions>> line =
      ParseWorkerCommandLine({"--model=x", "--gpu-overlap=false"}, {"QUIRE_WORKER_EXACT_GPU=true"});
  EXPECT_TRUE(line.ok()) << line.status();
}

TEST(WorkerOptionsTest, TheMemoryOfAModelIsExplainedWithoutAStart) {
  const absl::StatusOr<CommandLine<WorkerOptions>> line =
      Parse({"--explain-memory", SourcePath("models/tales").c_str(), "--block-size=32"});
  ASSERT_TRUE(line.ok()) << line.status();
  ASSERT_TRUE(line->text);
  EXPECT_THAT(*line->text, HasSubstr("a block of 32"));
  EXPECT_THAT(*line->text, HasSubstr("int8"));
  EXPECT_THAT(std::string(Parse({"--explain-memory=/nowhere"}).status().message()),
              HasSubstr("there is no folder /nowhere"));
}

TEST(WorkerOptionsTest, TheMemoryOfAModelOnAGpuIsExplainedWithoutOne) {
  const std::string model = "--explain-memory=" + SourcePath("models/tales");
  const std::string text = Text({model.c_str(), "--device=cuda", "--gpu-memory=80GiB"});
  EXPECT_THAT(text, HasSubstr("\na GPU has 80.0 GiB of memory, of which 80.0 GiB are free\n"));
  EXPECT_THAT(text, HasSubstr(" in 0.9 of what is left, with K and V in 16 bits, int8\n"));
  EXPECT_THAT(text, Not(HasSubstr("float32")));
  EXPECT_THAT(Text({model.c_str(), "--device=cuda", "--gpu-memory=80GiB", "--memory-fraction=0.5"}),
              HasSubstr(" in 0.5 of what is left, with K and V in 16 bits, int8\n"));
  const auto message = [](const std::vector<const char*>& arguments) {
    return std::string(Parse(arguments).status().message());
  };
  EXPECT_THAT(message({"--model=x", "--device=cuda", "--gpu-memory=80GiB"}),
              HasSubstr("--gpu-memory is set, but --explain-memory is not"));
  EXPECT_THAT(message({model.c_str(), "--gpu-memory=80GiB"}), HasSubstr("--gpu-memory is set, but --device is cpu"));
  EXPECT_THAT(message({model.c_str(), "--device=cuda", "--gpu-memory=big"}), HasSubstr("--gpu-memory: 'big' is not"));
}

TEST(WorkerOptionsTest, TheMemoryThatTheFlagsOfTheCommandLineWouldUseIsExplained) {
  const std::string model = "--explain-memory=" + SourcePath("models/tales");
  const auto text = [&](const std::vector<const char*>& flags) {
    std::vector<const char*> arguments = {model.c_str(), "--num-blocks=64"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return Text(arguments);
  };
  EXPECT_THAT(text({}), HasSubstr("\nwith this command line\nweights      2.3 MiB in bfloat16\nK and V      "));
  EXPECT_THAT(text({}), HasSubstr(", in bfloat16\npool         64 blocks of 16 tokens ("));
  EXPECT_THAT(text({"--quantize=int8"}), HasSubstr("\nweights      1.4 MiB in int8\n"));
  EXPECT_THAT(text({"--quantize=int8", "--quantize-output"}),
              HasSubstr("\nweights      1.7 MiB in int8, output matrix int8\n"));
  EXPECT_THAT(text({"--kv-type=int8"}), HasSubstr(", in int8\npool         64 blocks of 16 tokens ("));
  EXPECT_THAT(text({"--kv-type=float32"}), HasSubstr(", in float32\npool  "));
  EXPECT_THAT(text({"--device=cuda", "--gpu-memory=1GiB", "--kv-type=int8", "--quantize=int4"}),
              AllOf(HasSubstr("\nwith this command line\nweights      "), HasSubstr(" in int4\nK and V      "),
                    HasSubstr(", in int8\npool         64 blocks of 16 tokens (")));
}

TEST(WorkerOptionsTest, WhatDoesNotFitIsToldWithTheWordsOfAStart) {
  const std::string model = "--explain-memory=" + SourcePath("models/tales");
  EXPECT_THAT(
      Text({model.c_str(), "--kv-bytes=64"}),
      HasSubstr("\nA worker with this command line ends with this error: --kv-bytes is 64 bytes, the minimum is "));
  EXPECT_THAT(Text({model.c_str(), "--device=cuda", "--gpu-memory=1MiB"}),
              HasSubstr("\nA worker with this command line ends with this error: a GPU has 1.0 MiB of memory, of which "
                        "1.0 MiB are free; the weights need "));
}

TEST(WorkerOptionsTest, WhatAStartRefusesIsNotExplained) {
  const auto error = [](const std::string& model, std::vector<const char*> flags) {
    const std::string flag = "--explain-memory=" + model;
    flags.push_back(flag.c_str());
    return std::string(Parse(flags).status().message());
  };
  const char *const cuda = "--device=cuda", *const memory = "--gpu-memory=80GiB";
  const TestDirectory directory;
  const auto write = [&](const std::string& fields) {
    directory.Write("config.json", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 256,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 256, "torch_dtype": "bfloat16")" +
                                       fields + "}");
  };
  write(R"(, "head_dim": 48)");
  EXPECT_EQ(error(directory.path(), {cuda, memory}),
            "--device=cuda: there are no kernels for heads of 48 dimensions, but for 32, 64, 80, 96, 128, 256");
  EXPECT_EQ(error(directory.path(), {"--device=cuda:1"}),
            "--device=cuda:1: there are no kernels for heads of 48 dimensions, but for 32, 64, 80, 96, 128, 256");
  EXPECT_EQ(error(GoldenModel("mixtral"), {cuda, memory, "--quantize=int8"}),
            GoldenModel("mixtral") +
                ": the experts would have fewer than 16 bits, and a GPU has no kernels for that; a CPU has them");
  EXPECT_EQ(error(GoldenModel("mixtral"), {cuda, memory, "--tp=2"}),
            GoldenModel("mixtral") +
                ": the model has experts, which 2 GPUs cannot divide; --tp must be 1, or the device a CPU");
  EXPECT_EQ(error(GoldenModel("glm"), {cuda, memory}),
            GoldenModel("glm") +
                ": the number of dimensions of a head that rotate is 4, on a GPU it must be a multiple of 16");
  write(R"(, "head_dim": 256)");
  EXPECT_EQ(
      error(directory.path(), {cuda, memory, "--kv-type=int8"}),
      "a GPU cannot run the model: there are no kernels for heads of 256 dimensions in blocks of 16 tokens of int8, "
      "only for at most 128 dimensions in blocks of at least 16 tokens");
  write(R"(, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128})");
  for (const char* device : {cuda, "--device=cpu"}) {
    std::vector<const char*> flags = {device, "--quantize=int8"};
    if (device == cuda) flags.push_back(memory);
    EXPECT_EQ(error(directory.path(), flags),
              directory.path() + ": the checkpoint is quantized already, so --quantize must be none, not int8");
  }
  write("");
  EXPECT_THAT(error(directory.path(), {"--long-context"}),
              HasSubstr("--long-context is set, but the rotary embedding"));
  EXPECT_THAT(error(directory.path(), {"--device=simulated"}),
              HasSubstr("--device is simulated, with --explain-memory it must be cpu or cuda"));
}

TEST(WorkerOptionsTest, ADeviceThatIsOpenRefusesALayoutAsItDoesAtAStart) {
  const std::string model = "--explain-memory=" + SourcePath("models/tales");
  const auto line = ParseWorkerCommandLine(
      {model.c_str(), "--device=cuda", "--kv-type=int8", "--block-size=8"}, {},
      [](const std::string&, const cuda::DeviceOptions&, std::string*) -> std::unique_ptr<cuda::Device> {
        return std::make_unique<cuda::EmulatedDevice>();
      });
  EXPECT_EQ(
      std::string(line.status().message()),
      "emulated GPU cannot run the model: there are no kernels for heads of 32 dimensions in blocks of 8 tokens of "
      "int8, only for at most 128 dimensions in blocks of at least 16 tokens");
}

TEST(WorkerOptionsTest, AModelHasTheNameOfItsFolder) {
  const TestDirectory directory;
  std::filesystem::create_directories(directory.path() + "/models/tiny/inner");
  std::filesystem::create_directory_symlink("tiny", directory.path() + "/models/alias");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path() + "/models/tiny");
  for (const char* model : {".", "./", "./.", "inner/..", "../tiny", "../tiny/", "../tiny/."}) {
    EXPECT_EQ(OptionsOf({"--model", model}).model_name, "tiny") << model;
  }
  EXPECT_EQ(OptionsOf({"--model=.."}).model_name, "models");
  EXPECT_EQ(OptionsOf({"--model=../alias/"}).model_name, "alias");
  EXPECT_EQ(OptionsOf({"--model=.", "--model-name=mine"}).model_name, "mine");
  std::filesystem::current_path(before);
  EXPECT_EQ(std::string(Parse({"--model=/"}).status().message()),
            "--model is /, which has no name; give the model one with --model-name");
}

TEST(WorkerOptionsTest, TheMemoryOfTheGpuIsReadToExplainThatOfAModel) {
  const std::string model = "--explain-memory=" + SourcePath("models/tales");
  const auto here = ParseWorkerCommandLine(
      {model.c_str(), "--device=cuda:1"}, {},
      [](const std::string&, const cuda::DeviceOptions& options, std::string*) -> std::unique_ptr<cuda::Device> {
        EXPECT_EQ(options.ordinal, 1);
        return std::make_unique<cuda::EmulatedDevice>();
      });
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_THAT(*here->text,
              HasSubstr("\n--device=cuda:1 (emulated GPU) has 256.0 MiB of memory, of which 256.0 MiB are "));
  const auto away = ParseWorkerCommandLine(
      {model.c_str(), "--device=cuda:1"}, {},
      [](const std::string&, const cuda::DeviceOptions&, std::string* why_not) -> std::unique_ptr<cuda::Device> {
        *why_not = "it is away";
        return nullptr;
      });
  EXPECT_EQ(std::string(away.status().message()),
            "--device=cuda:1: it is away; --gpu-memory=80GiB describes a GPU that is not here");
}

TEST(WorkerOptionsTest, HelpShowsEveryFlagWithDashesAndDefault) {
  const absl::StatusOr<CommandLine<WorkerOptions>> line = Parse({"--help"});
  ASSERT_TRUE(line.ok());
  ASSERT_TRUE(line->text);
  for (const char* text : {"Model:\n", "--model\n", "--listen=127.0.0.1:50061\n", "--max-tokens-per-step=2048\n",
                           "--kv-type=auto\n", "--memory-fraction=0\n", "--log-level=info\n"}) {
    EXPECT_THAT(*line->text, HasSubstr(text));
  }
  EXPECT_THAT(*line->text, HasSubstr(absl::StrCat("up to ", kMaxWorkerBlocks)));
  EXPECT_THAT(*line->text, Not(HasSubstr("max_tokens")));
  // No line has two spaces between words, which would show that a help text has line breaks of its own.
  for (const absl::string_view help : absl::StrSplit(*line->text, '\n')) {
    EXPECT_LE(help.size(), 100u) << help;
    EXPECT_THAT(std::string(absl::StripLeadingAsciiWhitespace(help)), Not(HasSubstr("  ")));
  }
}

TEST(WorkerOptionsTest, TheShortHelpFlagPrintsTheHelp) {
  EXPECT_EQ(*Parse({"-h"})->text, *Parse({"--help"})->text);
}

TEST(WorkerOptionsTest, VersionIsPrinted) {
  const absl::StatusOr<CommandLine<WorkerOptions>> line = Parse({"--version"});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(*line->text, HasSubstr("quire-worker 0."));
}

TEST(ReferenceTest, TheDocumentsHaveTheFlags) {
  WorkerFlags options;
  const Settings settings = WorkerSettings(&options);
  const std::string all = FlagTables(settings);
  EXPECT_EQ(MadeSection("docs/configuration.md", "all flags of quire-worker", all), all)
      << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write the section again.";
  const std::string first = ShortFlagTable(settings, {"model", "listen", "device", "kv_bytes", "max_sequences"});
  EXPECT_EQ(MadeSection("docs/serving.md", "first flags of quire-worker", first), first)
      << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write the section again.";
}

TEST(ReferenceTest, NoVariableOfAFlagIsOneThatKubernetesMakesForAService) {
  WorkerFlags options;
  for (const std::string& name : WorkerSettings(&options).Names()) {
    const std::string variable = EnvironmentVariable("quire-worker", name);
    EXPECT_FALSE(IsServiceLink(variable)) << variable;
  }
}

TEST(EffectiveConfigTest, IsReadBackAsTheSameConfiguration) {
  const std::string path = absl::StrCat(testing::TempDir(), "/quire-worker.", getpid(), ".yaml");
  const std::string config = absl::StrCat("--config=", path);
  const std::string printed = Text({"--print-effective-config", "--model=/m \"x\"\\ \n#é", "--kv-bytes=1GiB",
                                    "--manager-names=a,*", "--drain-timeout=500ms"});
  std::ofstream(path) << printed;
  std::string again = Text({config.c_str(), "--print-effective-config"});
  unlink(path.c_str());
  const auto without_comments = [](std::string text) { return std::regex_replace(text, std::regex("  # .*"), ""); };
  EXPECT_EQ(without_comments(again), without_comments(printed));
  EXPECT_THAT(printed, HasSubstr("  # flag\n"));
  EXPECT_THAT(again, HasSubstr(absl::StrCat("  # ", path, ":4\n"))) << "the first group has its first key there";
}

}  // namespace
}  // namespace quire
