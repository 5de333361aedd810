"""The newest Python of Debian's archive with the newest libraries, none of them pinned: demonstration and tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import run
from tests.live.booted_root import (
    CHECKOUT,
    CHECKOUT_INSIDE,
    ROOTS_VARIABLE,
    add_checkout,
    make_system,
    run_whole,
    skip_unless_possible,
)

pytestmark = [pytest.mark.slow(is_always_run=True), pytest.mark.timeout_s(900)]

LIBRARIES = "usr/src/libraries"
TRIAL = "usr/src/trial"
# What meets other packages most; the tests that take long are those of our own algorithms. Advice to install an extra
# is another one outside of a checkout.
PLACES = "tests/codecs tests/export tests/dataset tests/client tests/web"
ADVICE = "not names_the_extra and not how_to_get_it and not what_cannot_be_shown"
ORACLES = " ".join(f"tests/oracles/test_oracle_{name}.py" for name in ("tifffile", "ndstorage", "pillow"))


# With numbers of processes of its own, all of which end with the first one.
ENTER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-ec")
INSIDE = """
mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount --rbind /sys "$0/sys"; mount -t tmpfs tmpfs "$0/run"
exec chroot "$0" env -i HOME=/root PATH=/usr/bin:/bin LANG=C.UTF-8 HYPOTHESIS_PROFILE=ci PYTHONPATH=/{libraries} \\
    bash -ec "cd /{trial}; $1
exit 0" # a shell that stays, and takes the end of orphaned processes
"""


class NewestSystem:
    """A Debian in a folder, in which commands run."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, script: str) -> str:
        """What a shell script printed inside, where the libraries are; fails if it fails."""
        command = [*ENTER, INSIDE.format(libraries=LIBRARIES, trial=TRIAL), str(self.root), script]
        done = run_whole(command)
        assert done.returncode == 0, f"{script}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewestSystem]:
    skip_unless_possible()
    root = tmp_path_factory.mktemp("newest") / "root"
    root.mkdir()
    try:
        cache = Path(os.environ[ROOTS_VARIABLE]) if os.environ.get(ROOTS_VARIABLE) else None
        make_system(root, cache, "sid", "python3")
        add_checkout(root)
        trial = root / TRIAL
        for name in ("tests", "tools", "docs", "systemd"):  # some tests compare pages and units with the code
            shutil.copytree(CHECKOUT / name, trial / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(CHECKOUT / "pyproject.toml", trial)
        one = NewestSystem(root)
        add_libraries(one)
        yield one
    finally:
        shutil.rmtree(root, ignore_errors=True)


def add_libraries(system: NewestSystem) -> None:
    """acqstream as a user installs it, with what its tests need: the newest versions for the Python inside."""
    version = system.run("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'").strip()
    settings = run.uv_settings(Path(sys.prefix))
    if settings is None:
        pytest.skip("pip is told what uv has no word for, and pip installs for no other Python")
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    command += ["--python-version", version, "--target", str(system.root / LIBRARIES)]
    checkout = system.root / CHECKOUT_INSIDE
    libraries = ["-r", str(checkout / "pyproject.toml"), "--extra", "test", "--extra", "web"]
    for what in (libraries, ["--no-deps", str(checkout)]):
        done = run_whole([*command, *what], {**os.environ, **settings})
        if done.returncode and what is libraries:
            pytest.skip(f"the newest packages for Python {version} cannot be installed: {done.stderr.strip()[-600:]}")
        assert done.returncode == 0, done.stderr


def test_the_demonstration(system: NewestSystem) -> None:
    *_, info, verify, simulate = system.run("cd; python3 -m acqstream demo").splitlines()
    for line, words in ((info, "25"), (verify, "all is well"), (simulate, "100 of 100 frames stored")):
        assert words in system.run(f"cd; {line}")


QUICK = f"-m 'not live and not slow and not oracle' -k '{ADVICE}' {PLACES}"
CHOICES = {"quick": QUICK, "readers": f"-m 'not slow' {ORACLES}"}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_tests_pass(system: NewestSystem, choice: str) -> None:
    assert " passed" in system.run(f"python3 -m pytest -q -n 2 --no-loadscope-reorder -p no:cacheprovider {choice}")
