"""The PC and its service manager, as its system describes them. Not in the package itself: it loads parsers.

No producer and no daemon needs it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from acqstream.storage.platform import windows_pc as _system
elif sys.platform == "linux":
    from acqstream.storage.platform import linux_pc as _system
else:
    from acqstream.storage.platform import pc_facts as _system

power_facts = _system.power_facts
is_clock_synchronised = _system.is_clock_synchronised
scanner_facts = _system.scanner_facts

install = _system.install
remove = _system.remove
is_installed = _system.is_installed
