"""`python -m engine`: one engine process, usually started by kvscope."""

from __future__ import annotations

import os
import sys

# Read once when the libraries load: idle threads must sleep, not spin, or two thread pools fight over the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")

if __name__ == "__main__":
    from engine.process import main

    sys.exit(main(sys.argv[1:]))
