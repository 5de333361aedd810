"""`acqstream receive`: records an image stream that another program sends already."""

from __future__ import annotations

import signal
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.endpoint import EndpointOption
from acqstream.cli.output import ExitCode, print_json, typed_text
from acqstream.model.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.model.receipt import Receipt
    from acqstream.receive.recorder import StreamTally


class SocketPattern(StrEnum):
    PULL = "pull"
    SUB = "sub"


class StreamFormat(StrEnum):
    ARRAY = "array"
    DECTRIS = "dectris"


def receive(  # noqa: PLR0913 - an argument for each option
    *,
    stream: Annotated[str, typer.Option(metavar="URL", help="Endpoint of the stream, e.g. tcp://detector:5500.")],
    name: Annotated[str, typer.Option(help="Name of the datasets: NAME, NAME_1, NAME_2 ...")],
    pattern: Annotated[
        SocketPattern, typer.Option(help="pull: the sender has a PUSH socket; sub: PUB.")
    ] = SocketPattern.PULL,
    stream_format: Annotated[
        StreamFormat, typer.Option("--format", help="array: array-1.0, Odin, the recipe; dectris: DECTRIS Stream V2.")
    ] = StreamFormat.ARRAY,
    bind: Annotated[bool, typer.Option("--bind/--connect", help="Bind the endpoint, or connect to it.")] = False,
    endpoint: EndpointOption = None,
    idle: Annotated[float, typer.Option(min=0.05, help="Seconds without a message that end a dataset.")] = 10.0,
    queue: Annotated[int, typer.Option(min=1, help="Messages that may wait in the socket.")] = 64,
    frames: Annotated[
        int | None,
        typer.Option(
            min=1, help="End after this many frames, lost ones included [default: never].", show_default=False
        ),
    ] = None,
    reorder: Annotated[
        int, typer.Option(min=0, max=1024, help="Messages that wait for one whose turn it is; 0: none.")
    ] = 16,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, at the end.")] = False,
) -> None:
    """Record a stream of another program.

    Takes array-1.0 (areaDetector, PSI), Odin's live view, pyzmq's numpy recipe and DECTRIS Stream V2. Runs until Ctrl-C
    or SIGTERM (Windows: Ctrl-Break). Such senders receive no answer about stored frames.
    """
    from acqstream.receive.receiver import receive_stream
    from acqstream.receive.recorder import StreamSettings
    from acqstream.storage.platform import STOP_SIGNALS, session_signals

    settings = StreamSettings(
        stream=stream,
        name=typed_text(name),
        daemon=endpoint,
        pattern=pattern.value,
        format=stream_format.value,
        bind=bind,
        idle_s=idle,
        queue=queue,
        frames=frames,
        reorder=reorder,
    )
    stop = threading.Event()
    handlers = {number: signal.signal(number, lambda *_: stop.set()) for number in (*STOP_SIGNALS, *session_signals())}
    try:
        tally = receive_stream(settings, stop, None if as_json else _print_receipt)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if as_json:
        print_json(_document(tally))
    else:
        _print_tally(tally)
    if not tally.complete:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _document(tally: StreamTally) -> dict[str, object]:
    return {
        "frames": tally.frames,
        "lost": tally.lost,
        "refused": tally.refused,
        "broken_headers": tally.broken_headers,
        "repeated": tally.repeated,
        "complete": tally.complete,
        "warnings": tally.warnings,
        "receipts": [receipt.as_dict() for receipt in tally.receipts],
    }


def _print_receipt(receipt: Receipt) -> None:
    print(
        f"{receipt.path}: {receipt.status}: {count_text(receipt.stored, 'frame')} stored, {receipt.skipped:,} missing, "
        f"{size_text(receipt.payload_bytes)}",
        flush=True,
    )


def _print_tally(tally: StreamTally) -> None:
    print(
        f"{count_text(tally.frames, 'frame')} in {count_text(len(tally.receipts), 'dataset')}; {tally.lost:,} lost, "
        f"{tally.refused:,} refused, {count_text(tally.broken_headers, 'broken header')}"
    )
