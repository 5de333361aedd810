"""The `acqstream` command: verbs, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from acqstream.cli.output import error_line, exit_code_of
from acqstream.errors import AcqStreamError

_VERBS = {
    "demo": "demo",
    "serve": "serve",
    "simulate": "simulate",
    "receive": "receive",
    "status": "status",
    "note": "note",
    "stop": "stop",
    "shutdown": "stop",
    "wait": "wait",
    "ls": "runs",
    "mv": "runs",
    "cp": "runs",
    "rm": "runs",
    "info": "info",
    "view": "view",
    "verify": "verify",
    "repair": "repair",
    "mirror": "mirror",
    "export": "export",
    "bench": "bench",
    "keys": "keys",
    "service": "service",
    "doctor": "doctor",
    "web": "web",
}
"""The module of each verb in this folder, in the order of the help text."""

_EXIT_CODES = """Exit codes: 0 success; 1 an error, reported on stderr; 2 wrong usage; 3 incomplete data;
69 no daemon answers or writes; 75 the storage is unavailable; 78 the configuration or the request cannot work;
124 the time to wait is over."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from acqstream import __version__

        print(__version__)
        raise typer.Exit


def _options(
    *,
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    del version


class _Verb(TyperCommand):
    """A verb whose plain values are taken as they are typed: for these, too, typer would load pydantic, in 0.1 s."""

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


class _Verbs(TyperGroup):
    """All verbs; the options of the command itself likewise."""

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        is_single = parameter.nargs == 1 and not getattr(parameter, "multiple", False)
        described = getattr(parameter, "type_descriptor", None)  # not in every version of typer
        if is_single and hasattr(described, "is_ranged") and "process_value" not in vars(parameter):
            parameter.process_value = _taking_plain(parameter)
    return parameters


def _taking_plain(parameter: Any) -> Any:
    """The method `process_value` of a parameter, without a conversion that would change and refuse nothing."""
    convert, described = parameter.process_value, parameter.type_descriptor
    kind, facts = described.annotation, described.parameter_info
    is_bounded = described.is_ranged or facts.parser is not None

    def process_value(context: Any, value: Any) -> Any:
        if is_bounded or (type(value) is not kind and (value is not None or parameter.required)):
            return convert(context, value)
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    return process_value


def command_line(verbs: Iterable[str] = _VERBS) -> typer.Typer:
    """The command with these verbs; the modules of others are not loaded."""
    # Plain text instead of boxes: what is printed is also read by scripts, and starting takes half as long.
    app = typer.Typer(
        name="acqstream",
        cls=_Verbs,
        help="Writes frames of microscope cameras to disk, and proves that they are stored.",
        epilog=_EXIT_CODES,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in verbs:
        run = getattr(import_module(f"acqstream.cli.{_VERBS[verb]}"), verb)
        app.command(epilog=_EXIT_CODES, cls=_Verb)(run)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb, by default from the process's arguments, and leave with its exit code (SystemExit)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a channel named µ must not end a verb in a plain console
    first = (sys.argv[1:] if arguments is None else arguments)[:1]
    try:
        # Given none, it takes the process's own, where Windows leaves `*` and `~` to it.
        command_line(first if first and first[0] in _VERBS else _VERBS)(arguments, prog_name="acqstream")
    except (AcqStreamError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
