"""What a Windows Python under Wine lacks, added to the bench's own copy of it: two libraries and one omission.

Each can go when Wine or the Python package brings it:
* python3.dll: the bundled Python has none, and extensions of the stable ABI (psutil) are linked to it.
* bcryptprimitives.dll: Rust's standard library (pydantic-core) calls ProcessPrng, which Wine has from version 9 on.
* TCP_MAXRT: Wine's sockets have no such option, and libzmq drops every connection for which it cannot set it.
"""

from __future__ import annotations

import re
from pathlib import Path

from steps import EXIT_INSTALL_FAILED, StepFailed, run_quietly

COMPILER = "x86_64-w64-mingw32-gcc"
LISTER = "x86_64-w64-mingw32-objdump"
COMPILE_TIMEOUT_S = 60

EMPTY_LIBRARY = "int __stdcall DllMainCRTStartup(void *a, unsigned b, void *c) { return 1; }\n"

# SystemFunction036 is RtlGenRandom:
# https://learn.microsoft.com/windows/win32/api/ntsecapi/nf-ntsecapi-rtlgenrandom
RANDOM_LIBRARY = """\
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T count) {
    while (count) {
        ULONG part = count > 0x40000000 ? 0x40000000 : (ULONG)count;
        if (!SystemFunction036(to, part)) return FALSE;
        to += part; count -= part;
    }
    return TRUE;
}
BOOL WINAPI DllMainCRTStartup(HINSTANCE a, DWORD b, LPVOID c) { return TRUE; }
"""

OPTION_LOOKUP = re.compile(r"^( *)upper_key = key\.upper\(\)\n", re.MULTILINE)


def add_shims(python: Path, site: Path, system32: Path, scratch: Path) -> None:
    """Add all three. `python` is the folder of python.exe, `site` its packages, `system32` that of the Wine prefix."""
    scratch.mkdir(exist_ok=True)
    library = next(python.glob("python3[0-9]*.dll"))
    listing = _output([LISTER, "-p", str(library)])
    empty, definition = scratch / "empty.c", scratch / "python3.def"
    empty.write_text(EMPTY_LIBRARY)
    definition.write_text(forwarder(library.stem, exported_names(listing)))
    _make_library(python / "python3.dll", "-nostdlib", str(empty), str(definition))
    target = system32 / "bcryptprimitives.dll"
    if not target.exists():
        source = scratch / "random.c"
        source.write_text(RANDOM_LIBRARY)
        _make_library(target, "-nostdlib", "-O1", str(source), "-ladvapi32", "-lkernel32")
    options = site / "zmq" / "sugar" / "attrsettr.py"
    options.write_text(without_maxrt(options.read_text(encoding="utf-8")), encoding="utf-8")


def exported_names(listing: str) -> list[str]:
    """Python's functions and data among the exports of a library, as `objdump -p` lists them."""
    table = listing.partition("[Ordinal/Name Pointer] Table")[2].lstrip("\n").partition("\n\n")[0]
    names = {line.split()[-1] for line in table.splitlines() if line.strip()}
    return sorted(name for name in names if re.match(r"_?Py", name))


def forwarder(library: str, names: list[str]) -> str:
    """Definition file of a python3.dll whose every name leads to the same one in `library`.

    https://learn.microsoft.com/cpp/build/reference/exports
    """
    return "\n".join(["LIBRARY python3", "EXPORTS", *(f"{name}={library}.{name}" for name in names)]) + "\n"


def without_maxrt(source: str) -> str:
    """pyzmq's attribute module, which then ignores `tcp_maxrt`."""
    changed, count = OPTION_LOOKUP.subn(r'\g<0>\1if upper_key == "TCP_MAXRT":\n\1    return\n', source)
    if not count:
        raise StepFailed("pyzmq's zmq/sugar/attrsettr.py looks different: mend OPTION_LOOKUP", EXIT_INSTALL_FAILED)
    return changed


def _make_library(target: Path, *arguments: str) -> None:
    _output([COMPILER, "-shared", "-o", str(target), *arguments, "-Wl,-e,DllMainCRTStartup"])


def _output(command: list[str]) -> str:
    code, output = run_quietly(command, COMPILE_TIMEOUT_S)
    if code:
        raise StepFailed(f"{output.strip()}\n{command[0]} failed with exit code {code}", EXIT_INSTALL_FAILED)
    return output
