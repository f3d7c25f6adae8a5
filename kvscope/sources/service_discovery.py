"""Fleets whose members somebody else lists: Prometheus's target files and addresses, DNS, Kubernetes; looked up anew.

``file_sd:PATTERN`` and ``http_sd+http://HOST/PATH`` give Prometheus's list of ``{targets, labels}``; ``dns:NAME:PORT``
every address of a name, ``dns+srv:NAME`` every host and port of a service (extra `dns`); ``k8s:SPACE/SELECTOR:PORT``
the running pods that a label selector chooses (extra `k8s`), from within the cluster or by the kubeconfig.
"""

from __future__ import annotations

import glob
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kvscope.errors import SourceError, UsageError
from kvscope.sources.fetch import fetch
from kvscope.sources.fleet import FleetSource
from kvscope.sources.source import Description, Poll
from probes import border

EVERY_S = 30.0
"""How often the members are looked up again."""
TIMEOUT_S = 5.0
MOST_BYTES = 8 << 20
Lookup = Callable[[], dict[str, str]]
"""Returns address → what a person calls it (empty: by its address). SourceError where the list cannot be had."""


def lookup_of(text: str) -> Lookup:
    """Return what looks up the members that ``text`` names. UsageError where it names nothing that can be looked up."""
    kind, _, rest = text.partition("+") if text.startswith("http_sd+") else text.partition(":")
    if kind == "file_sd" and rest:
        return partial(_file, rest)
    if kind == "http_sd" and rest.startswith(("http://", "https://")):
        return partial(_http, rest)
    if kind == "dns+srv" and rest:
        return partial(_srv, rest)
    if kind == "dns":
        host, _, port = rest.rpartition(":")
        if host and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536:
            return partial(_addresses, host, int(port))
    if kind == "k8s":
        return _pods(rest)
    raise UsageError(
        f"{text}: expected file_sd:FILE, http_sd+http://HOST/PATH, dns:NAME:PORT, dns+srv:NAME or "
        "k8s:NAMESPACE/LABEL=VALUE:PORT"
    )


class DiscoveredSource:
    """A fleet whose members come and go. SourceError when there is none, or none of them answers."""

    def __init__(
        self, text: str, *, lookup: Lookup | None = None, every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic, fleet: Callable[[Mapping[str, str]], FleetSource] = FleetSource,
    ) -> None:  # fmt: skip
        self._text, self._lookup, self._every_s, self._clock = text, lookup or lookup_of(text), every_s, clock
        self._members = self._lookup()
        if not self._members:
            raise SourceError(f"{text}: it lists no target now; expected one at least")
        self._fleet = fleet(self._members)
        self._next_s = clock() + every_s
        self._fresh: dict[str, str] | SourceError | None = None
        self._failing = ""
        self._thread: threading.Thread | None = None

    def describe(self) -> Description:
        return self._fleet.describe()

    def poll(self) -> Poll:
        told = [*self._changed()]
        if self._clock() >= self._next_s and (self._thread is None or not self._thread.is_alive()):
            self._next_s = self._clock() + self._every_s
            # A lookup may hang; the poll does not.
            self._thread = threading.Thread(target=self._look, name="kvscope-members", daemon=True)
            self._thread.start()
        poll = self._fleet.poll()
        return Poll(poll.samples, poll.marks, (*told, *poll.notices), poll.ended, poll.more, poll.silent)

    def close(self) -> None:
        self._fleet.close()

    def _look(self) -> None:
        try:
            self._fresh = self._lookup()
        except SourceError as error:
            self._fresh = error

    def _changed(self) -> Iterator[str]:
        """Take over what the last lookup found, and say so; a list that cannot be had changes nothing."""
        fresh, self._fresh = self._fresh, None
        if fresh is None:
            return
        if isinstance(fresh, SourceError) or not fresh:
            why = str(fresh) if fresh else f"{self._text}: it lists no target any more"
            if why != self._failing:
                yield f"{why}; the members known so far are watched on"
            self._failing = why
            return
        self._failing = ""
        come, gone = fresh.keys() - self._members.keys(), self._members.keys() - fresh.keys()
        if come or gone:
            self._members = fresh
            self._fleet.become(fresh)
            yield f"{self._text}: {len(come)} members came, {len(gone)} went; {len(fresh)} now"


def _groups(found: Any, where: str) -> dict[str, str]:
    """Addresses of Prometheus's list of groups. ``__scheme__`` and ``__metrics_path__`` count, other labels do not."""
    if not isinstance(found, list):
        raise SourceError(f"{where}: expected a list of {{targets, labels}}")
    addresses: dict[str, str] = {}
    for group in found:
        targets = group.get("targets") if isinstance(group, dict) else None
        labels = group.get("labels") or {} if isinstance(group, dict) else {}
        if not isinstance(targets, list) or not isinstance(labels, dict):
            raise SourceError(f"{where}: a group without a list of targets; expected {{targets, labels}}")
        scheme, path = str(labels.get("__scheme__") or "http"), str(labels.get("__metrics_path__") or "/metrics")
        for target in targets:
            if not isinstance(target, str) or not target or "/" in target or scheme not in ("http", "https"):
                raise SourceError(f"{where}: {border.shown(target)}: expected HOST:PORT")
            address = f"{scheme}://{target}{path}"
            if not address.isprintable() or " " in address or len(address) > 2048:
                raise SourceError(f"{where}: {border.shown(address)}: expected an address without blanks or controls")
            addresses[address] = ""
    return addresses


def _file(pattern: str) -> dict[str, str]:
    paths = sorted(glob.glob(pattern))
    if not paths:
        raise SourceError(f"file_sd:{pattern}: no such file")
    found: dict[str, str] = {}
    for path in paths:
        try:
            text = border.read_file(Path(path), MOST_BYTES).decode()
            groups = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
            found |= _groups(border.shallow(groups, path), path)
        except (OSError, ValueError, RecursionError, yaml.YAMLError, border.Refused) as error:
            raise SourceError(f"{path}: {border.printable(str(error), 200)}; expected a list of targets") from error
    return found


def _http(url: str) -> dict[str, str]:
    try:
        return _groups(border.document(fetch(url, TIMEOUT_S), "the answer"), url)
    except border.Refused as error:
        raise SourceError(f"{url}: {error}; expected a list of targets as JSON") from error


def _addresses(host: str, port: int) -> dict[str, str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else border.printable(error, 200)
        raise SourceError(f"dns:{border.printable(host, 80)}:{port}: {why}") from error
    places = dict.fromkeys(str(place[0]) for *_, place in found)
    return {f"http://{f'[{one}]' if ':' in one else one}:{port}/metrics": "" for one in places}


def _srv(name: str) -> dict[str, str]:
    try:
        import dns.exception
        import dns.resolver
    except ImportError:
        raise UsageError(
            "dns+srv: dnspython is not installed; expected the extra: pip install 'kvscope[dns]'"
        ) from None
    try:
        answers = dns.resolver.resolve(name, "SRV", lifetime=TIMEOUT_S)
    except dns.exception.DNSException as error:
        raise SourceError(f"dns+srv:{name}: {border.printable(str(error), 200)}") from error
    return {f"http://{str(one.target).rstrip('.')}:{one.port}/metrics": "" for one in answers}


def _pods(rest: str) -> Lookup:
    """``NAMESPACE/SELECTOR:PORT``; without a port the one named http or metrics, or the only one a pod has."""
    try:
        from kubernetes import client, config
        from kubernetes.client.exceptions import ApiException
        from kubernetes.config.config_exception import ConfigException
    except ImportError:
        raise UsageError("k8s: kubernetes is not installed; expected the extra: pip install 'kvscope[k8s]'") from None
    namespace, slash, chosen = rest.partition("/")
    selector, _, port = chosen.rpartition(":") if chosen.rpartition(":")[2].isdecimal() else (chosen, "", "")
    if not (namespace and slash and selector):
        raise UsageError(f"k8s:{rest}: expected k8s:NAMESPACE/LABEL=VALUE:PORT")
    try:
        try:
            config.load_incluster_config()
        except ConfigException:
            config.load_kube_config()
    except (ConfigException, OSError, ValueError) as error:
        raise SourceError(
            f"k8s: {border.printable(str(error), 200)}; expected a kubeconfig, or a pod's account"
        ) from error
    api = client.CoreV1Api()

    def look() -> dict[str, str]:
        try:
            pods = api.list_namespaced_pod(namespace, label_selector=selector, _request_timeout=TIMEOUT_S).items
        except ApiException as error:
            raise SourceError(f"k8s:{rest}: the cluster answers {error.status} {error.reason}") from error
        except Exception as error:
            # urllib3's errors; the client has no common one.
            raise SourceError(f"k8s:{rest}: {border.printable(str(error), 200)}") from error
        return dict(_endpoints(pods, port))

    return look


def _endpoints(pods: Iterable[Any], port: str) -> Iterator[tuple[str, str]]:
    for pod in pods:
        if pod.status.phase != "Running" or not pod.status.pod_ip or pod.metadata.deletion_timestamp:
            continue
        ports = [one for container in pod.spec.containers for one in container.ports or ()]
        named = [one for one in ports if one.name in ("metrics", "http")] or (ports if len(ports) == 1 else [])
        number = port or (str(named[0].container_port) if named else "")
        if number:
            ip = pod.status.pod_ip
            yield f"http://{f'[{ip}]' if ':' in ip else ip}:{number}/metrics", border.printable(pod.metadata.name, 128)
