"""A landing zone becomes Delta tables: `run` brings every table up to date, `preview` says what that would do."""
