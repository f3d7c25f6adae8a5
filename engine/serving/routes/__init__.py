"""One file a route: its method, its path, and what it answers."""

from __future__ import annotations

from typing import Protocol

from engine.discovery import load, module_names
from engine.serving.service import Exchange, Service


class Route(Protocol):
    METHOD: str
    PATH: str

    def handle(self, exchange: Exchange, service: Service) -> None:
        """Answer; ApiError is sent as it stands."""
        ...


def routes() -> dict[tuple[str, str], Route]:
    """Every route by method and path."""
    found: list[Route] = [load(__name__, name).ROUTE for name in module_names(__path__)]
    return {(route.METHOD, route.PATH): route for route in found}
