"""One commit a batch or window: marked, merged, and found again in the log."""
