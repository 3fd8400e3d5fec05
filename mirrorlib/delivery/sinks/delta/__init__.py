"""Receive windows as Delta tables: `delta:PATH` makes PATH/<schema>/<table>, `delta:catalog.schema` tables there.

Delivery: exactly once. A window is one commit that carries the stream and the window's number, as a
transaction mark that Delta skips when it comes again and as facts that the next run reads.

changes  An append-only log: what the window holds, as it is. A reset is told by a row of its own,
         `_change_type = 'reset'`. Columns are added and widened, never removed. A rewound stream appends
         again what it is given again; a snapshot of one begins with a reset.
current  A copy of the table: for every key its last state. Without keys a multiset: as many equal rows
         as the source has. A snapshot replaces rows and columns. A small copy without a feed of its own is
         written anew as a whole where few keys of it have changed.
scd2     A history: `valid_from`, `valid_to` (NULL while it is current) and `is_current`, for every state
         of every row, from commit timestamps. A snapshot closes what is open and not in it.

In copies and histories a column that the source has dropped stays, and is NULL in rows that come; one
that was added is NULL in rows that were there. Where the feed alone cannot tell a renamed column from
a dropped and an added one, or a name stands for another column than with the window before, or a type
does not widen in place, the window is refused and a snapshot is asked for.
"""
