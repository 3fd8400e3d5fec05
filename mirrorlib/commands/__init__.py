"""Commands of the command line that have a room of their own: arguments in, one call of the library, a report out."""
