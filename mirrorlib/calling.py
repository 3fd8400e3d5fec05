"""Let a package be called, where a function of the same name is what users look for.

Whoever imports `mirrorlib.journal.disk` makes Python set `mirrorlib.apply` to that package,
whatever it was before. So the function cannot have that name; the package has to act for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType


class CallablePackage(ModuleType):
    """A package whose `CALLED` names a function of one of its modules: "module:function"."""

    CALLED: str

    @property
    def __wrapped__(self) -> Callable[..., object]:
        """Where `inspect.signature`, and so a notebook's help, finds the parameters."""
        module, _, function = self.CALLED.partition(":")
        found: Callable[..., object] = getattr(import_module(f"{self.__name__}.{module}"), function)
        return found  # imported when it is called: the modules import each other

    def __call__(self, *args: object, **options: object) -> object:
        """Call the function."""
        return self.__wrapped__(*args, **options)


def let_call(package: str) -> None:
    """Make a package that has been imported one that can be called."""
    sys.modules[package].__class__ = CallablePackage
