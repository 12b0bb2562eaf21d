# SPDX-License-Identifier: Apache-2.0
# tools/check_gpu_path and tools/plant_gpu_faults source this file. It builds the tests of the code for NVIDIA GPUs for
# a virtual GPU, and knows how the check runs them.

# The parts of the check that are one program of tests, with the variables of each. A part "kernels..." runs gpu_test, a
# part "worker..." runs worker_executor_test.
declare -A PARTS=(
  [kernels_sm_90]=
  [kernels_sm_90_exact]="QUIRE_GPU_EXACT=1"
  [kernels_sm_90_overlap]="QUIRE_GPU_OVERLAP=1 VIRTUAL_GPU_STREAMS=deferred"
  [kernels_sm_80]="VIRTUAL_GPU_SM=80 VIRTUAL_GPU_STREAMS=random VIRTUAL_GPU_SEED=3"
  [worker]="QUIRE_TEST_DEVICE=gpu"
  [worker_deferred]="QUIRE_TEST_DEVICE=gpu VIRTUAL_GPU_STREAMS=deferred"
)

# Builds gpu_test, the worker's CUDA library and the targets that follow folder $1 of the virtual GPU, and sets the
# variables of a run. `virtual_gpu` becomes that folder, `dir` that of the build, and `logs` an empty folder named $2.
build_for_virtual_gpu() {
  virtual_gpu=$(cd "$1" && pwd)
  dir=$PWD/build/virtual_gpu
  logs=$dir/$2
  shift 2
  rm -rf "$logs"
  mkdir -p "$logs"
  # The tests of the kernels, started once without running any, so that they are built.
  local start=$SECONDS
  # The makefile of the virtual GPU has the flags that it needs in CXXFLAGS.
  CMAKE_FLAGS="-DQUIRE_GRPC=OFF -DCMAKE_UNITY_BUILD=ON" \
    env -u CXXFLAGS "$virtual_gpu/run" . "$dir" gpu_test --gtest_list_tests >/dev/null
  {
    cmake "$dir/quire" -DQUIRE_VIRTUAL_GPU="$virtual_gpu" -DQUIRE_VIRTUAL_GPU_LIBRARY="$dir/ptxvm/libptxvm.a" &&
      ninja -C "$dir/quire" quire_cuda "$@"
  } >"$logs/build.log" 2>&1 || { tail -n 30 "$logs/build.log" >&2; exit 1; }
  echo "built in $((SECONDS - start)) s"

  export LIBVGPU=$dir/runtime/libvgpu.so
  # Problems that the virtual GPU reports fail a run. A process that ends by _Exit leaves its report in a file.
  export VIRTUAL_GPU_STRICT=1 QUIRE_GPU_REQUIRED=1
  export QUIRE_TEST_GPU_LIBRARY=$dir/quire/bin/libquire_cuda.so QUIRE_WORKER_GPU_LIBRARY=$dir/quire/bin/libquire_cuda.so
  # A step takes a million times longer than on a GPU.
  export QUIRE_WORKER_GPU_TIMEOUT=1h QUIRE_MANAGER_STEP_TIMEOUT=1h
}

# Runs a command in the background as soon as a core is free.
in_background() {
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
  "$@" &
}
