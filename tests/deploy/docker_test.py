# SPDX-License-Identifier: Apache-2.0
"""Checks the Dockerfiles as far as this is possible without Docker."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = SOURCE / "deploy/docker"
PROGRAMS = ["quire-manager", "quire-worker", "quire-openai", "quirectl"]
RANKS = "libquire_ucx.so"
WITH_PROGRAMS = {"cpu.Dockerfile", "cuda.Dockerfile"}
# Every image of Debian 12 has its essential packages and their dependencies.
IN_EVERY_IMAGE = {"libc6", "libgcc-s1", "libstdc++6", "libzstd1", "zlib1g"}


def stages(path):
    """Returns the instructions of each stage, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    parts = re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]
    return [[line.split(None, 1) for line in part.splitlines() if line.strip()] for part in parts]


def packages(stage):
    found = set()
    for instruction, rest in stage:
        if instruction == "RUN":
            for names in re.findall(r"apt-get install -y --no-install-recommends ([^&]*)", rest):
                found |= set(names.split())
    return found - {"ca-certificates"}


def of_cuda(names):
    return {name for name in names if "${CUDA}" in name}


def build_packages():
    text = (SOURCE / "tools/build.sh").read_text()
    return set(re.search(r"BUILD_PACKAGES=\(([^)]*)\)", text)[1].split())


def is_ignored(path):
    """Returns whether .dockerignore keeps a path out of the context."""
    lines = [line.strip() for line in (SOURCE / ".dockerignore").read_text().splitlines()]
    allowed = [line[1:] for line in lines if line.startswith("!")]
    return not any(path == entry or path.startswith(entry + "/") for entry in allowed)


def owners(programs):
    """Returns the packages whose libraries the programs link. Their dependencies come with them."""
    paths = set()
    for program in programs:
        dynamic = subprocess.run(["objdump", "-p", program], check=True, capture_output=True, text=True).stdout
        needed = set(re.findall(r"NEEDED +(\S+)", dynamic))
        loaded = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        for name, path in re.findall(r"(\S+) => (\S+)", loaded):
            if name in needed:
                paths |= {path, "/usr" + path}  # /lib is a link to /usr/lib, and dpkg knows only one of them.
    known = subprocess.run(["dpkg", "-S", *sorted(paths)], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"^([^:]+):", known, re.MULTILINE))


class DockerTest(unittest.TestCase):
    def setUp(self):
        self.files = {path.name: stages(path) for path in sorted(FOLDER.glob("*.Dockerfile"))}
        self.assertEqual(set(self.files), WITH_PROGRAMS | {"download.Dockerfile"})

    def programs(self):
        """Returns the names and the stages of the images with compiled programs."""
        return [(name, parts) for name, parts in self.files.items() if name in WITH_PROGRAMS]

    def test_the_build_has_the_packages_that_every_build_has(self):
        for name, parts in self.programs():
            with self.subTest(name):
                names = packages(next(stage for stage in parts if stage[0][1].endswith("AS build")))
                self.assertEqual(names - of_cuda(names), build_packages())

    def test_the_cmake_of_debian_12_does_not_look_for_a_library_that_the_cuda_packages_lack(self):
        # From 3.25 on, FindCUDAToolkit of CMake 3.25.1 fails if there is no nvToolsExt.
        minimum = re.search(r"cmake_minimum_required\(VERSION (\d+)\.(\d+)", (SOURCE / "CMakeLists.txt").read_text())
        self.assertLess((int(minimum[1]), int(minimum[2])), (3, 25))

    def test_the_last_stage_has_what_the_programs_load_and_no_more(self):
        if not shutil.which("dpkg") or "bookworm" not in pathlib.Path("/etc/os-release").read_text():
            self.skipTest("not Debian 12")
        if not (BINARIES / RANKS).exists():
            self.skipTest("the programs were built without UCX")
        needed = owners([BINARIES / name for name in [*PROGRAMS, RANKS]]) - IN_EVERY_IMAGE
        for name, parts in self.programs():
            with self.subTest(name):
                names = packages(parts[-1])
                self.assertEqual(names - of_cuda(names), needed)

    def test_the_image_for_downloads_has_python_and_every_module(self):
        (stage,) = self.files["download.Dockerfile"]
        self.assertEqual(packages(stage), {"python3"})
        # Without it there is no TLS.
        self.assertTrue(any("ca-certificates" in rest.split() for instruction, rest in stage if instruction == "RUN"))
        copied = [word for instruction, rest in stage if instruction == "COPY" for word in rest.split()]
        modules = {f"download/{path.name}" for path in (SOURCE / "download").glob("*.py")}
        self.assertEqual({word for word in copied if word.endswith(".py")}, modules)
        # The program looks for its modules in the same prefix.
        self.assertLessEqual({"/opt/quire/bin/", "/opt/quire/share/quire/download/"}, set(copied))

    def test_the_last_stage_runs_as_nobody_in_particular(self):
        for name, parts in self.files.items():
            with self.subTest(name):
                users = [rest for instruction, rest in parts[-1] if instruction == "USER"]
                self.assertEqual(users, ["10001:10001"])
                self.assertNotIn("RUN", [i for i, _ in parts[-1][[i for i, _ in parts[-1]].index("USER"):]])

    def test_every_target_and_every_copied_file_exists(self):
        paths = [*SOURCE.glob("*/**/CMakeLists.txt"), SOURCE / "cmake/install.cmake"]
        targets = " ".join(path.read_text() for path in paths)
        for name, parts in self.files.items():
            build = next((stage for stage in parts if stage[0][1].endswith("AS build")), [])
            for _, rest in build:
                for target in re.findall(r"ninja -C \S+ ([a-z_ ]+)", rest):
                    for word in target.split():
                        found = re.search(rf"(NAME |add_library\(|add_custom_target\(){word}\b", targets)
                        self.assertTrue(found, f"{name} builds the target {word}, which CMake does not define")
            for instruction, rest in parts[-1]:
                if instruction == "COPY" and not rest.startswith("--from"):
                    for source in rest.split()[:-1]:
                        self.assertTrue((SOURCE / source).exists(), source)
                        self.assertFalse(is_ignored(source), source)

    def test_the_build_gets_every_folder_that_cmake_enters_and_no_other_large_thing(self):
        text = (SOURCE / "CMakeLists.txt").read_text()
        for folder in re.findall(r"add_subdirectory\((\w+)\)", text):
            self.assertFalse(is_ignored(folder), folder)
        for path in ("CHANGELOG.md", "LICENSE", "README.md", "deploy/debian/copyright", "deploy/systemd/install.cmake"):
            self.assertFalse(is_ignored(path), path)  # The component `runtime` has them.
        for path in (".git", "build", "docs", "deploy", "models/large"):
            self.assertTrue(is_ignored(path), path)


if __name__ == "__main__":
    BINARIES = pathlib.Path(sys.argv.pop(1))
    unittest.main()
