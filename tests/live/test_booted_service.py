"""The services on a real system: Debian, booted by systemd, installed by the commands of docs/system-service.md."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.booted_root import CHECKOUT_INSIDE, ROOTS_VARIABLE, SUITE_PYTHON, make_root, skip_unless_possible
from tests.live.booted_system import PROGRAM, PYTHON, BootedSystem, Producer
from tests.live.service_page import INSTALL_PAGE, commands

pytestmark = [pytest.mark.slow(is_always_run=True), pytest.mark.timeout_s(1200)]

MEMBER, STRANGER, OWNER = "alice", "mallory", "bob"  # in the group; outside of it; has a service of his own
DATA = "/srv/acqstream"
SOCKET = "/run/acqstream/acqstream.sock"
_INSTALL = f"apt install python{SUITE_PYTHON}-venv"
EXPOSURE = 20  # as in test_service_units
DROP_IN = "etc/systemd/system/acqstream.service.d"
TOKEN = "/run/acqstream/web-token"
WEB_SOCKET = "/run/acqstream/web.sock"
# Prints the status of the answer to a request, and its text; 0 and the reason where no process answers.
_ASK = """
import http.client, socket, sys
place, path, token = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""
connection = http.client.HTTPConnection("127.0.0.1", 5280, timeout=60)
try:
    if place != "port":
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(place)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    print(answer.status, answer.read())
except OSError as error:
    print(0, error)
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedSystem]:
    """A booted system with three users and nothing else."""
    skip_unless_possible()
    root = tmp_path_factory.mktemp("booted") / "root"
    root.mkdir()
    one = BootedSystem(root)
    try:
        make_root(root, Path(os.environ[ROOTS_VARIABLE]) if os.environ.get(ROOTS_VARIABLE) else None)
        one.boot()
        one.run(f"for user in {MEMBER} {STRANGER} {OWNER}; do useradd --create-home --shell /bin/bash $user; done")
        yield one
    finally:
        one.power_off()


@pytest.fixture(scope="module")
def installed(system: BootedSystem) -> BootedSystem:
    """With the system service, as the page says."""
    assert not (system.root / "etc" / "sysusers.d").exists()  # as on a minimal system
    script = commands("System service").replace("NAME", MEMBER)
    assert MEMBER in script
    system.run(f"cd /{CHECKOUT_INSIDE}\n{script}")
    return system


@pytest.fixture
def service(installed: BootedSystem) -> Iterator[BootedSystem]:
    """The system service, running as it was installed, whatever the test before has done to it."""
    installed.run(f"rm -rf {DATA}/*; systemctl reset-failed acqstream; systemctl start acqstream")
    yield installed
    if (installed.root / DROP_IN).exists():
        installed.run(f"rm -r /{DROP_IN}; systemctl daemon-reload; systemctl stop acqstream")


@pytest.fixture(scope="module")
def own_checkout(system: BootedSystem) -> str:
    """A copy of the checkout that an ordinary user has."""
    system.run(f"cp -r /{CHECKOUT_INSIDE} /home/{OWNER}/acqstream && chown -R {OWNER}: /home/{OWNER}/acqstream")
    return f"/home/{OWNER}/acqstream"


def test_a_python_without_ensurepip_names_the_command_to_type(system: BootedSystem, own_checkout: str) -> None:
    """As where the package python3-venv is missing: what it adds is this folder."""
    package = f"/usr/lib/python{SUITE_PYTHON}/ensurepip"
    system.run(f"mv {package} /root/ensurepip")
    try:
        for user, command in ((OWNER, f"su -c '{_INSTALL}'"), ("root", _INSTALL)):
            done = system.run(f"cd {own_checkout} && python3 tools/run.py demo", user=user, check=False)
            assert done.returncode == 4, done.stdout
            assert done.stderr.endswith(f"Type:\n    {command}\n    python3 tools/run.py demo\n")
    finally:
        system.run(f"mv /root/ensurepip {package}; rm -rf {own_checkout}/.venv-demo*")


def test_the_first_command_of_the_readme(system: BootedSystem, own_checkout: str) -> None:
    """As an ordinary user of a stock Debian 12, whose Python is 3.11.2 and externally managed, from a checkout."""
    assert system.run("python3 -c 'import sys; print(sys.version_info[:3])'").stdout.strip() == "(3, 11, 2)"
    system.run(f"test -f /usr/lib/python{SUITE_PYTHON}/EXTERNALLY-MANAGED")
    done = system.run(f"cd {own_checkout} && python3 tools/run.py demo", user=OWNER)
    *_, info, verify, simulate = done.stdout.splitlines()
    for line, words in ((info, "25"), (verify, "all is well"), (simulate, "100 of 100 frames stored")):
        assert words in system.run(f"cd {own_checkout} && {line}", user=OWNER).stdout


def test_the_demonstration_of_an_installed_package(system: BootedSystem, own_checkout: str) -> None:
    """Installed by the commands of docs/install.md, and typed in the user's own folder."""
    install, demo = commands("In an environment of its own", INSTALL_PAGE).rsplit("\n", 2)[:2]
    done = system.run(f"cd {own_checkout}\n{install}\ncd\n{demo}", user=OWNER)
    *_, info, verify, simulate = done.stdout.splitlines()
    for line in (info, verify, simulate):
        system.run(f"cd /home/{OWNER} && {line}", user=OWNER)
    done = system.run(f"cd /usr && {demo}", user=OWNER, check=False)
    assert done.returncode == 78
    assert "in /usr: Permission denied; change to a folder of your own (cd)" in done.stderr


def is_listening_on_tcp(system: BootedSystem) -> bool:
    """Any process: the system has a network of its own."""
    lines = system.run("cat /proc/net/tcp /proc/net/tcp6").stdout.splitlines()
    return any(fields[3] == "0A" for fields in map(str.split, lines) if len(fields) > 3)


def verify(system: BootedSystem, name: str, user: str = MEMBER, data: str = DATA) -> None:
    done = system.run(f"{PROGRAM} verify {data}/{name}", user=user)
    assert "all is well" in done.stdout


def test_the_service_runs_and_is_exposed_little(service: BootedSystem) -> None:
    assert service.run("systemctl is-active acqstream; systemctl is-enabled acqstream").stdout.split() == [
        "active",
        "enabled",
    ]
    service.run(f"systemd-analyze security --threshold={EXPOSURE} acqstream")
    service.wait_until(lambda: service.unit("StatusText").startswith("idle, "), "the status line is there")
    assert service.run("stat -c '%a %U %G' /run/acqstream").stdout.split() == ["750", "acqstream", "acqstream"]
    assert not is_listening_on_tcp(service)


def test_a_member_records_with_mirror_and_pyramid(service: BootedSystem) -> None:
    service.acqstream("simulate --frames 40 --shape 64,64 --name cells --mirror n5", user=MEMBER)
    service.acqstream("simulate --tiles 3x3 --shape 64,64 --overlap 8,8 --name tiles", user=MEMBER)
    service.wait_until(lambda: not service.status(MEMBER)["views"]["mirrors"], "mirror and pyramid are complete")
    for name in ("cells", "tiles"):
        verify(service, name)
    assert "complete" in service.run("journalctl -u acqstream --grep 'view n5 of'").stdout
    assert "complete" in service.run("journalctl -u acqstream --grep 'view pyramid of'").stdout
    service.acqstream(f"info {DATA}/cells.n5", user=MEMBER)
    with Producer(service, "shared", user=MEMBER) as producer:
        assert producer.transport == "shm"
        producer.wait_for_more()
        (one,) = service.status(MEMBER)["acquisitions"]
        assert (one["transport"], one["transport_why"]) == ("shm", "")
        is_complete, stored, put = producer.close()
    assert (is_complete, stored) == (True, put)
    service.run(f"mv {DATA}/shared {DATA}/moved && rm -r {DATA}/moved", user=MEMBER)


def test_a_stranger_can_neither_record_nor_stop_nor_look(service: BootedSystem) -> None:
    with Producer(service, "cells", user=MEMBER) as producer:
        producer.wait_for_more()
        for attempt in ("simulate --frames 3 --name stranger", "stop cells", "status"):
            done = service.acqstream(*shlex.split(attempt), user=STRANGER, check=False)
            assert done.returncode == 69, attempt
            assert "you are not in group acqstream" in done.stderr
        done = service.acqstream("stop cells --endpoint", f"ipc://{SOCKET}", user=STRANGER, check=False)
        assert done.returncode == 69
        assert "you are not in group acqstream" in done.stderr
        for path in ("/run/acqstream", SOCKET, DATA, "/etc/acqstream/acqstream.toml"):
            assert "Permission denied" in service.run(f"ls {path}/", user=STRANGER, check=False).stderr
        assert "refused" in service.run("echo > /dev/tcp/127.0.0.1/5271", user=STRANGER, check=False).stderr
        producer.wait_for_more()
        assert producer.close()[0]
    assert service.run(f"ls {DATA}").stdout.split() == ["cells"]


@pytest.fixture(scope="module")
def own_service(installed: BootedSystem) -> BootedSystem:
    """With the user service of one who is not in the group, as the page says."""
    installed.run(f"cp -r /{CHECKOUT_INSIDE} /home/{OWNER}/checkout && chown -R {OWNER}: /home/{OWNER}/checkout")
    installed.run(f"cd checkout && set -e\n{commands('User service')}", user=OWNER, login=True)
    return installed


def test_the_user_service_records_for_its_owner(own_service: BootedSystem) -> None:
    own = f"/home/{OWNER}/.local/bin/acqstream"
    assert own_service.run("systemctl --user is-active acqstream", user=OWNER, login=True).stdout.strip() == "active"
    assert own_service.run(f"loginctl show-user {OWNER} --property=Linger").stdout.strip() == "Linger=yes"
    own_service.run(f"{own} simulate --frames 30 --shape 64,64 --name mine --mirror n5", user=OWNER)
    own_service.run(f"{own} verify /home/{OWNER}/data/mine", user=OWNER)
    assert own_service.run(f"stat -c %U /home/{OWNER}/data/mine").stdout.strip() == OWNER


def test_one_who_is_in_the_group_and_has_a_service_of_his_own_gets_his_own(
    own_service: BootedSystem, service: BootedSystem
) -> None:
    service.run(f"usermod -aG acqstream {OWNER}")
    try:
        assert service.status(OWNER)["data"] == f"/home/{OWNER}/data"
        service.run("systemctl --user stop acqstream", user=OWNER, login=True)
        assert service.status(OWNER)["data"] == DATA
        service.run("systemctl --user start acqstream", user=OWNER, login=True)
    finally:
        service.run(f"gpasswd --delete {OWNER} acqstream")


def test_a_program_that_sees_another_boot_id_shares_memory(service: BootedSystem) -> None:
    boot_id = "/proc/sys/kernel/random/boot_id"  # systemd-nspawn has mounted one of its own over the machine's
    seen = service.run(f"cat {boot_id}; unshare --mount sh -c 'umount {boot_id} && cat {boot_id}'").stdout.split()
    assert len(set(seen)) == 2, seen
    prefix = ("unshare", "--mount", "sh", "-c", f'umount {boot_id} && exec runuser -u {MEMBER} -- "$@"', "sh")
    with Producer(service, "cells", "transport=shm", user=MEMBER, prefix=prefix) as producer:
        assert producer.transport == "shm"
        producer.wait_for_more()
        assert producer.close()[0]
    verify(service, "cells")


def test_in_a_container_that_does_not_see_the_sockets_frames_go_over_tcp(own_service: BootedSystem) -> None:
    """With the boot id of the machine, and a folder of its own where the daemon has its sockets."""
    number = own_service.run(f"id -u {OWNER}").stdout.strip()
    hide = f"mount -t tmpfs tmpfs /run/user/{number}"
    prefix = ("unshare", "--mount", "sh", "-c", f'{hide} && exec runuser -u {OWNER} -- "$@"', "sh")
    options = ("endpoint=tcp://127.0.0.1:5271",)
    with Producer(own_service, "far", *options, user=OWNER, prefix=prefix) as producer:
        assert producer.transport == "tcp"
        producer.wait_for_more()
        assert producer.close()[0]


@pytest.mark.promise("system-service")
def test_after_a_kill_the_service_starts_again_and_the_producer_continues(service: BootedSystem) -> None:
    with Producer(service, "cells", user=MEMBER) as producer:
        producer.wait_for_more()
        before = service.unit("MainPID")
        service.run("systemctl kill --signal=KILL --kill-who=main acqstream")
        service.wait_until(lambda: service.unit("MainPID") not in ("0", before), "another process is the service")
        producer.wait_for_more()
        is_complete, stored, put = producer.close()
    assert (is_complete, stored) == (True, put)
    verify(service, "cells")


def test_the_watchdog_replaces_a_process_that_stands_still(service: BootedSystem) -> None:
    service.run(f"mkdir /{DROP_IN}; printf '[Service]\\nWatchdogSec=4s\\n' > /{DROP_IN}/short.conf")
    service.run("systemctl daemon-reload; systemctl restart acqstream")
    with Producer(service, "cells", user=MEMBER) as producer:
        producer.wait_for_more()
        before = service.unit("MainPID")
        service.run("systemctl kill --signal=STOP --kill-who=main acqstream")
        service.wait_until(lambda: service.unit("MainPID") not in ("0", before), "another process is the service")
        assert "Watchdog timeout" in service.run("journalctl -u acqstream --grep 'Watchdog timeout'").stdout
        producer.wait_for_more()
        is_complete, stored, put = producer.close()
    assert (is_complete, stored) == (True, put)
    verify(service, "cells")


@pytest.mark.promise("system-service")
def test_an_upgrade_while_a_program_records_loses_nothing(service: BootedSystem) -> None:
    version = service.root / CHECKOUT_INSIDE / "acqstream" / "__init__.py"
    text = version.read_text(encoding="utf-8")
    with Producer(service, "cells", user=MEMBER) as producer:
        producer.wait_for_more()
        version.write_text(re.sub(r'__version__ = ".*"', '__version__ = "9.9.9"', text), encoding="utf-8")
        service.run(f"cd /{CHECKOUT_INSIDE}\n{commands('Upgrade')}")
        assert service.status(MEMBER)["version"] == "9.9.9"
        producer.wait_for_more()
        is_complete, stored, put = producer.close()
    assert (is_complete, stored) == (True, put)
    verify(service, "cells")


def test_stop_finishes_runs_in_order_and_they_can_be_resumed(service: BootedSystem) -> None:
    with Producer(service, "cells", "patience_s=10", user=MEMBER) as producer:
        producer.wait_for_more()
        service.run("systemctl stop acqstream")
        assert "DaemonUnavailable" in producer.wait()
    assert service.unit("Result") == "success"
    assert service.run("ls /run").stdout.split().count("acqstream") == 0
    verify(service, "cells")
    assert "interrupted; nothing is being written" in service.acqstream(f"info {DATA}/cells", user=MEMBER).stdout
    service.run("systemctl start acqstream")
    with Producer(service, "cells", "resume=1", user=MEMBER) as producer:
        producer.wait_for_more()
        is_complete, stored, put = producer.close()
    assert (is_complete, stored) == (True, put)
    verify(service, "cells")


def test_a_full_disk_pauses_and_is_reported(service: BootedSystem) -> None:
    small = "size=160m,mode=2770,uid=acqstream,gid=acqstream"
    config = "/etc/acqstream/acqstream.toml"
    service.run(f"systemctl stop acqstream; mount -t tmpfs -o {small} tmpfs {DATA}; cp {config} /root/kept.toml")
    try:
        service.run(f"printf '\\nreserve_mb = 32\\nballast_mb = 4\\n' >> {config}; systemctl start acqstream")
        with Producer(service, "cells", user=MEMBER) as producer:
            producer.wait_for_more()
            service.run(f"fallocate -l 140M {DATA}/filler || head -c 140M /dev/zero > {DATA}/filler", check=False)

            def why() -> str:
                (one,) = service.status(MEMBER)["acquisitions"]
                return str(one["paused"])

            service.wait_until(lambda: why() != "", "the run is paused")
            assert "reserve_mb" in why()
            assert "PAUSED" in service.acqstream("status", user=MEMBER).stdout
            service.run(f"rm {DATA}/filler")
            service.wait_until(lambda: why() == "", "the run goes on")
            producer.wait_for_more()
            is_complete, stored, put = producer.close()
        assert (is_complete, stored) == (True, put)
        verify(service, "cells")
    finally:
        service.run(f"systemctl stop acqstream; umount {DATA}; mv /root/kept.toml {config}", check=False)


@pytest.fixture(scope="module")
def web_service(installed: BootedSystem) -> BootedSystem:
    """With the web face, as the page says. The tests before this one need a service that listens at no port."""
    installed.run(f"cd /{CHECKOUT_INSIDE}\n{commands('Web face')}")
    return installed


def ask(system: BootedSystem, path: str, *token: str, user: str, place: str = "port") -> tuple[int, str]:
    """The status of the web face's answer to a user inside, and its text; 0 and the reason where there is none."""
    words = " ".join(map(shlex.quote, [PYTHON, "-c", _ASK, place, path, *token]))
    status, _, text = system.run(words, user=user).stdout.partition(" ")
    return int(status), text


def token_of(system: BootedSystem, user: str = MEMBER) -> str:
    """What a user reads in the token file; waits for the start of the web face."""
    system.wait_until(lambda: ask(system, "/", user=user)[0] != 0, "the web face answers")
    return system.run(f"cat {TOKEN}", user=user).stdout.strip()


def web_process(system: BootedSystem) -> str:
    """The number of the web face's process; empty while there is none."""
    files = system.run("grep -l '[w]eb_server' /proc/[0-9]*/cmdline", check=False).stdout.split()
    return " ".join(file.split("/")[2] for file in files)


def test_the_web_face_answers_members_alone(web_service: BootedSystem, service: BootedSystem) -> None:
    service.acqstream("simulate --frames 5 --shape 64,64 --name cells", user=MEMBER)
    document = "/data/cells/ome.zarr/zarr.json"
    token = token_of(service)
    assert service.run(f"stat -c '%a %U %G' {TOKEN}").stdout.split() == ["640", "acqstream", "acqstream"]
    status, text = ask(service, document, token, user=MEMBER)
    assert (status, "multiscales" in text) == (200, True)
    assert "Permission denied" in service.run(f"cat {TOKEN}", user=STRANGER, check=False).stderr
    for path in (document, "/", "/metrics", "/data/", f"/t/{'x' * 32}/data/"):
        for wrong in ((), ("x" * 32,)):
            status, text = ask(service, path, *wrong, user=STRANGER)
            assert status == 401, path
            assert "cells" not in text
    assert service.status(MEMBER)["data"] == DATA


def test_the_web_face_at_a_local_socket(web_service: BootedSystem, service: BootedSystem) -> None:
    own = f"{PROGRAM} web --data {DATA} --socket {WEB_SOCKET}"
    service.run(f"systemd-run --quiet --unit=web-at-socket --uid=acqstream --gid=acqstream {own}")
    try:
        service.wait_until(lambda: ask(service, "/", user=MEMBER, place=WEB_SOCKET)[0] == 200, "it answers")
        status, text = ask(service, "/", user=STRANGER, place=WEB_SOCKET)
        assert (status, "Permission denied" in text) == (0, True)
    finally:
        service.run("systemctl stop web-at-socket")


def test_a_killed_web_face_costs_the_run_nothing(web_service: BootedSystem, service: BootedSystem) -> None:
    token = token_of(service)
    with Producer(service, "cells", user=MEMBER) as producer:
        producer.wait_for_more()
        daemon, before = service.unit("MainPID"), web_process(service)
        service.run(f"kill -KILL {before}")
        producer.wait_for_more()
        service.wait_until(lambda: web_process(service) not in ("", before), "another web face is started")
        answers = ("/data/cells/ome.zarr/zarr.json", token)
        service.wait_until(lambda: ask(service, *answers, user=MEMBER)[0] == 200, "it answers to the same token")
        is_complete, stored, put = producer.close()
    assert (is_complete, stored) == (True, put)
    assert service.unit("MainPID") == daemon
    verify(service, "cells")


def test_stop_ends_the_web_face_too(web_service: BootedSystem, service: BootedSystem) -> None:
    token = token_of(service)
    assert web_process(service)
    service.run("systemctl stop acqstream")
    assert service.unit("Result") == "success"
    assert web_process(service) == ""
    assert ask(service, "/", token, user=MEMBER)[0] == 0
    service.run("systemctl start acqstream")
    assert token_of(service) != token  # the token is one of this start, as the page says


@pytest.fixture(scope="module")
def without_disk(installed: BootedSystem) -> BootedSystem:
    """Booted again, without the disk that fstab names: an image in a file, as containers have no disks."""
    installed.run(f"systemctl stop acqstream; find {DATA} -mindepth 1 -delete")
    (installed.root / "etc" / "fstab").write_text(f"/disk.img {DATA} ext4 loop,nofail 0 0\n", encoding="utf-8")
    installed.reboot()
    return installed


def test_without_its_disk_the_system_boots_and_the_service_does_not(without_disk: BootedSystem) -> None:
    """Comes last, as the others need the service as it was installed."""
    service = without_disk
    assert service.run("systemctl is-active multi-user.target").stdout.strip() == "active"
    assert service.unit("ActiveState") == "inactive"
    started = service.run("systemctl start acqstream", check=False)
    assert started.returncode != 0
    assert "dependency" in started.stderr
    assert service.run(f"ls -A {DATA}").stdout == ""
    assert service.acqstream("status --endpoint", f"ipc://{SOCKET}", user=MEMBER, check=False).returncode == 69
    (service.root / "etc" / "fstab").write_text(f"/disk {DATA} none bind,nofail 0 0\n", encoding="utf-8")
    service.run(
        "install -d -m 2770 -o acqstream -g acqstream /disk; systemctl daemon-reload; systemctl start acqstream"
    )
    service.acqstream("simulate --frames 5 --shape 64,64 --name cells", user=MEMBER)
    verify(service, "cells")
    assert (service.root / "disk" / "cells").is_dir()
    service.run(f"systemctl stop acqstream; umount {DATA}")
    assert service.run(f"ls -A {DATA}").stdout == ""
