"""Signals and findings over OTLP (OpenTelemetry), for a collector that already runs. Needs the extra `otel`.

Metrics: every signal of the last judgement as a gauge ``kvscope.NAME`` in its unit, and ``kvscope.finding``, 1 while a
finding holds. Logs: one record an event, its body the title, its attributes the event's. Attributes name the target.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from kvscope.errors import UsageError
from probes.version import __version__

try:
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
except ImportError as error:
    raise UsageError(
        f"--otel: {error.name} is not installed; expected the extra: pip install 'kvscope[otel]'"
    ) from None

EVERY_S = 15.0
_UNITS = {"ratio": "1", "": "1", "B": "By"}
"""Our units in the spelling that OpenTelemetry asks for (UCUM), where they differ."""


class Telemetry:
    """Sends to ``URL/v1/metrics`` and ``URL/v1/logs``. Any thread may tell it what is new."""

    name = "otel"

    def __init__(self, url: str, headers: Mapping[str, str], every_s: float = EVERY_S) -> None:
        base, resource = url.rstrip("/"), Resource.create({"service.name": "kvscope", "service.version": __version__})
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=f"{base}/v1/metrics", headers=dict(headers)), every_s * 1000.0
        )
        self._meters = MeterProvider([reader], resource)
        self._meter = self._meters.get_meter("kvscope", __version__)
        self._logs = LoggerProvider(resource)
        self._logs.add_log_record_processor(
            BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{base}/v1/logs", headers=dict(headers)))
        )
        self._logger = self._logs.get_logger("kvscope", __version__)
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, float]] = {}
        """Signal → target → value."""
        self._findings: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._meter.create_observable_gauge(
            "kvscope.finding", [self._holding], "1", "1 while a finding holds, with its id, verdict and target."
        )

    def update(self, target: str, signals: Mapping[str, tuple[float, float, str]]) -> None:
        """Take the signals of a judgement (value, error, unit); one that is unknown now is not sent again."""
        with self._lock:
            fresh = [name for name in signals if name not in self._values]
            for name, by_target in self._values.items():
                if name not in signals:
                    by_target.pop(target, None)
            for name, (value, _, _) in signals.items():
                self._values.setdefault(name, {})[target] = value
        for name in fresh:
            unit = signals[name][2]
            self._meter.create_observable_gauge(f"kvscope.{name}", [self._reader(name)], _UNITS.get(unit, unit))

    def send(self, event: Mapping[str, Any]) -> None:
        """Take an event: its finding holds from now on, or no longer; and a log record says so."""
        key = (event["target"], event["id"])
        with self._lock:
            if event["event"] == "ended":
                self._findings.pop(key, None)
            else:
                self._findings[key] = event
        names = ("event", "target", "id", "verdict", "says")
        self._logger.emit(
            LogRecord(
                timestamp=int(event["t_s"] * 1e9),
                severity_number=SeverityNumber.INFO if event["event"] == "ended" else SeverityNumber.WARN,
                body=event["title"],
                attributes={f"kvscope.{name}": str(event[name]) for name in names},
            )
        )

    def close(self) -> None:
        """Send what is left, and end."""
        self._meters.shutdown()
        self._logs.shutdown()

    def _holding(self, _options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            found = list(self._findings.values())
        return [Observation(1, {name: str(one[name]) for name in ("target", "id", "verdict")}) for one in found]

    def _reader(self, name: str) -> Any:
        def read(_options: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                values = dict(self._values.get(name, {}))
            return [Observation(value, {"target": target}) for target, value in values.items()]

        return read
