"""`acqstream keys`: keys for connections from other machines."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Role(StrEnum):
    server = "server"
    client = "client"


_NEXT = {
    Role.server: "name the secret one as server_key in acqstream.toml; give the public one to the clients",
    Role.client: "copy the public one into the daemon's client_keys folder; name the secret one in ACQSTREAM_KEYS",
}


def keys(
    role: Annotated[Role, typer.Argument(help="Whose keys.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the keys; created if it is missing.")],
    *,
    name: Annotated[str | None, typer.Option(help="Name of the files [default: server or client].")] = None,
) -> None:
    """Make a pair of keys, for use from other machines.

    Both files can be read by this user only. The one that ends with .key is public, the other one a secret.
    """
    from acqstream.client.keys import make_keys

    public, secret = make_keys(folder, name or role.value)
    print(f"public  {public}\nsecret  {secret}\nnext    {_NEXT[role]}")
