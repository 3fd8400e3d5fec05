"""The command line: `main` reads it, `commands` carries it out."""
