# SPDX-License-Identifier: Apache-2.0
"""Builds paged_attention from a checkout: pip install ./kernels/python. Needs a C++20 compiler and Python's headers.

With nvcc on the PATH or under CUDA_HOME it takes arrays on GPUs too, unless QUIRE_CUDA=0. MAX_JOBS limits the compilers
that run at once.
"""

import os
import platform
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parents[2]

# The flags of cmake/library.cmake.
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off"]

# The files of kernels/CMakeLists.txt with their flags, which python_setup_test compares.
SOURCES = {
    "attention_plan.cc": [],
    "paged_attention.cc": [],
    "shared_prefix.cc": [],
    "cpu/attention.cc": [],
    "cpu/isa/cpu_features.cc": [],
    "cpu/table/blocks_generic.cc": [],
    "cpu/table/kernel_table.cc": [],
    "cpu/table/kernels_generic.cc": [],
    "cpu/memory.cc": [],
    "cpu/paged_attention.cc": [],
    "cpu/thread_pool.cc": [],
    "python/borrowed_tensor.cc": [],
    "python/lent_array.cc": [],
    "python/module.cc": [],
}
if platform.machine() in ("x86_64", "AMD64"):
    avx2 = ["-mavx2", "-mfma", "-mf16c"]
    avx512 = avx2 + ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]
    SOURCES["cpu/isa/cpu_features.cc"] = SOURCES["cpu/table/kernel_table.cc"] = ["-DQUIRE_X86_KERNELS"]
    for kernels in ("blocks", "kernels"):
        SOURCES[f"cpu/table/{kernels}_avx2.cc"] = avx2
        SOURCES[f"cpu/table/{kernels}_avx512.cc"] = avx512
        SOURCES[f"cpu/table/{kernels}_avx512_vnni.cc"] = avx512 + ["-mavx512vnni"]
    SOURCES["cpu/table/kernels_avx512_bf16.cc"] = avx512 + ["-mavx512bf16"]
    SOURCES["cpu/table/kernels_amx.cc"] = avx512 + ["-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mamx-int8"]


def find_nvcc():
    if os.environ.get("QUIRE_CUDA") == "0":
        return None
    home = os.environ.get("CUDA_HOME")
    return shutil.which("nvcc", path=os.path.join(home, "bin") if home else None)


# The flags of kernels/cuda/CMakeLists.txt.
NVCC = find_nvcc()
NVCC_FLAGS = ["-std=c++17", "-O3", "-DNDEBUG", "-Xcompiler=-fPIC", "-Xcompiler=-fvisibility=hidden"]
NVCC_FLAGS += ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[compute_90,sm_90]"]
if NVCC:
    CUDA = Path(NVCC).resolve().parents[1]
    SOURCES["cuda/paged_attention.cc"] = SOURCES["python/gpu_cuda.cc"] = [f"-I{CUDA / 'include'}"]
    for kernels in ("compiled_kernels", "kernels_bf16_from_128", "kernels_bf16_to_96", "kernels_f16_from_128",
                    "kernels_f16_to_96", "kernels_repack_blocks", "kernels_sampling"):
        SOURCES[f"cuda/{kernels}.cu"] = []
    LIBRARIES = [f"-L{CUDA / 'lib64'}", "-lcudart_static", "-lrt", "-ldl"]
else:
    SOURCES["python/gpu_none.cc"] = []
    LIBRARIES = []


def run(command):
    print(" ".join(map(str, command)), flush=True)
    subprocess.run(command, check=True)


class BuildKernels(build_ext):
    """Compiles every file with its own flags, several files at the same time."""

    def build_extension(self, extension):
        compiler = os.environ.get("CXX", "c++").split()
        objects = Path(self.build_temp) / "kernels"
        library = Path(self.get_ext_fullpath(extension.name))
        library.parent.mkdir(parents=True, exist_ok=True)

        def compile_file(item):
            source, flags = item
            target = (objects / source).with_suffix(".o")
            target.parent.mkdir(parents=True, exist_ok=True)
            includes = [f"-I{ROOT}", f"-I{sysconfig.get_paths()['include']}"]
            define = f"-DPy_LIMITED_API={extension.define_macros[0][1]}"
            begin = [NVCC, *NVCC_FLAGS] if source.endswith(".cu") else [*compiler, *FLAGS]
            run([*begin, *flags, define, *includes, "-c", ROOT / "kernels" / source, "-o", target])
            return target

        jobs = int(os.environ.get("MAX_JOBS", 0)) or os.cpu_count()
        with ThreadPoolExecutor(jobs) as pool:
            targets = list(pool.map(compile_file, SOURCES.items()))
        run([*compiler, "-shared", "-pthread", *targets, *LIBRARIES, "-o", library])


setup(
    name="paged_attention",
    version="0.1",
    description="Attention over a paged K/V cache, as a function over DLPack",
    python_requires=">=3.8",
    packages=["paged_attention"],
    package_dir={"": "src"},
    ext_modules=[
        Extension(
            "paged_attention._kernels",
            sources=[],
            py_limited_api=True,
            define_macros=[("Py_LIMITED_API", "0x03080000")],
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp38"}},
)
