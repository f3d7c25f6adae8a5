"""The one model that is served, and how long a request to it may be."""

from __future__ import annotations

from engine.serving.service import Exchange, Service


class Models:
    METHOD, PATH = "GET", "/v1/models"

    def handle(self, exchange: Exchange, service: Service) -> None:
        model = {
            "id": service.model,
            "object": "model",
            "created": service.created,
            "owned_by": "kvscope",
            "max_model_len": service.max_context,
        }
        exchange.send_json(200, {"object": "list", "data": [model]})


ROUTE = Models()
