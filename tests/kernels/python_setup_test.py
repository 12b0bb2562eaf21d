# SPDX-License-Identifier: Apache-2.0
"""Compares the sources and flags of kernels/python/setup.py with those of CMake. The argument is a file that CMake has
written, with a line NAME=FLAG;FLAG for each source that may have flags of its own."""

import pathlib
import runpy
import sys
import types
import unittest

SETUP = pathlib.Path(__file__).resolve().parents[2] / "kernels/python/setup.py"


def sources_of_setup():
    """Returns {source: flags} without a build."""
    setuptools, build_ext = types.ModuleType("setuptools"), types.ModuleType("setuptools.command.build_ext")
    setuptools.Extension = setuptools.setup = lambda *_, **__: None
    build_ext.build_ext = object
    sys.modules.update({"setuptools": setuptools, "setuptools.command": types.ModuleType("setuptools.command"),
                        "setuptools.command.build_ext": build_ext})
    return runpy.run_path(str(SETUP))["SOURCES"]


class PythonSetupTest(unittest.TestCase):
    def test_the_kernels_have_the_flags_of_cmake(self):
        setup = sources_of_setup()
        lines = FLAGS_OF_CMAKE.read_text().splitlines()
        self.assertGreater(len(lines), 3)
        for line in lines:
            name, _, flags = line.partition("=")
            self.assertIn(name, setup)
            machine = [flag for flag in flags.split(";") if flag and not flag.startswith("-W")]
            self.assertEqual(sorted(setup[name]), sorted(machine), name)

    def test_all_sources_are_there(self):
        for name in sources_of_setup():
            self.assertTrue((SETUP.parents[1] / name).is_file(), name)


if __name__ == "__main__":
    FLAGS_OF_CMAKE = pathlib.Path(sys.argv.pop(1))
    unittest.main()
