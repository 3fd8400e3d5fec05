"""The catalogue of everything that the review looks for, by rule id; the texts stand beside, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mirrorlib.landing.check.rules.columns import COLUMN_RULES
from mirrorlib.landing.check.rules.layout import LAYOUT_RULES
from mirrorlib.landing.check.rules.metadata import METADATA_RULES
from mirrorlib.landing.check.rules.rows import ROW_RULES
from mirrorlib.landing.check.rules.rule import Rule

RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.id: rule for rule in (*LAYOUT_RULES, *METADATA_RULES, *COLUMN_RULES, *ROW_RULES)}
)
