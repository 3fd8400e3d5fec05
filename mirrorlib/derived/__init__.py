"""Tables made of other tables' changes, with the keys that survive on the way; called, it is `derive_table`."""

from __future__ import annotations

from mirrorlib.calling import let_call

CALLED = "run:derive_table"
let_call(__name__)
