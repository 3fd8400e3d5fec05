"""Windows of the feed read from their files, where that gives what Delta's reader gives."""
