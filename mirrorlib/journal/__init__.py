"""What was meant and what became of it, on disk: entries of lives and streams, and leases."""
