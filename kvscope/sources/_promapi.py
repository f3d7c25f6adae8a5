"""Asking a Prometheus: where it is, who we are to it, and its answers as series."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from kvscope.errors import SourceError, UsageError, nearest
from kvscope.sources.fetch import fetch
from probes import border

ENV_BEARER, ENV_BASIC = "KVSCOPE_PROM_BEARER", "KVSCOPE_PROM_BASIC"
OPTIONS = ("match", "step", "last", "bearer_file", "basic_file", "ca", "cert", "key", "insecure")
_SCHEMES = {"prom+http": "http", "prom+https": "https"}

Series = tuple[dict[str, str], list[tuple[float, float]]]
"""Labels of a series (``__name__`` among them) and its (time, value) pairs."""


@dataclass(frozen=True, slots=True)
class Address:
    """What ``prom+http(s)://host:port/prefix?match=…&step=…`` says. ``base`` holds no secret."""

    base: str
    match: str = ""
    step_s: float | None = None
    last_s: float = 300.0
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None


class Ask(Protocol):
    """One call of the API: path below ``/api/v1/``, form fields; returns ``data`` of the answer."""

    def __call__(self, path: str, form: Mapping[str, str] | None = None) -> Any: ...


def is_prometheus(text: str) -> bool:
    """Whether a target names a Prometheus."""
    return text.partition("://")[0] in _SCHEMES


def parse_address(text: str, env: Mapping[str, str] = os.environ) -> Address:
    """Read an address. Secrets come from files or the environment, never from the address. UsageError."""
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as error:
        raise UsageError(f"{text}: not an address ({error}); expected prom+http://host:9090?match=…") from error
    if parts.scheme not in _SCHEMES or not parts.hostname or not port_ok:
        raise UsageError(f"{text}: expected prom+http://host:9090?match=…")
    if parts.username is not None:
        raise UsageError(
            f"{parts.hostname}: an address with a password in it is not taken; set {ENV_BASIC} (user:password) or "
            "give basic_file=PATH"
        )
    asked = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    for name in asked:
        if name not in OPTIONS:
            raise UsageError(f"{text}: no option {name!r}{nearest(name, OPTIONS)}; expected {', '.join(OPTIONS)}")
    scheme = _SCHEMES[parts.scheme]
    return Address(
        urlunsplit((scheme, parts.netloc, parts.path.rstrip("/"), "", "")),
        asked.get("match", "").strip().removeprefix("{").removesuffix("}").strip().strip(","),
        _seconds(asked, "step"),
        _seconds(asked, "last") or 300.0,
        _headers(asked, env),
        _tls(asked) if scheme == "https" else None,
    )


def ask(address: Address, timeout_s: float) -> Ask:
    """Return a function that calls the API of this Prometheus. SourceError says what it refused and why."""

    def call(path: str, form: Mapping[str, str] | None = None) -> Any:
        url = f"{address.base}/api/v1/{path}"
        body = urlencode(form).encode() if form is not None else None
        return data_of(fetch(url, timeout_s, form=body, headers=address.headers, tls=address.tls), url)

    return call


def data_of(text: str, url: str) -> Any:
    """Return ``data`` of an answer. SourceError when it is none of Prometheus."""
    try:
        found = border.document(text, "the answer")
    except border.Refused as error:
        raise SourceError(f"{url}: {error}; expected a Prometheus") from error
    if not isinstance(found, dict) or found.get("status") != "success":
        why = found.get("error", "no status") if isinstance(found, dict) else "not an object"
        raise SourceError(f"{url}: {border.printable(why, 200)}; expected a Prometheus's answer")
    return found.get("data")


def series_of(data: Any) -> Iterator[Series]:
    """Yield the series of a matrix or a vector; what has another shape is passed over."""
    result = data.get("result") if isinstance(data, dict) else None
    for one in result if isinstance(result, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("metric"), dict):
            continue
        labels = {str(name): value for name, value in one["metric"].items() if isinstance(value, str)}
        points = one.get("values", [one.get("value")])
        yield labels, list(_points(points if isinstance(points, list) else []))


def _points(points: Sequence[Any]) -> Iterator[tuple[float, float]]:
    for point in points:
        try:
            t, value = point
            yield border.time_s(t, "t"), float(value)
        except (TypeError, ValueError, OverflowError):
            continue


def _seconds(asked: Mapping[str, str], name: str) -> float | None:
    text = asked.get(name)
    if not text:
        return None
    scale = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1])
    try:
        value = float(text[:-1] if scale else text) * (scale or 1.0)
    except ValueError:
        value = -1.0
    if not 1 <= value <= 86400:
        raise UsageError(f"{name}={text}: expected seconds, or 30s, 5m, 2h (1 s to 24 h)")
    return value


def _headers(asked: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    bearer = _secret(asked, "bearer_file") or env.get(ENV_BEARER, "")
    basic = _secret(asked, "basic_file") or env.get(ENV_BASIC, "")
    if bearer and basic:
        raise UsageError("a bearer token and a password: give one of them")
    if bearer:
        return {"Authorization": f"Bearer {bearer}"}
    if basic:
        if ":" not in basic:
            raise UsageError("basic authentication: expected user:password")
        return {"Authorization": "Basic " + base64.b64encode(basic.encode()).decode()}
    return {}


def _secret(asked: Mapping[str, str], option: str) -> str:
    path = asked.get(option)
    if not path:
        return ""
    try:
        return border.read_file(os.path.expanduser(path), 64 << 10).decode().strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{option}={path}: {getattr(error, 'strerror', None) or error}") from error


def _tls(asked: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=asked.get("ca") or None)
        if asked.get("cert"):
            context.load_cert_chain(asked["cert"], asked.get("key") or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"TLS files: {error}") from error
    if asked.get("insecure") in ("1", "true", "yes"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
