"""The PC as its system describes it. Not in the package itself: no producer and no daemon needs it."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from acqstream.storage.platform.windows_pc import is_clock_synchronised, power_facts, scanner_facts
elif sys.platform == "linux":
    from acqstream.storage.platform.linux_pc import is_clock_synchronised, power_facts, scanner_facts
else:
    from acqstream.storage.platform.pc_facts import is_clock_synchronised, power_facts, scanner_facts

__all__ = ["is_clock_synchronised", "power_facts", "scanner_facts"]
