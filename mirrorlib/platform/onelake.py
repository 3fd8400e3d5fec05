"""Make OneLake's addresses of `Files/…` and `Tables/…`, which on Fabric mean the notebook's default lakehouse.

In: a parameter's value, and what Fabric says of the notebook. Out: the same value, or its address. A kind of
receiver may stand before the place: `files:Files/out`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrorlib.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOST = "onelake.dfs.fabric.microsoft.com"
_FOLDERS = ("Files", "Tables")  # of a lakehouse
# SQLite would take the path for one of the driver's own disk, which goes with the session, or lock and write in place
# on a mount of OneLake.
_SQLITE = re.compile(r"jdbc:sqlite:(//)?(\./)?(/lakehouse/default/)?(Files|Tables)(/|$)")


def onelake_address(about: Mapping[str, str | None], name: str, value: str) -> str:
    """Return the address of a place in the default lakehouse; any other value as it is.

    Args:
        about: Fabric's runtime context.
        name: the parameter, for the error.
        value: what it says.

    Raises:
        ParameterError: it is such a place, and the notebook has no default lakehouse; or it is a file of
            SQLite, for which OneLake is no disk.

    """
    kind, colon, rest = value.partition(":")
    place = rest if colon and kind.isalpha() else value
    if _SQLITE.match(value):
        msg = f"the parameter {name} puts a file of SQLite into a lakehouse, which is no disk"
        step = "Name files:Files/…, delta:Tables/… or a server, jdbc:postgresql://…."
        raise ParameterError(msg, found=value, next_step=step)
    if place.partition("/")[0] not in _FOLDERS:
        return value
    workspace = about.get("defaultLakehouseWorkspaceId") or about.get("currentWorkspaceId")
    lakehouse = about.get("defaultLakehouseId")
    if not (workspace and lakehouse):
        msg = f"the parameter {name} is a place of the default lakehouse, and the notebook has none"
        step = (
            "Attach a lakehouse to the notebook as its default, or say the whole address: "
            f"abfss://WORKSPACE@{_HOST}/LAKEHOUSE.Lakehouse/{place}."
        )
        raise ParameterError(msg, found=value, next_step=step)
    return f"{value.removesuffix(place)}abfss://{workspace}@{_HOST}/{lakehouse}/{place}"
