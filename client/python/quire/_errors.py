# SPDX-License-Identifier: Apache-2.0
"""What a call can end with."""

from __future__ import annotations

from typing import Any

import grpc

from quire import _wire
from quire._argument_names import with_argument_names

_Status = _wire.message("google.rpc.Status")
_DETAILS = {name: _wire.message(f"google.rpc.{name}") for name in ("BadRequest", "ErrorInfo", "RetryInfo")}
_CUT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
# What gRPC says of a message or of headers of the call itself, which would be too large again. Headers of another call
# may end all calls of the connection.
_TOO_LARGE = ("larger than max", "to-be-sent")
# The codes of errors that may be about a field of the request.
_OF_ARGUMENTS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
# How gRPC says that there is no connection, and no address to connect to. Newer versions have the last text.
_UNREACHED = ("failed to connect", "DNS resolution failed", "errors resolving")


class _Failure:
    """What a client finds wrong itself, in the form of an error of gRPC."""

    def __init__(self, code: grpc.StatusCode, message: str):
        self._code, self._message = code, message

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._message

    def trailing_metadata(self) -> tuple[()]:
        return ()


class Error(Exception):
    """A call has failed. The text of the error has its code and its message.

    code         grpc.StatusCode
    message      what the manager says, with the names of the arguments, or what gRPC says when the manager could not be
                 reached; also that what answers at the endpoint is no manager
    reason       "QUEUE_FULL", "NO_WORKER", ... (proto/quire/v1/inference.proto), or "" from gRPC
    metadata     further facts of the reason, by name
    fields       what is wrong with each field of the request, by its path
    retry_after  after how many seconds the call may be tried again, or None
    is_from_manager  whether the manager has said so; otherwise the connection was lost or there was none
    """

    def __init__(self, error: Any, endpoint: str = "", *, is_of_prompt: bool = False):
        """`is_of_prompt`: the call was one of generate, chat, complete or stream."""
        self.code: grpc.StatusCode = error.code()
        self.message: str = error.details() or ""
        self.reason = ""
        self.metadata: dict[str, str] = {}
        self.fields: dict[str, str] = {}
        self.retry_after: float | None = None
        encoded = [value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"]
        self.is_from_manager = bool(encoded)
        if endpoint and not self.is_from_manager:
            self.message = self._message_about(endpoint)
        if self.is_from_manager and self.code in _OF_ARGUMENTS:
            self.message = with_argument_names(self.message, is_of_prompt=is_of_prompt)
        super().__init__(f"{self.code.name}: {self.message}")
        for value in encoded:
            for detail in _Status.FromString(value).details:
                self._read(detail.type_url.rpartition(".")[2], detail.value)

    @classmethod
    def internal(cls, message: str) -> Error:
        """The manager has sent what it must not send."""
        return cls(_Failure(grpc.StatusCode.INTERNAL, message))

    def _message_about(self, endpoint: str) -> str:
        """The message, with what gRPC does not say about servers that are no managers."""
        if self.code == grpc.StatusCode.UNIMPLEMENTED and not self.message:
            return f"what answers at {endpoint} does not have this method; is it a worker, and not a manager?"
        if "Trying to connect an http1.x server" in self.message:
            return (f"an HTTP server answers at {endpoint}, such as quire-openai or a metrics port; the manager's port "
                    f"is 50051 by default: {self.message}")
        return self.message

    def _read(self, name: str, value: bytes) -> None:
        if name not in _DETAILS:
            return
        detail = _DETAILS[name].FromString(value)
        if name == "ErrorInfo":
            self.reason, self.metadata = detail.reason, dict(detail.metadata)
        elif name == "BadRequest":
            self.fields = {violation.field: violation.description for violation in detail.field_violations}
        else:
            self.retry_after = detail.retry_delay.seconds + detail.retry_delay.nanos / 1e9

    def is_restoring(self) -> bool:
        """Whether the manager has just started and may still find the request on a worker."""
        return self.reason == "RESTORING"

    def is_cut(self) -> bool:
        """Whether the call has ended and another one may get on: gRPC or a proxy has ended it, or the manager is not
        ready to answer. The manager's own errors have details, which gRPC's have not."""
        if self.code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return not self.is_from_manager and not any(text in self.message for text in _TOO_LARGE)
        return self.code in _CUT and (not self.is_from_manager or self.is_restoring())

    def is_not_leading(self) -> bool:
        """Whether another manager leads or will lead soon: this one stands by, or stops and takes no more requests."""
        return self.code == grpc.StatusCode.UNAVAILABLE and self.reason in ("NOT_LEADER", "DRAINING")

    def is_of_no_leader(self) -> bool:
        """Whether a manager has answered that is not leading, or none has answered."""
        codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return self.is_not_leading() or (self.code in codes and not self.is_from_manager)

    def is_unreached(self) -> bool:
        """Whether no connection could be made at all, so that the manager has not got the call."""
        return self.is_cut() and any(text in self.message for text in _UNREACHED)

    def is_unknown_field(self, number: int) -> bool:
        """Whether a manager has refused the request because it is too old to know this field."""
        is_unknown = f"field number {number} of " in self.message and " is not known to this server" in self.message
        return self.code == grpc.StatusCode.INVALID_ARGUMENT and is_unknown
