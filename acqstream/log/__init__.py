"""The log: takes frames, writes them to an NDTiff dataset, publishes them, closes with a receipt.

A frame goes through `intake` (its place in memory by `memory`, in the file and in a group by `group_builder`), `writer`
(bytes to the stack file), `checksums` and `committer` (stack forced, journal records, index entries: published).
`log_thread` makes these parts and runs from the first file to the receipt; `log.Log` is the face for the daemon.

Threads, all made by `threads.make_thread`: "write-NAME" runs `LogThread` and `Writer`; Log.close joins it.
"commit-NAME" runs `Committer`, "checksums-NAME" runs `ChecksumWorker`; LogThread joins both before it writes the
receipt. The caller's thread runs `Intake`.

Order of locks, from the outer to the inner one; a thread that has an inner lock never takes an outer one:

1. `LogState.changed`: phase, error, requested end.
2. `Intake.condition`: places, window, ring, groups, followers' table. The writer waits on it.
3. `ChecksumWorker._condition`: its queue.

`Committer._condition`, `SpaceGate._condition` and `Stacks._lock` are taken alone or innermost. No callback to the owner
(on_change, warnings, errors) is made under a lock.
"""
