"""Run the command line by `python -m mirrorlib.cli`."""

from __future__ import annotations

import sys

from mirrorlib.cli.main import main

sys.exit(main())
