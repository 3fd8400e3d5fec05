"""The workflow that users copy: every action pinned, a federated login only where it deploys, targets that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from bundle import targets

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "bundles" / "github" / "deploy.yml").read_text()
FLOW: dict[str, Any] = yaml.safe_load(TEXT)


def test_every_action_is_pinned_by_its_commit() -> None:
    """A tag may be moved; its name stands behind the commit, for people."""
    used = re.findall(r"uses: (\S+)(.*)", TEXT)

    assert used
    assert [] == [
        use
        for use, said in used
        if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", use) or " # v" not in said
    ]


def test_only_the_deploying_job_may_log_in() -> None:
    """And it waits for the check, and never runs for a pull request."""
    jobs = FLOW["jobs"]

    assert ["deploy"] == [name for name, job in jobs.items() if "id-token" in job["permissions"]]
    assert {} == FLOW["permissions"]
    assert ("check", "github.event_name != 'pull_request'") == (
        jobs["deploy"]["needs"],
        jobs["deploy"]["if"],
    )
    assert "secrets." not in TEXT


def test_its_targets_are_the_bundles() -> None:
    """Those that are not for one developer."""
    offered = FLOW["on"]["workflow_dispatch"]["inputs"]["target"]["options"]

    assert set(offered) == set(targets(ROOT)) - {"dev"}
    assert ["validate", "plan", "deploy"] == re.findall(r"databricks bundle (\w+)", TEXT)


def test_the_tokens_audience_is_the_policys() -> None:
    """Else the Databricks SDKs ask for one that the policy does not name."""
    told = FLOW["jobs"]["deploy"]["env"]["DATABRICKS_TOKEN_AUDIENCE"]
    page = (ROOT / "docs" / "start" / "databricks.md").read_text()
    (policy,) = re.findall(r'"audiences": \["([^"]+)"\]', page)

    meant = {
        "github.server_url": "https://github.com",
        "github.repository_owner": "YOUR-ORGANISATION",
    }
    assert policy == re.sub(r"\$\{\{ (\S+) \}\}", lambda found: meant[found[1]], told)
