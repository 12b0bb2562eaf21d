# SPDX-License-Identifier: Apache-2.0
"""Puts what is made from the protos into the package: wire.desc and v1.pyi. All else is in pyproject.toml."""

import pathlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import make_wire  # noqa: E402  (it is beside this file)


class BuildWithWire(build_py):
    def run(self):
        super().run()
        make_wire.make(make_wire.find_protos(HERE), pathlib.Path(self.build_lib) / "quire")


setup(cmdclass={"build_py": BuildWithWire})
