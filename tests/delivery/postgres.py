"""A real PostgreSQL for the tests: a cluster of their own, on a free port and a socket in a folder that goes with it.

In: Debian's package `postgresql`, or any other whose programs are on the PATH. Out: `Cluster`. PostgreSQL does
not run as root, so root hands it to the user `postgres`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from servers import lack

if TYPE_CHECKING:
    from collections.abc import Sequence

PASSWORD = "open sesame/&?=%"  # noqa: S105  # odd on purpose: a URL has to carry it
_USER = "mirror"
_ADMIN = "postgres"
# What a lost machine would lose is not what these tests are about: killed processes are.
_QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=50")


@dataclass(slots=True)
class Cluster:
    """A PostgreSQL that runs.

    Attributes:
        folder: its data, its log and its socket.
        port: on 127.0.0.1.

    """

    folder: Path
    port: int

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        """Give the address of a database, as a libpq URL."""
        told = "".join(c if c.isalnum() else f"%{ord(c):02X}" for c in password)
        return f"postgresql://127.0.0.1:{self.port}/{database}?user={_USER}&password={told}"

    def make_database(self, name: str) -> None:
        """Make an empty database."""
        with self.admin("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}" OWNER {_USER}')

    def admin(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect as a superuser, through the socket; every statement commits."""
        return psycopg.connect(
            host=str(self.folder), port=self.port, user=_ADMIN, dbname=database, autocommit=True
        )

    def rows(self, database: str, statement: str) -> list[tuple[Any, ...]]:
        """Ask as a superuser, times in UTC."""
        with self.admin(database) as connection:
            connection.execute("SET timezone = 'UTC'")
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def end_backends(self, database: str) -> int:
        """Kill the server's side of every other connection to a database; return how many there were."""
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        others += " AND backend_type = 'client backend'"  # the server's own workers come and go
        ended = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}"
        return len(self.rows(database, ended))


def programs() -> Path:
    """Find where PostgreSQL's programs are; leave the test out where there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    initdb = Path(on_path) if on_path else found[-1] if found else None
    if initdb is None:
        lack("postgresql", "it is not installed (Debian, Ubuntu: apt-get install postgresql)")
    return initdb.resolve().parent


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Make a cluster, start it, and see to its end."""
    bin_folder = programs()
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-postgres-"))
    if os.getuid() == 0:
        shutil.chown(folder, _ADMIN, _ADMIN)
    data = folder / "data"
    cluster = Cluster(folder, _free_port())
    try:
        _run(
            bin_folder / "initdb", "-D", data, "-U", _ADMIN, "-E", "UTF8", "--locale=C.UTF-8",
            "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync",
        )  # fmt: skip
        settings = [*_QUICK, f"port={cluster.port}", f"unix_socket_directories={folder}"]
        with contextlib.ExitStack() as stack:
            options = " ".join(f"-c {setting}" for setting in settings)
            _run(
                bin_folder / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", options, "start"
            )  # fmt: skip
            stack.callback(_run, bin_folder / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
            with cluster.admin("postgres") as connection:
                connection.execute(f"CREATE USER {_USER} PASSWORD '{PASSWORD}'")
            yield cluster
    finally:
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _run(*command: object) -> None:
    """Run a program, as `postgres` where we are root; what it says is the error when it fails."""
    handed = ["runuser", "-u", _ADMIN, "--"] if os.getuid() == 0 else []
    words: Sequence[str] = [*handed, *map(str, command)]
    # The server keeps what it inherits: a pipe would never end, so what is said goes to a file.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(words, stdout=said, stderr=said, check=False, cwd="/")
        said.seek(0)
        text = said.read().decode(errors="replace")
    assert done.returncode == 0, f"{words}: {text}"
