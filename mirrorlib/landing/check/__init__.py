"""Review a landing zone as strictly as one can without touching it: `mirrorlib.check(landing_zone)`."""
