"""Keep notebooks clean: one form for each, no outputs, one cell of parameters that holds literals only.

    python tools/notebooks.py          rewrite what is not in its form
    python tools/notebooks.py --check  say what is not, and fail

In: `notebooks/*.ipynb`. Out: nbformat 4.5, ids made of the cells' content (the same file whoever writes
it), metadata reduced to what a host needs to open the notebook.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import sys
from collections import Counter
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parent.parent / "notebooks"
PARAMETERS = "parameters"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_ID_LENGTH = 8


def normalise(text: str) -> str:
    """Return a notebook in its one form.

    Raises:
        ValueError: it is no valid notebook, or its parameters are not literals of one cell.

    """
    notebook = nbformat.reads(text, as_version=4)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(_METADATA)
    seen: Counter[str] = Counter()
    for cell in notebook.cells:
        _strip(cell)
        cell.id = _id_of(cell, seen)
    _check_parameters(notebook)
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def _strip(cell: nbformat.NotebookNode) -> None:
    """Leave a cell its source and its tags."""
    cell.source = cell.source.strip("\n")
    tags = cell.metadata.get("tags")
    cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
    cell.pop("attachments", None)
    if cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None


def _id_of(cell: nbformat.NotebookNode, seen: Counter[str]) -> str:
    """Make an id of the content, and of how often the same content came before."""
    content = f"{cell.cell_type}\n{cell.source}"
    seen[content] += 1
    return hashlib.sha256(f"{seen[content]}\n{content}".encode()).hexdigest()[:_ID_LENGTH]


def _check_parameters(notebook: nbformat.NotebookNode) -> None:
    """See that one cell, and only one, is tagged as that of the parameters, and assigns literals only."""
    tagged = [cell for cell in notebook.cells if PARAMETERS in cell.metadata.get("tags", ())]
    if len(tagged) != 1:
        msg = f"{len(tagged)} cells are tagged {PARAMETERS}, not one"
        raise ValueError(msg)
    for statement in ast.parse(tagged[0].source).body:
        if not isinstance(statement, ast.Assign):
            msg = f"the cell of parameters holds more than assignments: {ast.unparse(statement)}"
            raise ValueError(msg)  # noqa: TRY004  # a wrong notebook is a wrong value
        ast.literal_eval(statement.value)


def main() -> int:
    """Check or rewrite; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail instead")
    parser.add_argument("files", nargs="*", type=Path, help="default: notebooks/*.ipynb")
    arguments = parser.parse_args()
    wrong = 0
    for path in arguments.files or sorted(FOLDER.glob("*.ipynb")):
        text = path.read_text()
        try:
            clean = normalise(text)
        except (ValueError, nbformat.ValidationError) as exc:
            print(f"{path}: {exc}", file=sys.stderr)
            wrong += 1
            continue
        if clean == text:
            continue
        if arguments.check:
            print(f"{path}: not in its form; run `make format`", file=sys.stderr)
            wrong += 1
        else:
            path.write_text(clean)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
