"""The repository keeps its own promises: imports, public names, the README's words."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import get_args

import pytest

import mirrorlib
from little import understand
from mirrorlib import extras
from mirrorlib.ingest.run import apply_zone

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "mirrorlib").rglob("*.py"))
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
HEAVY = ("delta", "numpy", "obstore", "pandas", "pyarrow", "pyspark", "rich")


def printed(program: str) -> str:
    """Run a program in a fresh interpreter, and give what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


# Imports


@pytest.mark.parametrize(
    "module",
    ["mirrorlib", "mirrorlib.ingest", "mirrorlib.names", "mirrorlib.landing.metadata.declared"],
)
def test_importing_is_cheap(module: str) -> None:
    """Nothing heavy is imported before it is used."""
    program = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"

    assert "[]" == printed(program)


def test_help_comes_at_once() -> None:
    """Not before a command is asked for is any other module of ours imported, or a slow one of Python's."""
    program = (
        "import sys\nfrom mirrorlib.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "slow = {'dataclasses', 'importlib.metadata', 'logging', 'typing'} & {*sys.modules}\n"
        "print(*slow, *(name for name in sys.modules if name.startswith('mirrorlib')), sep=',')"
    )

    assert "mirrorlib,mirrorlib.cli,mirrorlib.cli.main" == printed(program).splitlines()[-1]


@pytest.mark.parametrize("module", ["mirrorlib.cli.run", "mirrorlib.operate.status"])
def test_nothing_imports_spark_until_it_is_used(module: str) -> None:
    """`--help` and `status` start at once, also where no Spark is installed."""
    # pyarrow takes numpy when it is there; pandas it takes with the first value that it makes.
    unwanted = ("delta", "pandas", "pyspark")

    assert "[]" == printed(
        f"import sys, {module}; print([name for name in {unwanted!r} if name in sys.modules])"
    )


# What takes a session, and so finds Spark at hand; all else has to do without, as have the commands.
WITH_SPARK = {
    "FoundrySchema", "apply", "current_view", "derive", "export", "from_foundry_schema", "key_feed",
    "maintain_current_view", "plan", "read_current_view", "read_feed", "rebuild",
    "register_sources", "stream_apply", "stream_feed", "to_foundry_schema", "undo_rebuild", "verify", "verify_consumer",
}  # fmt: skip


def test_the_package_needs_pyarrow_and_obstore_only() -> None:
    """What modules import at their top level is in the standard library, or one of the two, or ours, or Spark."""
    allowed = {*sys.stdlib_module_names, "mirrorlib", "obstore", "pyarrow", "pyspark"}
    found = {
        (path.name, name.partition(".")[0])
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }

    # Kafka's client is imported once a Kafka address was opened, which says how to install it where it lacks.
    kafka = {path.name for path in MODULES if path.parent.name == "kafka"} - {"__init__.py"}
    found -= {(module, "confluent_kafka") for module in kafka}
    # So are the libraries of listeners, once somebody asks for one.
    found -= {("to_openlineage.py", "openlineage"), ("to_otel.py", "opentelemetry")}

    assert set() == {(module, name) for module, name in found if name not in allowed}


def test_what_takes_no_session_needs_no_spark() -> None:
    """Commands and public names are there without it, and those that take a session say what to install."""
    program = """
import importlib, sys, mirrorlib
from importlib.machinery import PathFinder
from mirrorlib.cli.main import main

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "pyspark" else find(name, *more)
for name in sys.argv[1:]:
    importlib.import_module(name)
for name in mirrorlib.__all__:
    try:
        getattr(mirrorlib, name)
    except mirrorlib.LocalSparkError as error:
        print(error)
sys.stderr = sys.stdout
main(["feed", ".", "orders"])
"""
    commands = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in MODULES
        if "cli" in path.parts and "__" not in path.name
    ]
    *said, feed = subprocess.run(
        [sys.executable, "-c", program, *commands], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert sorted(WITH_SPARK) == [line.partition(" needs Spark")[0] for line in said]
    assert "the Python package pyspark is not installed" in feed
    assert all("Install it: pip install delta-spark==" in line for line in (*said, feed))


def test_only_one_module_builds_a_session() -> None:
    """Everything else is given its session."""
    assert ["session.py"] == [
        path.name for path in MODULES if "SparkSession.builder" in path.read_text()
    ]


# The public names


def test_public_names_are_sorted_and_there() -> None:
    """`__all__` and `dir` list the same names, and each can be had."""
    names = mirrorlib.__all__

    assert sorted(names) == names == dir(mirrorlib)
    assert all(getattr(mirrorlib, name) is not None for name in names)


_AT_ONCE = """
import gc, sys, threading, time, mirrorlib
class Yielding:
    def __init__(self): self.me = self
    def __del__(self): time.sleep(0)
sys.setswitchinterval(1e-7)
gc.set_threshold(5)  # destructors run in the middle of everything, and let others go on
failures = []
def find():
    try:
        for _ in range(60):
            kept = Yielding()  # goes in the middle of the next round
            mirrorlib._public()
    except BaseException as exc:
        failures.append(exc)
threads = [threading.Thread(target=find) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
sys.exit(repr(failures[0]) if failures else 0)
"""


def test_threads_may_ask_for_their_first_name_at_once() -> None:
    """Python 3.11's parser fails where another thread parses meanwhile: a torture run met that."""
    done = subprocess.run(
        [sys.executable, "-c", _AT_ONCE], capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_other_names_are_not_there() -> None:
    """A typing error is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'aply'"):
        mirrorlib.aply  # noqa: B018  # the access is the test


@pytest.mark.parametrize(
    "imports",
    [
        "import mirrorlib",
        "from mirrorlib.journal.disk import Journal; import mirrorlib",
        "import mirrorlib; mirrorlib.apply; import mirrorlib.journal.disk as journal; journal.Journal",
        "import mirrorlib; mirrorlib.plan; mirrorlib.status; from mirrorlib.ingest import preview, report",
        "from mirrorlib import apply as chosen; import mirrorlib; assert chosen is mirrorlib.apply",
    ],
)
def test_apply_can_be_called_after_any_imports(imports: str) -> None:
    """It is a function, whatever came first."""
    program = (
        f"{imports}\n"
        "try: mirrorlib.apply(None, '/nowhere', '/nowhere/else')\n"
        "except mirrorlib.LandingZoneError: print('called')\n"
    )

    assert "called" == printed(program)


def test_apply_shows_its_parameters() -> None:
    """A notebook's help finds them."""
    assert inspect.signature(apply_zone) == inspect.signature(mirrorlib.apply)


def test_the_version_is_that_of_the_installed_distribution() -> None:
    """Commits and reports say it; a copy without a history has the one that the changelog is at."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert mirrorlib.__version__ in {installed_version(), "0+source"}
    assert found["fallback-version"] == next(one for one in headings if one[0].isdigit())


def installed_version() -> str | None:
    """Of the distribution here; no one where the package is imported from a folder."""
    try:
        return metadata.version("mirrorlib-delta")
    except metadata.PackageNotFoundError:
        return None


# How it is installed


def test_nothing_leads_to_the_other_mirrorlib_of_the_package_index() -> None:
    """It is somebody else's: ours comes from a clone or as the wheel that was built."""
    places = ("mirrorlib", "docs", "notebooks", "bundles", "examples")
    files = [
        path
        for place in places
        for path in (ROOT / place).rglob("*")
        if path.suffix != ".pyc" and path.is_file()
    ]
    files += [
        ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")
    ]
    by_name = re.compile(rb"mirrorlib\[[a-z]|\b(install|add) (-\S+ )*['\"]?mirrorlib\b(?!-)")

    assert [] == [path for path in files if by_name.search(path.read_bytes())]


def test_what_an_error_says_to_install_is_what_the_extra_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the same versions; in a source tree, which nobody has installed, the extra alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    for extra in get_args(extras.Extra):
        command, _, clone = extras.how_to_install(extra).partition(", or in a clone: ")
        assert {*project["optional-dependencies"][extra]} == {*shlex.split(command)[4:]}
        assert f"pip install '.[{extra}]'." == clone
    monkeypatch.setattr(extras, "_SELF", "nobody-has-this")
    assert "Install it in a clone: pip install '.[kafka]'." == extras.how_to_install("kafka")


# The README


@pytest.mark.parametrize("code", [text for language, text in BLOCKS if language == "python"])
def test_the_readmes_python_uses_public_names_only(code: str) -> None:
    """Its names exist, and what is called takes what it is given."""
    tree = ast.parse(code)
    names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "mirrorlib"
    }

    assert names
    assert names <= set(mirrorlib.__all__)


def readme_commands() -> list[str]:
    """Give every command line of ours that the README shows."""
    lines = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
    return [line.partition("#")[0] for line in lines if re.match(r"(\.venv/bin/)?mirrorlib ", line)]


@pytest.mark.parametrize("line", readme_commands())
def test_the_readmes_commands_are_understood(line: str) -> None:
    """Every word of each: nothing is missing, and an option that is not there would be named."""
    words = shlex.split(line)[1:]

    assert "" == understand(words)
    assert "unrecognized arguments: --nonsense" == understand([*words, "--nonsense"])


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"]
)
def test_the_links_of_pages_outside_the_site_lead_to_files(page: str) -> None:
    """Those of the site are looked at when it is built."""
    found = re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8"))
    links = [link for link in found if "://" not in link]

    assert [] == [link for link in links if not ((ROOT / page).parent / link).exists()]


def test_every_make_target_in_the_documents_exists() -> None:
    """README and CONTRIBUTING name no target that the Makefile lacks."""
    makefile = (ROOT / "Makefile").read_text()
    text = README + (ROOT / "CONTRIBUTING.md").read_text()

    for target in set(re.findall(r"(?:^|`)make (\w+)", text, flags=re.MULTILINE)):
        assert f"\n{target}: " in makefile
