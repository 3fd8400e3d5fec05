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

if not sys.argv[1:] or not all("=" in one for one in sys.argv[2:]):
    sys.exit("usage: run_notebook.py NAME PARAMETER=VALUE ...")
notebook, *words = sys.argv[1:]
given = dict(one.split("=", 1) for one in words)
names: dict[str, Any] = {"__name__": "__main__"}
cells = json.loads(find_shipped("notebooks", f"{notebook}.ipynb").read_text("utf-8"))["cells"]
for place, cell in enumerate(cells, start=1):
    if cell["cell_type"] != "code":
        continue
    where, body = f"<cell {place} of {notebook}>", ast.parse("".join(cell["source"])).body
    last = [body.pop()] if body and isinstance(body[-1], ast.Expr) else []
    exec(compile(ast.Module(body, []), where, "exec", dont_inherit=True), names)  # noqa: S102  # its own notebook
    # What a cell ends with is printed, as a notebook shows it.
    exec(compile(ast.Interactive(last), where, "single", dont_inherit=True), names)  # noqa: S102  # the same
    if "parameters" in cell["metadata"].get("tags", ()):
        if unknown := given.keys() - names:
            sys.exit(f"the notebook {notebook} has no parameter {', '.join(sorted(unknown))}")
        names |= given
