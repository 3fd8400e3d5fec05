"""Keep copies of tables in a database: PostgreSQL, or SQLite, which needs no server.

`jdbc:postgresql://HOST:PORT/DATABASE?user=…` takes libpq's URLs and options, and its environment (PGPASSWORD,
PGSERVICE, `.pgpass`) with them; `jdbc:sqlite:PATH` is a file. Delivery: exactly once, as a window and the
stream's position are committed in one transaction.

- `dbo/orders` is the table `orders` in the schema `dbo`, which is made when it is not there; in SQLite it is
  `dbo_orders`. `orders` goes into the first schema of the search path. Its keys are its primary key.
- A table belongs to one consumer. `_mirrorlib_tables` says which tables are ours, `_mirrorlib_positions` how far
  each stream has come. A table that somebody else made is never touched.
- Readers see the table as of the end of some window, never anything between two.
- A table without keys is kept as the rows that it holds, equal ones counted: a window takes out as many of a
  row as went, and puts in as many as came. Where the stream began with all rows, a row that went and is
  not there stops it.
- A stream that is rewound gives windows again: with keys the last state counts, without keys only what was
  committed later than what the table holds. A net window that begins before that and ends after it lacks what came
  and went in between, and is refused.
- A key is held once at every moment: one that the source has twice stops the stream, even if it has it once
  again at the window's end.
- New columns are added, wider types are followed. SQLite changes no types: there a wider one is followed where it is
  kept alike (whole numbers, a float as a double, decimals with as many digits behind the point), else the stream
  stops until the table has been dropped.
- A column that the source has no more stays, with what it held, and is NULL in rows that come later; when one of its
  name comes again, it begins as NULL. Where columns go and come in one window, nobody can tell whether one was
  renamed, so the stream stops and asks for a snapshot.
  So it does where a name stands for another column than with the last window that had rows.
  So it does where a nested column gets other fields or types inside, but for whole numbers, which look alike.
- Columns that somebody adds to a table are left alone, until a snapshot replaces its rows, or the source gets a column
  of that name, which begins as NULL.
- Text is compared byte by byte, as the source does. Keys have the database's own collation nevertheless:
  equality is the same under every one that PostgreSQL takes as a default, and a column of another collation
  cannot be joined with the user's own.

- Maps become JSON where their keys are text or whole numbers; other maps are refused.

`kinds` says what becomes of the types, `layout` what is refused, `stage` what of a window counts.
"""
