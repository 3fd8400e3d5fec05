"""Write the pages of the site that stand in the code already: Python's names, and every command's help."""

from __future__ import annotations

import argparse
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

import mirrorlib
from mirrorlib.cli.main import make_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/own_sink.py"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, as MkDocs asks its hooks to."""
    pages = {
        "reference/python.md": "\n".join(python_page()),
        "reference/commands.md": "\n".join(commands_page()),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        EXAMPLE: (ROOT / EXAMPLE).read_text(encoding="utf-8"),
    }
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let what links from docs/ to the example beside it find it in the site."""
    del page, config, files
    return markdown.replace(f"](../{EXAMPLE})", f"]({EXAMPLE})")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Call things by the names that users import."""
    del config, files
    if page.file.src_uri == "reference/python.md":
        for name, where in public().items():
            html = html.replace(f">{where.__qualname__}</span>", f">{name}</span>")
    return html


def public() -> dict[str, type]:
    """Give all that users import, functions first, then what they take and give; errors have a page of their own."""
    names = [name for name in mirrorlib.__all__ if not name.startswith("_")]
    names.sort(key=lambda name: (name[0].isupper(), name))
    return {
        name: inspect.unwrap(getattr(mirrorlib, name))
        for name in names
        if not name.endswith("Error")
    }


def python_page() -> Iterator[str]:
    """Say every public name by its docstring."""
    yield "# Python\n"
    yield "Every name is imported from `mirrorlib`. Functions come first, then classes.\n"
    for name, where in public().items():
        yield f"::: {where.__module__}.{where.__qualname__}"
        yield f"    options: {{heading: {name}, show_root_heading: true}}\n"


def commands_page() -> Iterator[str]:
    """Say what `--help` says."""
    os.environ["COLUMNS"] = "90"
    parser = make_parser()
    yield "# Commands\n"
    yield from _help(parser)
    for action in parser._actions:  # noqa: SLF001  # argparse shows its subcommands nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # the same
            for name, command in action.choices.items():
                yield f"## mirrorlib {name}\n"
                yield from _help(command)


def _help(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"```text\n{parser.format_help()}```\n"
