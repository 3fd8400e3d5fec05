"""Bring every table of a landing zone up to date: `mirrorlib.apply(spark, landing_zone, target)`.

The package of the stages between a landing zone and its Delta tables, and, called, the whole way:
calling it is calling `mirrorlib.apply.run.apply_zone`, which says what it takes and gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorlib.apply.report import ApplyReport


class _CallablePackage(ModuleType):
    """A package that can be called.

    Whoever imports `mirrorlib.apply.journal` makes Python set `mirrorlib.apply` to this package,
    whatever it was before. So the function cannot have that name; the package has to act for it.
    """

    @property
    def __wrapped__(self) -> Callable[..., ApplyReport]:
        """Where `inspect.signature`, and so a notebook's help, finds the parameters."""
        from mirrorlib.apply.run import apply_zone  # the stages import each other

        return apply_zone

    def __call__(self, *args: object, **options: object) -> ApplyReport:
        return self.__wrapped__(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
