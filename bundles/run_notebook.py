"""Run a notebook of the wheel as a script, for serverless compute, which hands a wheel to scripts and to no notebook.

    run_notebook.py NAME PARAMETER=VALUE ...

A wheel has the notebooks of the clone that it is built from, copies of your own too.
"""

from __future__ import annotations

import ast
import json
import sys
from typing import Any

from mirrorlib.platform.shipped import find_shipped

notebook, *given = sys.argv[1:]
names: dict[str, Any] = {"__name__": "__main__"}
cells = json.loads(find_shipped("notebooks", f"{notebook}.ipynb").read_text("utf-8"))["cells"]
for place, cell in enumerate(cells, start=1):
    if cell["cell_type"] == "code":
        # What a cell ends with is printed, as a notebook shows it.
        body = ast.Interactive(ast.parse("".join(cell["source"])).body)
        exec(compile(body, f"<cell {place} of {notebook}>", "single"), names)  # noqa: S102  # its own notebook
        if "parameters" in cell["metadata"].get("tags", ()):
            names |= dict(one.split("=", 1) for one in given)
