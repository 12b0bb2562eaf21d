# SPDX-License-Identifier: Apache-2.0
# tools/gpu_check and tools/make_gpu_bundle source this file. It says what a run of the check has checked, and on what
# machine, so that a report can be understood by somebody else.

# Prints the version and the commit of the checkout in this folder.
version_of_checkout() {
  local version commit changes=
  version=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' base/version.h)
  commit=$(git rev-parse HEAD 2>/dev/null) || commit=unknown
  [ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || changes=" with changes"
  echo "Quire $version, commit $commit$changes"
}

# Prints a line for each GPU. The driver's own files answer where nvidia-smi is missing.
gpus_of_machine() {
  local lines
  lines=$(timeout -k 5 20 nvidia-smi --format=csv,noheader \
    --query-gpu=name,compute_cap,driver_version,memory.total,clocks.max.sm,clocks.max.memory 2>/dev/null) &&
    [ -n "$lines" ] || lines=$(
    sed -n 's/^Model:[[:space:]]*//p' /proc/driver/nvidia/gpus/*/information 2>/dev/null
    sed -n 's/^NVRM version: */driver /p' /proc/driver/nvidia/version 2>/dev/null
  )
  printf '%s\n' "${lines:-unknown: nvidia-smi cannot be run, and there is no driver in /proc}" | sed 's/^/GPU /'
  [ -z "${CUDA_VISIBLE_DEVICES+set}" ] || echo "CUDA_VISIBLE_DEVICES is '$CUDA_VISIBLE_DEVICES'"
}

# Prints which cuBLAS the program $1 loads. The version is in the name of the file that a toolkit's link leads to, or in
# the name of the folder that a Python package has beside its own.
cublas_of() {
  local path file version package
  path=$(ldd "$1" 2>/dev/null | sed -n 's/^[[:space:]]*libcublasLt[^ ]* => \(\/[^ ]*\).*/\1/p')
  if [ -z "$path" ]; then
    echo "cuBLAS was not found"
    return
  fi
  file=$(realpath "$path")
  version=$(sed -n 's/.*\.so\.\([0-9]*\.[0-9].*\)/\1/p' <<<"$file")
  for package in "${path%/nvidia/*}"/nvidia_cublas*.dist-info; do
    [ -n "$version" ] || [ ! -d "$package" ] || version=$(sed 's/.*-\(.*\)\.dist-info/\1/' <<<"$package")
  done
  echo "cuBLAS ${version:-of unknown version} of $file"
}

machine_line() {
  local cpu
  cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
  echo "machine ${cpu:-$(uname -m)}, $(nproc) processors, $(($(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' \
    /proc/meminfo) >> 20)) GiB, $(uname -sr)"
}

# Begins the report of a run with the arguments $3.... $1 is the version, $2 a program that loads cuBLAS, or "" if there
# is none yet.
say_run() {
  local version=$1 program=$2
  shift 2
  [ ! -s "$results/report.txt" ] || say
  say "== run of $(date -u '+%Y-%m-%d %H:%M:%S') UTC: gpu_check $*"
  say "$version"
  say "$(gpus_of_machine)"
  [ -z "$program" ] || say "$(cublas_of "$program")"
  say "$(machine_line)"
}
