# SPDX-License-Identifier: Apache-2.0
"""The form of the addresses of managers. Nothing here looks up names or connects."""

from __future__ import annotations

import ipaddress
import re

from quire._checks import text_of

_EXPECTED = "expected host:port or unix:path"
# sockaddr_un.sun_path with its terminating zero.
_MAX_SOCKET_PATH_BYTES = 107


def split(endpoints: str) -> list[str]:
    """Returns the endpoints in a list that is separated by commas. Raises ValueError that says what is wrong with one:
    each is host:port, [IPv6]:port, unix:path, or a name of gRPC such as dns:///host:port."""
    text_of("endpoint", endpoints)
    # A list of gRPC, which begins with ipv4: or ipv6:, is one address.
    addresses = [endpoints] if endpoints.startswith(("ipv4:", "ipv6:")) else endpoints.split(",")
    for address in addresses:
        _check(address)
    return addresses


def is_on_this_machine(endpoint: str) -> bool:
    if endpoint.startswith(("unix:", "unix-abstract:")):
        return True
    host = re.sub("^(dns:///|dns:|ipv4:|ipv6:)", "", endpoint).rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check(endpoint: str) -> None:
    if not endpoint:
        raise ValueError(f"the endpoint is empty; {_EXPECTED}")
    if not all("!" <= letter <= "~" for letter in endpoint):
        raise ValueError(f"the endpoint {endpoint!r} has a space or a character that is not ASCII; {_EXPECTED}")
    wrong = _what_is_wrong(endpoint)
    if wrong:
        raise ValueError(f"the endpoint {endpoint!r} {wrong}; {_EXPECTED}")


def _what_is_wrong(endpoint: str) -> str:
    for scheme in ("http://", "https://", "grpc://", "tcp://"):
        if endpoint.startswith(scheme):
            return f"begins with {scheme}"
    scheme, _, rest = endpoint.partition(":")
    if scheme in ("unix", "unix-abstract"):
        path = rest.removeprefix("//") if scheme == "unix" else rest
        if len(path) > _MAX_SOCKET_PATH_BYTES:
            return f"has a path of {len(path)} bytes, at most {_MAX_SOCKET_PATH_BYTES} are allowed"
        return "" if path else "has no path"
    if scheme == "dns":
        return _what_is_wrong_with_host_and_port(rest.rpartition("/")[2])
    if scheme in ("ipv4", "ipv6"):
        return _what_is_wrong_with_host_and_port(rest.rpartition(",")[2])
    return "has a slash" if "/" in endpoint else _what_is_wrong_with_host_and_port(endpoint)


def _what_is_wrong_with_host_and_port(address: str) -> str:
    host, colon, port = address.rpartition(":")
    # The last colon of [::1] is part of the address.
    if not colon or address.endswith("]"):
        return "has no port"
    if not host:
        return "has no host"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return "has several colons: put an IPv6 address in brackets, as in [::1]:50051"
    if not re.fullmatch("[0-9]{1,9}", port) or not 1 <= int(port) <= 65535:
        return f"has the port {port!r}, which is not a number in [1, 65535]"
    return ""
