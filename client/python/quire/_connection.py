# SPDX-License-Identifier: Apache-2.0
"""What both clients need to connect to a manager."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from quire import _wire
from quire._endpoint import is_on_this_machine, split
from quire._call_policy import CallPolicy, CallRequest
from quire._errors import Error

# A manager that is started again is found soon. A manager that vanished is noticed within 16 seconds, which must be
# less than its --detach-grace. Managers want no more than one probe in 5 seconds.
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 8_000),
    ("grpc.keepalive_timeout_ms", 8_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
]
# How long an attempt to connect may take when there are other managers to ask.
_PATIENCE_MS = 3_000


class Manager:
    """The connection to one manager, and its services."""

    def __init__(self, endpoint: str, channel: Any):
        self.endpoint, self.channel = endpoint, channel
        self.inference = _wire.Stub(channel, "quire.v1.InferenceService")
        self.admin = _wire.Stub(channel, "quire.v1.AdminService")
        self.health = _wire.Stub(channel, "grpc.health.v1.Health")


def pause(manager: Manager, delay: float) -> None:
    """Waits for `delay` seconds, or until the lost connection is back. gRPC keeps connecting only while somebody waits
    for the connection."""
    was_lost, is_back = False, threading.Event()

    def note(state: grpc.ChannelConnectivity) -> None:
        nonlocal was_lost
        if state is not grpc.ChannelConnectivity.READY:
            was_lost = True
        elif was_lost:
            is_back.set()

    manager.channel.subscribe(note, try_to_connect=True)
    try:
        is_back.wait(delay)
    finally:
        manager.channel.unsubscribe(note)


class Managers:
    """The managers of a client, of which one leads. Calls go to the current one, which is left when it stands by, stops
    or does not answer. Any thread may use it."""

    def __init__(self, managers: list[Manager]):
        self.all = managers
        self.current = managers[0]

    def leave(self, manager: Manager) -> None:
        """The next one becomes current, unless `manager` was left already."""
        if self.current is manager:
            self.current = self.all[(self.all.index(manager) + 1) % len(self.all)]


class Search:
    """How one call that does not stream finds the manager that leads."""

    def __init__(self, managers: Managers, timeout: float):
        self._managers, self._end = managers, time.monotonic() + timeout
        self._policy = CallPolicy(CallRequest(num_managers=len(managers.all), deadline=self._end))

    def time_left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def delay_after(self, manager: Manager, error: Error) -> float:
        """The call to `manager` has failed. Returns after how many seconds the current one may be asked, or raises the
        error."""
        action = self._policy.after(error, time.monotonic())
        return action.follow(lambda: self._managers.leave(manager))


def prepare(
    library: Any,
    endpoints: str,
    token: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_name: str | None,
) -> Callable[[], Managers]:
    """Returns a function that makes the managers, with channels of `library`, which is grpc or grpc.aio. The channels
    of grpc.aio belong to the event loop that runs when they are made. A channel connects when it is used first, and
    again when the connection was lost. Raises ValueError when the arguments are wrong or do not fit together."""
    if not tls_ca and (tls_cert or tls_key or tls_name):
        raise ValueError("tls_ca is missing: tls_cert, tls_key and tls_name mean nothing without it")
    if bool(tls_cert) != bool(tls_key):
        raise ValueError("tls_cert and tls_key belong together: one of them is missing")
    addresses = split(endpoints)
    for address in addresses:
        if token and not tls_ca and not is_on_this_machine(address):
            raise ValueError(f"tls_ca is missing: a token is not sent to {address} in plain text")
    options: list[tuple[str, Any]] = list(_OPTIONS)
    if len(addresses) > 1:
        options.append(("grpc.min_reconnect_backoff_ms", _PATIENCE_MS))
    if not tls_ca:
        return lambda: Managers([Manager(a, library.insecure_channel(a, options)) for a in addresses])
    files = [pathlib.Path(name).read_bytes() if name else None for name in (tls_ca, tls_key, tls_cert)]
    credentials = grpc.ssl_channel_credentials(*files)
    if tls_name:
        options.append(("grpc.ssl_target_name_override", tls_name))
    return lambda: Managers([Manager(a, library.secure_channel(a, credentials, options)) for a in addresses])


def metadata_of(token: str | None) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token.strip()}")] if token else []
