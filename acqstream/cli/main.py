"""The `acqstream` command: verbs, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper

import typer

from acqstream.cli.bench import bench
from acqstream.cli.demo import demo
from acqstream.cli.doctor import doctor
from acqstream.cli.export import export
from acqstream.cli.info import info
from acqstream.cli.keys import keys
from acqstream.cli.mirror import mirror
from acqstream.cli.note import note
from acqstream.cli.output import error_line, exit_code_of
from acqstream.cli.receive import receive
from acqstream.cli.repair import repair
from acqstream.cli.runs import cp, ls, mv, rm
from acqstream.cli.serve import serve
from acqstream.cli.service import service
from acqstream.cli.simulate import simulate
from acqstream.cli.status import status
from acqstream.cli.stop import shutdown, stop
from acqstream.cli.verify import verify
from acqstream.cli.view import view
from acqstream.cli.wait import wait
from acqstream.cli.web import web
from acqstream.errors import AcqStreamError

_EXIT_CODES = """Exit codes: 0 success; 1 an error, reported on stderr; 2 wrong usage; 3 incomplete data;
69 no daemon answers or writes; 75 the storage is unavailable; 78 the configuration or the request cannot work;
124 the time to wait is over."""

# Plain text instead of boxes: what is printed is also read by scripts, and starting takes half as long.
app = typer.Typer(
    name="acqstream",
    help="Writes frames of microscope cameras to disk, and proves that they are stored.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
    demo,
    serve,
    simulate,
    receive,
    status,
    note,
    stop,
    shutdown,
    wait,
    ls,
    mv,
    cp,
    rm,
    info,
    view,
    verify,
    repair,
    mirror,
    export,
    bench,
    keys,
    service,
    doctor,
    web,
):
    app.command(epilog=_EXIT_CODES)(verb)


def _print_version(wanted: bool) -> None:
    if wanted:
        from acqstream import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb, by default from the process's arguments, and leave with its exit code (SystemExit)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a channel named µ must not end a verb in a plain console
    try:
        app(arguments, prog_name="acqstream")
    except (AcqStreamError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
