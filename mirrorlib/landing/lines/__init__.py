"""JSON lines: from the bytes of a file to typed Arrow tables, in the order of its lines.

The data's way: `objects` parses whole lines, a block at a time, `tables` finds the type of every
column and makes tables of the objects, `literals` writes as text what is text or nested there.
"""

from __future__ import annotations

from mirrorlib.landing.lines.tables import iter_line_tables, read_line_schema

__all__ = ["iter_line_tables", "read_line_schema"]
