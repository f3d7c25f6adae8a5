"""The control door of a running built-in engine: change knobs and name segments, with the token its user can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kvscope.errors import SourceError, UsageError
from kvscope.knobs import is_step, resolve
from probes import border

TIMEOUT_S = 120.0
_MOST_REPLY = 1 << 20


class EngineControl:
    """Talks to the engine whose flight recorder lies at ``ring``. SourceError when it is gone or was never ours."""

    def __init__(self, ring: Path) -> None:
        self._token_path = ring.with_suffix(".token")

    @property
    def available(self) -> bool:
        """Whether the engine left a token this user can read."""
        return self._token_path.is_file()

    def set(self, knobs: Mapping[str, str], mark: str = "") -> dict[str, str]:
        """Change knobs, to values or by steps such as ``x2``, starting a segment named ``mark``; returns all values.

        The reply comes after the change took effect. UsageError carries the engine's own message about a bad knob.
        """
        if any(is_step(value) for value in knobs.values()):
            now = self.knobs()
            knobs = {name: resolve(now.get(name, ""), value) for name, value in knobs.items()}
        reply = self._post({"set": dict(knobs), "mark": mark})
        return {str(name): str(value) for name, value in reply.get("knobs", {}).items()}

    def mark(self, name: str) -> None:
        """Start a segment without changing anything."""
        self._post({"mark": name})

    def knobs(self) -> dict[str, str]:
        """Return every knob's present value."""
        return self.set({})

    def _post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        import urllib.error
        import urllib.request

        try:
            found = border.document(border.read_file(self._token_path, 4096), str(self._token_path))
            access = border.mapping(found, str(self._token_path))
            url = f"http://127.0.0.1:{border.whole(access.get('port'), 'port', 1, 65535)}/control"
            token = border.text(access.get("token"), "token")
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        except (OSError, ValueError) as error:
            raise SourceError(
                f"{self._token_path}: no control of this engine ({error}); is it still running?"
            ) from error
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return border.mapping(border.document(response.read(_MOST_REPLY), "the reply"), "the reply")
        except urllib.error.HTTPError as error:
            raise UsageError(_message(error, error.code)) from error
        except (OSError, ValueError) as error:
            raise SourceError(f"{url}: the engine does not answer ({error})") from error


def _message(answer: IO[bytes], code: int) -> str:
    try:
        return border.text(border.mapping(border.document(answer.read(_MOST_REPLY), ""), "").get("error"), "error", 500)
    except (ValueError, OSError):
        return f"the engine answered {code}"
