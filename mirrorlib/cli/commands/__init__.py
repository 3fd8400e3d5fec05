"""The commands of the command line, a room each: arguments in, one call of the library, a report out.

Every room has `HELP` and `MORE`, what `--help` says of it; `add_arguments`, what it takes; and
`run`, which says whether all is well. Nothing heavy is imported before a command runs.
"""
