"""Who may speak to the engine: programs of this machine, and pages that this machine itself served.

A browser can be made to send requests anywhere, and a name can be made to point anywhere (DNS rebinding). So every
request must name the engine by an address or a name of this machine, and one that a page sent must come from such a
page.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit


def own_names(host: str) -> frozenset[str]:
    """Return the names it may be called by, beside addresses: this machine's, and the one it listens on."""
    names = {"localhost", host, socket.gethostname(), socket.getfqdn()} if host not in _LOCAL else {"localhost"}
    return frozenset(name.lower().rstrip(".") for name in names if name)


def refused(host: str | None, origin: str | None, names: frozenset[str], version: str) -> str:
    """Return why a request is not answered, or the empty string."""
    if host is None:
        return "" if version == "HTTP/1.0" and origin is None else "a request without a Host"
    if not _is_own(f"//{host}", names):
        return "a Host that is none of this machine's names"
    if origin is not None and not _is_own(origin, names):
        return "a page from elsewhere (its Origin is none of this machine's)"
    return ""


_LOCAL = ("127.0.0.1", "::1", "localhost")


def _is_own(address: str, names: frozenset[str]) -> bool:
    try:
        name = (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in names:
        return True
    try:
        # An address cannot be made to point elsewhere; only a name can.
        return bool(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return False
