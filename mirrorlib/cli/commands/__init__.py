"""The commands: each module has those of one stage, and imports nothing heavy before one of them runs."""
