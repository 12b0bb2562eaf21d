# SPDX-License-Identifier: Apache-2.0
"""Installs the build, moves the installed tree, and lets projects that know only this tree use it: one with CMake, one
with pkg-config. The argument is the build folder."""

import contextlib
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import installed_tree
from installed_tree import PROMPT, ROOT, run

STRANGER = pathlib.Path(__file__).resolve().parent / "stranger"
PROGRAMS = ["quire", "quire-download", "quire-manager", "quire-openai", "quire-quantize", "quire-worker", "quirectl"]
CONFIGURATION = {f"etc/quire/{name}.yaml" for name in ("manager", "openai", "worker")}


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        installed_tree.install(BUILD, cls.folder / "first", "runtime", "client-dev")
        cls.prefix = cls.folder / "moved"
        (cls.folder / "first").rename(cls.prefix)
        cls.endpoint, cls.story = installed_tree.serve(cls.stack, cls.prefix, cls.folder)

    def test_a_project_with_cmake_uses_the_package(self):
        build = self.folder / "cmake"
        run("cmake", "-G", "Ninja", "-S", STRANGER, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.assertEqual(run(build / "tell", self.endpoint, PROMPT), self.story)

    def test_a_project_with_pkg_config_uses_the_package(self):
        environment = os.environ | {"PKG_CONFIG_PATH": f"{self.prefix}/lib/pkgconfig"}
        found = run("pkg-config", "--cflags", "--libs", "quire-client", env=environment).split()
        self.assertIn(f"-I{self.prefix}/lib/pkgconfig/../../include", found)
        program = self.folder / "tell"
        run("c++", "-std=c++20", STRANGER / "teller.cc", STRANGER / "main.cc", *found, "-o", program)
        self.assertEqual(run(program, self.endpoint, PROMPT), self.story)
        version = run("pkg-config", "--modversion", "quire-client", env=environment).strip()
        self.assertEqual(run(self.prefix / "bin/quirectl", "--version").split(), ["quirectl", version])

    def test_the_components_are_apart(self):
        for component, has_programs in (("runtime", True), ("client-dev", False)):
            with self.subTest(component):
                tree = self.folder / component
                installed_tree.install(BUILD, "/usr", component, destination=tree)
                files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
                elsewhere = {name for name in files if not name.startswith("usr/")}
                self.assertEqual(elsewhere, CONFIGURATION if has_programs else set())
                programs = sorted(pathlib.Path(name).name for name in files if name.startswith("usr/bin/"))
                self.assertEqual(programs, PROGRAMS if has_programs else [])
                self.assertEqual("usr/include/quire/client.h" in files, not has_programs)
                self.assertEqual("usr/share/quire/models/tales/model.safetensors" in files, has_programs)

    def test_one_target_makes_everything_that_is_installed(self):
        commands = run("ninja", "-C", BUILD, "-t", "commands", "quire_installed")
        made = {line.rpartition(": ")[0] for line in run("ninja", "-C", BUILD, "-t", "targets", "all").splitlines()}
        script = (BUILD / "cmake_install.cmake").read_text().split('"gpu_bundle"')[0]
        names = {str(pathlib.Path(path).relative_to(BUILD)) for path in re.findall(rf'"({BUILD}/[^"]+)"', script)}
        self.assertLessEqual({"bin/quire-worker", "libquire_client.a", "public_headers"}, names)
        for name in names:
            # CMake itself writes the files that no rule makes.
            if any(path == name or path.startswith(f"{name}/") for path in made):
                self.assertRegex(commands, rf"([\s=]|{BUILD}/){re.escape(name)}(?![\w-])", f"{name} is not made")

    def test_no_installed_text_names_a_folder_of_this_machine(self):
        for path in self.prefix.rglob("*"):
            if path.suffix in (".cmake", ".pc", ".h", ".proto", ".md"):
                text = path.read_text(encoding="utf-8")
                for folder in (str(ROOT), str(BUILD), str(self.folder)):
                    self.assertNotIn(folder, text, path)

    def test_the_downloader_finds_its_modules_and_leaves_nothing_beside_them(self):
        before = sorted(self.prefix.rglob("*"))
        self.assertIn("usage: quire-download", run(self.prefix / "bin/quire-download", "--help"))
        self.assertEqual(sorted(self.prefix.rglob("*")), before)

    def test_one_command_serves_the_installed_model(self):
        installed_tree.start(self.stack, [self.prefix / "bin/quire", "serve", "--port=0", "--worker.kv-bytes=64MiB",
                                          self.prefix / "share/quire/models/tales"], "(tales answers after)",
                             env=os.environ | {"TMPDIR": str(self.folder)})

    def test_the_quantizer_writes_a_checkpoint_of_the_installed_model(self):
        output = self.folder / "int8"
        run(self.prefix / "bin/quire-quantize", f"--model={self.prefix}/share/quire/models/tales",
            f"--output={output}", "--width=int8")
        self.assertIn('"int-quantized"', (output / "config.json").read_text())

    def test_units_name_the_prefix_and_the_configuration_inside_it(self):
        unit = (self.prefix / "lib/systemd/system/quire-worker.service").read_text()
        first = self.folder / "first"
        self.assertIn(f"\nExecStart={first}/bin/quire-worker --config={first}/etc/quire/worker.yaml\n", unit)
        for name in CONFIGURATION:
            self.assertTrue((self.prefix / name).exists(), name)

    def test_a_configuration_that_was_changed_stays(self):
        installed_tree.install(BUILD, self.folder / "again", "runtime")
        changed = self.folder / "again/etc/quire/worker.yaml"
        changed.write_text("model: mine\n")
        installed_tree.install(BUILD, self.folder / "again", "runtime")
        self.assertEqual(changed.read_text(), "model: mine\n")

    def test_headers_are_in_one_folder_and_include_none_that_is_missing(self):
        self.assertEqual([path.name for path in (self.prefix / "include").iterdir()], ["quire"])
        names = {path.name for path in (self.prefix / "include/quire").glob("*.h")}
        self.assertEqual(names, {
            "call_policy.h", "client.h", "endpoint.h", "generate_batch_stream.h", "generate_streams.h",
            "manager_links.h", "mutex.h", "tls_files.h"})
        for name in names:
            text = (self.prefix / "include/quire" / name).read_text()
            self.assertEqual(text.splitlines()[0], "// SPDX-License-Identifier: Apache-2.0", name)
            self.assertEqual(text.count("SPDX"), 1, name)

    def test_a_header_that_is_not_installed_cannot_be_included(self):
        header = self.folder / "bad.h"
        header.write_text('#include "base/status.h"\n')
        with self.assertRaisesRegex(AssertionError, r"includes\s+base/status.h,\s+which\s+is\s+not\s+installed"):
            run("cmake", f"-DSOURCE={header}", f"-DOUT={self.folder}/out.h", "-DHEADERS=base/mutex.h", "-P",
                ROOT / "cmake/public_headers.cmake")

    def test_another_minor_version_is_refused(self):
        project = self.folder / "newer"
        shutil.copytree(STRANGER, project)
        lists = project / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("find_package(Quire 0.1", "find_package(Quire 0.0"))
        with self.assertRaisesRegex(AssertionError, 'requested version "0.0"'):
            run("cmake", "-G", "Ninja", "-S", project, "-B", self.folder / "refused",
                f"-DCMAKE_PREFIX_PATH={self.prefix}")


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
