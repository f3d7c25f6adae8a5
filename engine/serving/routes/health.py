"""Whether the engine serves."""

from __future__ import annotations

from engine.serving.errors import ApiError
from engine.serving.service import Exchange, Service


class Health:
    METHOD, PATH = "GET", "/health"

    def handle(self, exchange: Exchange, service: Service) -> None:
        if service.stopping.is_set():
            raise ApiError(503, "the engine is stopping", code="stopping")
        exchange.send_json(200, {"status": "ok"})


ROUTE = Health()
