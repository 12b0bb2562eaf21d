// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_device.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "kernels/cuda/compiled_kernels.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/fatal.h"
#include "kernels/cuda/missing_gpu.h"

namespace quire::cuda {
namespace {

constexpr int kMinMajor = 8;              // sm_80.
constexpr int kPtxWithWait = 90;          // Code for older devices has no griddepcontrol.wait.
constexpr int kBatchCopyVersion = 12080;  // Required version of toolkit and driver.

// Wait polls the device continuously for kBusyWaiting, and after that sleeps kSleep between polls. A sleep takes 40 to
// 90 us, whatever its length, by which the end of a step would be seen later. Steps of decodes take less than
// kBusyWaiting.
constexpr std::chrono::milliseconds kBusyWaiting(50);
constexpr std::chrono::microseconds kSleep(20);

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { CheckCuda(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy"); }
  cudaGraphExec_t get() const { return graph_; }

 private:
  const cudaGraphExec_t graph_;
};

// CUDA's current device is a property of the thread, and a device may be handed from the thread that made it to
// another.
cudaError_t SetCurrent(int ordinal) {
  thread_local int current = -1;
  if (current == ordinal) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) current = ordinal;
  return error;
}

std::string Explain(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error);
}

std::string FormatVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string ExplainVersions(int driver) {
  return "(the driver supports CUDA " + FormatVersion(driver) + ", built with " + FormatVersion(CUDART_VERSION) + ")";
}

// Returns the name of a kernel for error messages.
const char* NameOf(const void* entry) {
  const char* name = "a kernel";
#if CUDART_VERSION >= 12030
  if (cudaFuncGetName(&name, entry) != cudaSuccess) name = "a kernel";
#endif
  return name;
}

// Returns why the code cannot be loaded: for newer GPUs the driver translates it, which an old driver may refuse. All
// kernels are compiled in the same way, so a small one answers for all.
cudaError_t TryToLoadKernels() {
  const KernelTable* const table =
      FindCompiledKernels(DataType::kBFloat16, /*head_dim=*/64, /*block_size=*/16, /*is_sm90=*/false);
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, table->gather_rows.entry);
}

}  // namespace

std::unique_ptr<CudaDevice> CudaDevice::Create(const DeviceOptions& options, std::string* reason) {
  int driver = 0, num_devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    *reason = kNoDriver;
    return nullptr;
  }
  if (const cudaError_t error = cudaGetDeviceCount(&num_devices); error != cudaSuccess) {
    *reason = "no GPU can be used: " + Explain(error) + " " + ExplainVersions(driver) +
              WhatHidesGpus(std::getenv("CUDA_VISIBLE_DEVICES"), access("/dev/nvidiactl", F_OK) == 0);
    return nullptr;
  }
  if (options.ordinal < 0 || options.ordinal >= num_devices) {
    *reason = "there is no GPU " + std::to_string(options.ordinal) + ", there are " + std::to_string(num_devices) +
              WhatHidesGpus(std::getenv("CUDA_VISIBLE_DEVICES"), /*has_control_device=*/true);
    return nullptr;
  }
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, options.ordinal);
  if (error == cudaSuccess && properties.major < kMinMajor) {
    *reason = std::string(properties.name) + " is sm_" + std::to_string(properties.major) +
              std::to_string(properties.minor) + ", sm_80 or newer is needed";
    return nullptr;
  }
  if (error == cudaSuccess) error = SetCurrent(options.ordinal);  // Fails if the GPU is busy in exclusive mode.
  if (error != cudaSuccess) {
    *reason = "GPU " + std::to_string(options.ordinal) + " cannot be used: " + Explain(error);
    return nullptr;
  }
  error = TryToLoadKernels();
  if (error != cudaSuccess) {
    *reason = std::string(properties.name) + " is sm_" + std::to_string(properties.major) +
              std::to_string(properties.minor) + ", and the driver cannot load the kernels for it: " + Explain(error) +
              " " + ExplainVersions(driver);
    return nullptr;
  }
  return std::unique_ptr<CudaDevice>(new CudaDevice(options, properties));
}

CudaDevice::CudaDevice(const DeviceOptions& options, const cudaDeviceProp& properties)
    : options_(options), properties_(properties), watch_(options.longest_wait) {
  int driver = 0;
  NameDeviceInErrors(Description());
  CheckCuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  has_batch_copies_ = driver >= kBatchCopyVersion;
  CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  for (cudaEvent_t& event : events_) {
    CheckCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  matmul_ = std::make_unique<Matmul>(stream_, MatmulOptions{.exact = options.exact,
                                                            .tuning_cache = options.tuning_cache,
                                                            .device_name = Model(),
                                                            .l2_bytes = l2_bytes()});
}

CudaDevice::~CudaDevice() {
  MakeCurrent();
  CheckCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize, of the last work of a device,");
  group_.reset();
  matmul_.reset();
  for (const cudaEvent_t event : events_) CheckCuda(cudaEventDestroy(event), "cudaEventDestroy");
  CheckCuda(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

void CudaDevice::MakeCurrent() const {
  CheckCuda(SetCurrent(options_.ordinal), "cudaSetDevice(%d)", options_.ordinal);
}

// A machine has several GPUs of a model, and CUDA may number them in another order than other programs. The address
// tells which one is meant.
std::string CudaDevice::Description() const {
  char address[32];
  std::snprintf(address, sizeof(address), ", PCI %04x:%02x:%02x.0", properties_.pciDomainID, properties_.pciBusID,
                properties_.pciDeviceID);
  return Model() + address;
}

std::string CudaDevice::Model() const {
  return std::string(properties_.name) + ", sm_" + std::to_string(properties_.major) +
         std::to_string(properties_.minor);
}

std::string CudaDevice::NumericsFingerprint() const {
  return Model() + ", " + std::to_string(num_multiprocessors()) + " multiprocessors, " + matmul_->Fingerprint();
}

void* CudaDevice::Allocate(size_t bytes) {
  MakeCurrent();
  void* memory = nullptr;
  bytes = std::max<size_t>(bytes, 1);
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // Clears the error.
    return nullptr;
  }
  CheckCuda(error, "cudaMalloc(%zu)", bytes);
  CheckCuda(cudaMemsetAsync(memory, 0, bytes, stream_), "cudaMemsetAsync(%p, %zu)", memory, bytes);
  return memory;
}

void CudaDevice::Free(void* memory) {
  MakeCurrent();
  CheckCuda(cudaFree(memory), "cudaFree(%p)", memory);
  ++num_frees_;
}

void* CudaDevice::AllocateHost(size_t bytes) {
  MakeCurrent();
  void* memory = nullptr;
  bytes = std::max<size_t>(bytes, 1);
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  CheckCuda(error, "cudaHostAlloc(%zu)", bytes);
  std::memset(memory, 0, bytes);
  return memory;
}

void CudaDevice::FreeHost(void* memory) {
  MakeCurrent();
  CheckCuda(cudaFreeHost(memory), "cudaFreeHost(%p)", memory);
}

size_t CudaDevice::FreeBytes() const {
  MakeCurrent();
  size_t free_bytes = 0, total_bytes = 0;
  CheckCuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return free_bytes;
}

void CudaDevice::Copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  MakeCurrent();
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync(%p, %p, %zu)", to, from,
            bytes);
}

// A batch needs one call. Separate copies of thousands of swapped blocks would need thousands.
void CudaDevice::CopyBatch(const CopyPiece* pieces, int num_pieces) {
#if CUDART_VERSION >= 12080
  if (has_batch_copies_) {
    MakeCurrent();
    batch_to_.clear();
    batch_from_.clear();
    batch_bytes_.clear();
    for (int i = 0; i < num_pieces; ++i) {
      if (pieces[i].bytes == 0) continue;
      batch_to_.push_back(pieces[i].to);
      batch_from_.push_back(pieces[i].from);
      batch_bytes_.push_back(pieces[i].bytes);
    }
    if (batch_to_.empty()) return;
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first_with_attributes = 0;
#if CUDART_VERSION >= 13000
    const cudaError_t error = cudaMemcpyBatchAsync(batch_to_.data(), batch_from_.data(), batch_bytes_.data(),
                                                   batch_to_.size(), &attributes, &first_with_attributes, 1, stream_);
#else
    size_t failed = 0;
    const cudaError_t error =
        cudaMemcpyBatchAsync(batch_to_.data(), const_cast<void**>(batch_from_.data()), batch_bytes_.data(),
                             batch_to_.size(), &attributes, &first_with_attributes, 1, &failed, stream_);
#endif
    CheckCuda(error, "cudaMemcpyBatchAsync of %zu pieces, the first (%p, %p, %zu),", batch_to_.size(), batch_to_[0],
              batch_from_[0], batch_bytes_[0]);
    return;
  }
#endif
  for (int i = 0; i < num_pieces; ++i) Copy(pieces[i].to, pieces[i].from, pieces[i].bytes);
}

void CudaDevice::Synchronize() {
  Wait(Mark());
}

uint64_t CudaDevice::Mark() {
  MakeCurrent();
  const uint64_t mark = num_marks_++;
  CheckCuda(cudaEventRecord(EventOf(mark), stream_), "cudaEventRecord");
  watch_.Add(mark);
  return mark;
}

// All waiting goes through here, so that a device that hangs always ends its worker, and the worker's sequences
// continue elsewhere.
bool CudaDevice::IsDone(uint64_t mark) {
  MakeCurrent();
  const cudaError_t error = cudaEventQuery(EventOf(mark));
  if (error == cudaErrorNotReady) {
    if (watch_.Hangs(mark)) {
      Fatal("%s has not finished its work in %lld ms, which is the limit of --gpu-timeout", Description().c_str(),
            static_cast<long long>(options_.longest_wait.count()));
    }
    return false;
  }
  CheckCuda(error,
            "cudaEventQuery, or work queued before it (CUDA_LAUNCH_BLOCKING=1 with --gpu-graphs=false shows which),");
  watch_.SetDone();
  return true;
}

// Polls instead of waiting in CUDA, which has no time limit.
void CudaDevice::Wait(uint64_t mark) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point busy_end = Clock::now() + kBusyWaiting;
  while (!IsDone(mark)) {
    if (Clock::now() > busy_end) {
      std::this_thread::sleep_for(kSleep);
    } else {
      std::this_thread::yield();
    }
  }
}

const KernelTable* CudaDevice::FindKernels(DataType element, int head_dim, int block_size) const {
  const bool uses_sm90 = options_.warp_groups && properties_.major == 9 && properties_.minor == 0;
  const KernelTable* const table = FindCompiledKernels(element, head_dim, block_size, uses_sm90);
  if (table == nullptr) return nullptr;
  const size_t needed = std::max({table->attention_decode.shared_bytes, table->attention_prefill.shared_bytes,
                                  table->attention_prefill_sm90.shared_bytes});
  return needed <= properties_.sharedMemPerBlockOptin ? table : nullptr;
}

void CudaDevice::Prepare(const KernelTable& kernels) {
  MakeCurrent();
  kernels.ForEach([this](const auto& kernel) { Load(kernel.entry, kernel.shared_bytes); });
}

// CUDA loads the code of a kernel when somebody first asks for its attributes, or launches it.
CudaDevice::LoadedKernel& CudaDevice::Load(const void* entry, size_t shared_bytes) {
  const auto found = loaded_.find(entry);
  if (found != loaded_.end()) return found->second;
  cudaFuncAttributes attributes{};
  CheckCuda(cudaFuncGetAttributes(&attributes, entry), "cudaFuncGetAttributes(%s)", NameOf(entry));
  if (shared_bytes > kPlainSharedBytes) {
    CheckCuda(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)),
              "cudaFuncSetAttribute(%s, cudaFuncAttributeMaxDynamicSharedMemorySize, %zu)", NameOf(entry),
              shared_bytes);
  }
  return loaded_[entry] = {.waits_for_prior_grid = attributes.ptxVersion >= kPtxWithWait, .is_launched = false};
}

// With overlaps_launches, on sm_90 and newer, a kernel may be set up while the previous grid ends. Its blocks then wait
// on multiprocessors that have room (programmatic stream serialization). This is correct for these reasons:
//  - Every kernel of this project calls WaitForPriorGrid() before it touches global memory. The emulated device ends
//    the process when a kernel does not. The call waits until the previous grid has ended and its writes are visible.
//    This holds whether that grid is ours or belongs to cuBLAS, and whenever it has called TriggerNextGrid().
//  - The previous grid has waited for its own predecessor in the same way, or was launched without the attribute.
//    Therefore the whole stream up to that point has ended.
//  - A copy is not a grid: a kernel after it starts when the copy is done. Work that is launched without the attribute
//    starts when everything before it is done, as always.
//  - Code for sm_80 contains no wait, not even when the driver translates it for a newer device. Such kernels are
//    launched without the attribute.
//  - The compiler could move LoadReadOnly() before the wait. kernels_cuda_compiled_test checks that the machine code
//    has no access to global memory there.
void CudaDevice::LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args,
                              size_t /*args_bytes*/, int num_blocks) {
  MakeCurrent();
  LoadedKernel& kernel = Load(entry, shared_bytes);
  kernel.is_launched = true;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(num_blocks);
  config.blockDim = dim3(num_threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream_;
  config.attrs = &overlap;
  config.numAttrs = options_.overlaps_launches && kernel.waits_for_prior_grid ? 1 : 0;
  void* parameters[] = {const_cast<void*>(args)};
  const cudaError_t error = cudaLaunchKernelExC(&config, entry, parameters);
  if (error == cudaSuccess) return;
  CheckCuda(error, "launch of %s, %d blocks of %d threads and %zu bytes of shared memory,", NameOf(entry), num_blocks,
            num_threads, shared_bytes);
}

void CudaDevice::Multiply(const MatmulArgs& args) {
  MakeCurrent();
  matmul_->Multiply(args, is_recording_);
}

bool CudaDevice::MultiplyInt8(const Int8MatmulArgs& args) {
  MakeCurrent();
  return matmul_->MultiplyInt8(args, is_recording_);
}

bool CudaDevice::MultiplyFp8(const Fp8MatmulArgs& args) {
  MakeCurrent();
  return matmul_->MultiplyFp8(args, is_recording_);
}

BackendStatus CudaDevice::CheckGroups() {
  std::string why_not;
  return nccl::Open(nccl::kLibraryName, &why_not) == nullptr ? BackendStatus::Error(why_not) : BackendStatus::Ok();
}

BackendStatus CudaDevice::JoinGroup(Collective* group) {
  MakeCurrent();
  std::string why_not;
  const nccl::Library* const library = nccl::Open(nccl::kLibraryName, &why_not);
  if (library != nullptr) group_ = NcclGroup::Join(library, group, stream_, &why_not);
  return group_ == nullptr ? BackendStatus::Error(why_not) : BackendStatus::Ok();
}

void CudaDevice::LeaveGroup() {
  Synchronize();
  group_.reset();
}

void CudaDevice::AllGather(const void* from, size_t bytes, void* to) {
  MakeCurrent();
  group_->AllGather(from, bytes, to);
}

void CudaDevice::AllReduce(const float* part, size_t count, float* sums) {
  MakeCurrent();
  group_->AllReduce(part, count, sums);
}

void CudaDevice::BeginRecording() {
  MakeCurrent();
  CheckCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  is_recording_ = true;
}

std::unique_ptr<Graph> CudaDevice::EndRecording() {
  MakeCurrent();
  is_recording_ = false;
  cudaGraph_t recorded = nullptr;
  CheckCuda(cudaStreamEndCapture(stream_, &recorded), "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  CheckCuda(cudaGraphDestroy(recorded), "cudaGraphDestroy");
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // Clears the error.
    return nullptr;
  }
  CheckCuda(error, "cudaGraphInstantiate");
  return std::make_unique<CudaGraph>(graph);
}

void CudaDevice::Replay(const Graph& graph) {
  MakeCurrent();
  CheckCuda(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).get(), stream_), "cudaGraphLaunch");
}

}  // namespace quire::cuda
