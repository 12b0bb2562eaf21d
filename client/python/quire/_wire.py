# SPDX-License-Identifier: Apache-2.0
"""The messages and services of the wire, from wire.desc.

They are in a descriptor pool of their own. So this package works with every version of protobuf, and beside other
packages that bring the protos of google.rpc or of gRPC's health service.
"""

from __future__ import annotations

import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_FILES = descriptor_pb2.FileDescriptorSet.FromString((pathlib.Path(__file__).parent / "wire.desc").read_bytes())
_POOL = descriptor_pool.DescriptorPool()
for _file in _FILES.file:
    _POOL.AddSerializedFile(_file.SerializeToString())

if hasattr(message_factory, "GetMessageClass"):
    _class_of = message_factory.GetMessageClass
else:  # protobuf before 4.22
    _class_of = getattr(message_factory.MessageFactory(_POOL), "GetPrototype")


def message(full_name: str) -> Any:
    """Returns the class of a message."""
    return _class_of(_POOL.FindMessageTypeByName(full_name))


def names_of(package: str) -> dict[str, Any]:
    """Returns the messages, the enums and the values of the enums of a package by their names."""
    names: dict[str, Any] = {}
    for file in _FILES.file:
        if file.package != package:
            continue
        for declared in file.message_type:
            names[declared.name] = message(f"{package}.{declared.name}")
        for kind in file.enum_type:
            enum = EnumTypeWrapper(_POOL.FindEnumTypeByName(f"{package}.{kind.name}"))
            names[kind.name] = enum
            names.update(enum.items())
    return names


class Stub:
    """The methods of a service on a channel, which may be one of grpc or of grpc.aio."""

    def __init__(self, channel: Any, service: str):
        package, _, name = service.rpartition(".")
        for file in _FILES.file:
            for declared in file.service:
                if file.package == package and declared.name == name:
                    for method in declared.method:
                        setattr(self, method.name, _method(channel, service, method))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name}")


def _method(channel: Any, service: str, method: Any) -> Any:
    made = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    return made(
        f"/{service}/{method.name}",
        request_serializer=message(method.input_type[1:]).SerializeToString,
        response_deserializer=message(method.output_type[1:]).FromString,
    )
