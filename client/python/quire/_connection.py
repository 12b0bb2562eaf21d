# SPDX-License-Identifier: Apache-2.0
"""What both clients need to connect to a manager."""

from __future__ import annotations

import ipaddress
import pathlib
import re
from typing import Any

import grpc

# A manager that is started again is found soon. A manager that vanished is noticed within 40 seconds.
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
]


def is_on_this_machine(endpoint: str) -> bool:
    if endpoint.startswith(("unix:", "unix-abstract:")):
        return True
    host = re.sub("^(dns:///|dns:|ipv4:|ipv6:)", "", endpoint).rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_channel(
    library: Any,
    endpoint: str,
    token: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_name: str | None,
) -> Any:
    """Returns a channel of `library`, which is grpc or grpc.aio. It connects when it is used first, and again when the
    connection was lost. Raises ValueError when the arguments do not fit together."""
    if not tls_ca and (tls_cert or tls_key or tls_name):
        raise ValueError("tls_ca is missing: tls_cert, tls_key and tls_name mean nothing without it")
    if bool(tls_cert) != bool(tls_key):
        raise ValueError("tls_cert and tls_key belong together: one of them is missing")
    if token and not tls_ca and not is_on_this_machine(endpoint):
        raise ValueError(f"tls_ca is missing: a token is not sent to {endpoint} in plain text")
    if not tls_ca:
        return library.insecure_channel(endpoint, _OPTIONS)
    files = [pathlib.Path(name).read_bytes() if name else None for name in (tls_ca, tls_key, tls_cert)]
    options = _OPTIONS + ([("grpc.ssl_target_name_override", tls_name)] if tls_name else [])
    return library.secure_channel(endpoint, grpc.ssl_channel_credentials(*files), options)


def metadata_of(token: str | None) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token.strip()}")] if token else []
