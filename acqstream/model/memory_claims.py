"""Two integers in memory that a producer shares, with which it takes back the memory of published frames.

They are of 64 bits and in the byte order of the machine. The frames with numbers below either of them may be
overwritten; all others lie where they were put. The producer stores them before it writes to such a place, and a reader
looks at them after it has read. Two, because two threads of the producer learn of such frames, and each has its own.
"""

from __future__ import annotations

WORD_BYTES = 8
CLAIM_BYTES = 2 * WORD_BYTES
