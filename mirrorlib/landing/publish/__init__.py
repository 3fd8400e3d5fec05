"""Write landing zones: rows go in, numbered change files that any open mirroring reader takes come out."""
