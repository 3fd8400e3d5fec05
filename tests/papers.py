"""Run the shipped notebooks as they are: papermill, and one kernel for all notebooks of a file.

In: a notebook's name and parameters. Out: the executed notebook, whose outputs can be asked for. The
kernel forgets everything between two notebooks but what Python has imported; where tests share a Java
process, its Spark session is one of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.manager import KernelManager
from papermill.exceptions import PapermillExecutionError

import shared_java
from little import LITTLE, SHORT_LIVED, child_environment

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
# What a notebook has made, and nothing of Python's own: `%reset` takes `__spec__` too, which imports ask for.
_FORGET = """
for _name in [name for name in globals() if name[0] != "_" and name not in ("In", "Out", "get_ipython", "exit", "quit", "open")]:
    del globals()[_name]
"""
_PATIENCE = 240  # seconds a cell may take
_SHARED = f"""
import os, shared_java
shared_java.attach(os.environ[{shared_java.PLACE!r}])
"""
_OWN = f"""
import mirrorlib
mirrorlib.local_spark(cores=2, memory="2g", conf={LITTLE!r})
"""


def cells(name: str) -> list[Any]:
    """Read a shipped notebook's cells."""
    found: list[Any] = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells
    return found


@dataclass(frozen=True, slots=True)
class Paper:
    """An executed notebook."""

    cells: list[Any]

    def shown(self, kind: str = "text/plain") -> list[str]:
        """Return what cells have shown of one kind, in order."""
        outputs = [output for cell in self.cells for output in cell.get("outputs", ())]
        return [output["data"][kind] for output in outputs if kind in output.get("data", {})]

    @property
    def printed(self) -> str:
        """Return what was printed."""
        outputs = [output for cell in self.cells for output in cell.get("outputs", ())]
        return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


@dataclass(slots=True)
class Reader:
    """Who runs notebooks, in a folder of his own."""

    kernel: KernelManager
    folder: Path
    spark: str = ""
    before: str = ""  # code of a host, which is run before the notebook

    def run(self, name: str, /, **parameters: object) -> Paper:
        """Run a notebook.

        Raises:
            PapermillExecutionError: a cell has failed.

        """
        self._prepare(_FORGET + self.before)
        out = self.folder / f"{name}.ipynb"
        papermill.execute_notebook(
            FOLDER / f"{name}.ipynb",
            out,
            parameters=parameters,
            km=self.kernel,
            progress_bar=False,
            execution_timeout=_PATIENCE,
        )
        return self.read(name)

    def read(self, name: str) -> Paper:
        """Read an executed notebook, of a run that has failed too."""
        return Paper(nbformat.read(self.folder / f"{name}.ipynb", as_version=4).cells)

    def fail(self, name: str, /, **parameters: object) -> tuple[PapermillExecutionError, Paper]:
        """Run a notebook that has to fail."""
        try:
            self.run(name, **parameters)
        except PapermillExecutionError as exc:
            return exc, self.read(name)
        msg = f"{name} has not failed"
        raise AssertionError(msg)

    def start_spark(self) -> None:
        """Have a session that `local_spark` gives back, once."""
        if not self.spark:
            self.spark = _SHARED if os.environ.get(shared_java.PLACE) else _OWN
            self._prepare(self.spark)

    def _prepare(self, code: str) -> None:
        client = self.kernel.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            reply = client.execute(code, reply=True, timeout=120)
            assert "ok" == reply["content"]["status"], reply["content"]
        finally:
            client.stop_channels()


@contextmanager
def reader(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Reader]:
    """Start a kernel, and end it."""
    kernel = KernelManager(kernel_name="python3")
    told = {"SPARK_SUBMIT_OPTS": SHORT_LIVED, **child_environment(), **(environment or {})}
    kernel.start_kernel(env=told, cwd=str(folder))
    try:
        yield Reader(kernel, folder)
    finally:
        kernel.shutdown_kernel(now=True)
        kernel.cleanup_resources()
