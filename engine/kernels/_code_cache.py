"""Where compiled kernels are kept between runs: one folder for each version of the kernels' sources.

numba asks only whether the file a function stands in has changed, not the files of the functions it calls: with one
folder for all versions, an edited helper would leave its callers running old machine code.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b
from pathlib import Path

ENV = "NUMBA_CACHE_DIR"


def directory() -> Path:
    """Return the user's cache folder for exactly these sources."""
    digest = blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "kvscope" / "numba" / digest.hexdigest()


def use() -> None:
    """Have numba keep its code there, whether it was imported before or not; a folder the user chose stays."""
    if ENV in os.environ:
        return
    os.environ[ENV] = str(directory())
    if (numba := sys.modules.get("numba")) is not None:
        numba.config.CACHE_DIR = os.environ[ENV]
