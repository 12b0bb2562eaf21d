# SPDX-License-Identifier: Apache-2.0
"""The client for programs without an event loop."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

from quire import _connection, _wire, v1
from quire._checks import text_of, token_ids_of
from quire._errors import Error
from quire._requests import (
    Collector,
    EmbedOptions,
    Message,
    Options,
    Prompt,
    Prompts,
    Sample,
    make_chat,
    make_embed_request,
)
from quire._resume import Resumption

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Client(Prompts[Generator[v1.GenerateResponse, None, None]]):
    """A client of one manager, or of several ones of which one leads. Any thread may use it. It connects when it is
    used first, and again when the connection was lost. When a manager stands by, stops or cannot be reached, a call
    goes to the next one, until its time is up, or until none can be reached. Calls raise quire.Error.

    endpoint  host:port, [IPv6]:port, unix:path, or a name of gRPC such as dns:///host:port; several managers
              are separated by commas
    token     bearer token. Without TLS it is sent only to this machine.
    tls_ca    use TLS; PEM file of the authority that has issued the manager's certificate. tls_cert and tls_key are
              the client's own, tls_name is the name in the manager's certificate if it is not the endpoint's host.
    timeout   of the calls that do not stream, in seconds
    """

    def __init__(
        self,
        endpoint: str = "127.0.0.1:50051",
        *,
        token: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        tls_name: str | None = None,
        timeout: float = 10.0,
    ):
        self._managers = _connection.prepare(grpc, endpoint, token, tls_ca, tls_cert, tls_key, tls_name)()
        self._metadata = _connection.metadata_of(token)
        self._timeout = timeout

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Close the streams before: a request with an open stream runs on for a while."""
        for manager in self._managers.all:
            manager.channel.close()

    def complete(self, prompt: Prompt, *, timeout: float = 300.0, **options: Unpack[Options]) -> list[Sample]:
        """Returns the whole samples for a prompt, ordered by their index."""
        collector = Collector()
        for response in self.generate(prompt, timeout=timeout, **options):
            collector.add(response)
        return collector.samples()

    def stream(
        self, request: v1.GenerateRequest, *, timeout: float = 300.0, resume_time: float = 30.0
    ) -> Generator[v1.GenerateResponse, None, None]:
        """Yields the responses of a request, each token once, also across lost connections if its on_disconnect is
        DETACH and it has a request_id. Tries to resume for `resume_time` seconds without progress, and then raises the
        error with which the connection was lost. `timeout` limits the whole stream. When the caller closes the
        generator or stops it by an exception, the request ends as well."""
        state = Resumption(request, timeout, resume_time, len(self._managers.all))
        try:
            while True:
                method, message, left = state.next_call()
                manager = self._managers.current
                call = getattr(manager.inference, method)(message, timeout=left, metadata=self._metadata)
                try:
                    for response in call:
                        state.note(response)
                        yield response
                    return
                except grpc.RpcError as error:
                    failure = Error(error, manager.endpoint, is_of_prompt=True)
                    delay = state.delay_after(failure, functools.partial(self._managers.leave, manager))
                finally:
                    call.cancel()  # A call that has ended already stays as it is.
                _connection.pause(self._managers.current, delay)
        except Error:
            raise
        except BaseException:  # The caller stops, or has closed the client.
            if request.request_id:
                with contextlib.suppress(Exception):
                    self.abort(request.request_id, timeout=3.0)
            raise

    def embed(
        self, inputs: str | Iterable[Prompt], *, timeout: float = 300.0, **options: Unpack[EmbedOptions]
    ) -> list[v1.Embedding]:
        """Returns the embeddings of texts, or of lists of token ids, in their order: `values` of each are its numbers.
        There may be as many inputs as model().max_batch_requests."""
        response: v1.EmbedResponse = self.call("Embed", make_embed_request(inputs, options), timeout=timeout)
        return list(response.embeddings)

    def tokenize(self, text: str, *, add_special_tokens: bool | None = None) -> v1.TokenizeResponse:
        request = v1.TokenizeRequest(text=text_of("text", text), add_special_tokens=add_special_tokens)
        response: v1.TokenizeResponse = self.call("Tokenize", request)
        return response

    def detokenize(self, token_ids: Iterable[int], *, skip_special_tokens: bool | None = None) -> str:
        ids = token_ids_of("token_ids", token_ids)
        request = v1.DetokenizeRequest(token_ids=ids, skip_special_tokens=skip_special_tokens)
        response: v1.DetokenizeResponse = self.call("Detokenize", request)
        return response.text

    def render_chat(
        self,
        messages: Iterable[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | str = "",
        template: Mapping[str, Any] | None = None,
    ) -> v1.RenderChatResponse:
        """Returns the prompt that a conversation becomes."""
        request = v1.RenderChatRequest(chat=make_chat(messages, tools, template or {}))
        response: v1.RenderChatResponse = self.call("RenderChat", request)
        return response

    def model(self) -> v1.GetModelResponse:
        """Describes the model that is served."""
        response: v1.GetModelResponse = self.call("GetModel", v1.GetModelRequest())
        return response

    def abort(self, request_id: str, *, timeout: float | None = None) -> None:
        """Ends a running request."""
        self.call("Abort", v1.AbortRequest(request_id=request_id), timeout=timeout)

    def is_ready(self, service: str = "readiness") -> bool:
        """Whether the manager, or one of several, is ready to generate. False also when none can be reached."""
        request = _wire.message("grpc.health.v1.HealthCheckRequest")(service=service)
        timeout = self._timeout / len(self._managers.all)
        for manager in self._managers.all:
            try:
                response = manager.health.Check(request, timeout=timeout, metadata=self._metadata)
                if response.status == 1:
                    return True
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise Error(error, manager.endpoint) from None
        return False

    def call(self, method: str, request: Any, *, timeout: float | None = None) -> Any:
        """Calls a method of InferenceService or AdminService that does not stream, and returns its response."""
        search = _connection.Search(self._managers, self._timeout if timeout is None else timeout)
        if hasattr(self._managers.current.inference, method):
            return self._infer(method, request, search)
        # Managers that stand by answer these calls too, so this one asks who leads before.
        if len(self._managers.all) > 1:
            try:
                self._infer("GetModel", v1.GetModelRequest(), search)
            except Error as error:
                if error.is_of_no_leader():
                    raise
        # It is not made again at another manager, because that one may stand by, and the first one may have begun it.
        manager = self._managers.current
        try:
            admin_call = getattr(manager.admin, method)
            return admin_call(request, timeout=search.time_left(), metadata=self._metadata)
        except grpc.RpcError as error:
            raise Error(error, manager.endpoint) from None

    def _infer(self, method: str, request: Any, search: _connection.Search) -> Any:
        while True:
            manager = self._managers.current
            try:
                call = getattr(manager.inference, method)
                return call(request, timeout=search.time_left(), metadata=self._metadata)
            except grpc.RpcError as error:
                delay = search.delay_after(manager, Error(error, manager.endpoint))
            time.sleep(delay)
