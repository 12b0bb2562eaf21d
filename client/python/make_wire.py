#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes two files of the Python package from the protos: wire.desc, which describes the messages and services, and
v1.pyi, which tells type checkers what quire.v1 has.

  make_wire.py PROTOS FOLDER    PROTOS is the folder proto/ of the repository
"""

import pathlib
import shutil
import subprocess
import sys

from google.protobuf import descriptor_pb2

FILES = ["quire/v1/inference.proto", "quire/v1/admin.proto", "google/rpc/status.proto",
         "google/rpc/error_details.proto", "grpc/health/v1/health.proto"]
Field = descriptor_pb2.FieldDescriptorProto
PYTHON_TYPES = {
    Field.TYPE_BOOL: "bool", Field.TYPE_BYTES: "bytes", Field.TYPE_STRING: "str",
    Field.TYPE_DOUBLE: "float", Field.TYPE_FLOAT: "float",
}
HEADER = '''"""The messages of quire.v1. proto/quire/v1 explains each field."""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message

'''


def find_protos(here: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the protos: in the repository, or beside this file in a copy of the package."""
    for folder in (here / "proto", here.parents[1] / "proto"):
        if (folder / FILES[0]).exists():
            return folder
    raise FileNotFoundError(f"The protos are missing: there is neither {here}/proto nor {here.parents[1]}/proto.")


def compile_protos(protos: pathlib.Path, out: pathlib.Path) -> None:
    arguments = ["-I", str(protos), "--include_imports", f"--descriptor_set_out={out}", *FILES]
    try:
        from grpc_tools import protoc  # The compiler of protobuf as a package of PyPI.
    except ImportError:
        program = shutil.which("protoc")
        if program is None:
            sys.exit("make_wire: there is no protoc; install grpcio-tools, or the Debian package protobuf-compiler")
        subprocess.run([program, *arguments], check=True)
        return
    well_known = pathlib.Path(protoc.__file__).parent / "_proto"
    if protoc.main(["protoc", *arguments[:2], "-I", str(well_known), *arguments[2:]]) != 0:
        sys.exit("make_wire: protoc has failed")


def element_type(field) -> str:
    """The type of one value of a field. Messages and enums of other packages have no stub."""
    if field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM):
        prefix = ".quire.v1."
        return field.type_name[len(prefix):] if field.type_name.startswith(prefix) else "Any"
    return PYTHON_TYPES.get(field.type, "int")


def map_entry(field, message):
    for nested in message.nested_type:
        if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
            return nested
    return None


def stub_of_message(message, lines, indent="") -> None:
    lines.append(f"{indent}class {message.name}(Message):")
    inside = indent + "    "
    for enum in message.enum_type:
        stub_of_enum(enum, lines, inside)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            stub_of_message(nested, lines, inside)
    arguments = []
    for field in message.field:
        kind, entry = element_type(field), map_entry(field, message)
        given = f"{kind} | Mapping[str, Any]" if field.type == Field.TYPE_MESSAGE else kind
        if field.type == Field.TYPE_ENUM:
            given = f"{kind} | int | str"
        if entry is not None:
            key, value = (element_type(f) for f in entry.field)
            kind, given = f"MutableMapping[{key}, {value}]", f"Mapping[{key}, {value}]"
        elif field.label == Field.LABEL_REPEATED:
            container = "Composite" if field.type == Field.TYPE_MESSAGE else "Scalar"
            kind, given = f"Repeated{container}FieldContainer[{kind}]", f"Iterable[{given}]"
        lines.append(f"{inside}{field.name}: {kind}")
        arguments.append(f"{field.name}: {given} | None = ...")
    comma = ", " if arguments else ""
    lines.append(f"{inside}def __init__(self{comma}{'*, ' if arguments else ''}{', '.join(arguments)}) -> None: ...")


def stub_of_enum(enum, lines, indent="") -> None:
    # A value of an enum is an int. Its type and the object with its names have the name of the enum.
    lines.append(f"{indent}class {enum.name}(int):")
    for function in ("Name(number: int) -> str", "Value(name: str) -> int"):
        lines += [f"{indent}    @staticmethod", f"{indent}    def {function}: ..."]
    lines += [f"{indent}{value.name}: {enum.name}" for value in enum.value]


def stub(files) -> str:
    lines = []
    for file in files.file:
        if file.package == "quire.v1":
            for enum in file.enum_type:
                stub_of_enum(enum, lines)
            for message in file.message_type:
                stub_of_message(message, lines)
    return HEADER + "\n".join(lines) + "\n"


def make(protos: pathlib.Path, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    described = folder / "wire.desc"
    compile_protos(protos, described)
    files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes())
    (folder / "v1.pyi").write_text(stub(files), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    make(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
