"""Runs in the environment of HSDS: the server, with more patience for its own start than the 10 s that it has.

Its workers import for several seconds of processor time each, so a busy machine would never be fast enough. Arguments
are those of the server.
"""

from __future__ import annotations

import os
import sys
import time

import hsds.hsds_app
from hsds.app import main

PATIENCE = 20.0  # times as long

if __name__ == "__main__":
    # By this clock alone the server measures how long it has waited; its caches use another one.
    hsds.hsds_app.getNow = lambda: time.time() / PATIENCE
    sys.argv[0] = os.path.join(os.path.dirname(sys.executable), "hsds")  # it finds its other programs beside this one
    sys.exit(main())
