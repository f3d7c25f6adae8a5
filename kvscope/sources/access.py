"""Who we are to the pages that are read, and whom we trust: headers, a token, a certificate authority.

Said once a process, by the command line; secrets come from the environment or the line, are sent with every request to
a page, never to another host or from https to http (``fetch`` follows no such redirect), and are stored nowhere.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvscope.errors import UsageError

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")


@dataclass(frozen=True, slots=True)
class Access:
    """Headers sent with every request, and the TLS settings; ``repr`` shows neither."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


_access = Access()


def use(headers: Sequence[str] = (), bearer_env: str = "", ca: str = "", env: Mapping[str, str] = os.environ) -> None:
    """Take ``NAME: VALUE`` headers, the variable that holds a bearer token, and a file of certificates. UsageError."""
    global _access
    found = dict(_header(one) for one in headers)
    if bearer_env:
        if not env.get(bearer_env):
            raise UsageError(f"--bearer-env {bearer_env}: no such variable is set; expected one that holds the token")
        found["Authorization"] = f"Bearer {_value(env[bearer_env].strip(), '--bearer-env')}"
    try:
        tls = ssl.create_default_context(cafile=ca) if ca else None
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca {ca}: {error}; expected a file of certificates (PEM)") from error
    _access = Access(found, tls)


def current() -> Access:
    """Return what the command line said."""
    return _access


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not _NAME.fullmatch(name.strip()):
        # What stands there may be a secret: it is not repeated.
        raise UsageError("--header: expected NAME: VALUE")
    return name.strip(), _value(value.strip(), "--header")


def _value(text: str, option: str) -> str:
    if not text.isprintable() or not text.isascii():
        raise UsageError(f"{option}: the value holds characters that no header may hold")
    return text


def without_query(url: str) -> str:
    """Return an address as it may be shown and stored: what follows ``?`` may be a token."""
    place, mark, _ = url.partition("?")
    return place + ("?…" if mark else "")
