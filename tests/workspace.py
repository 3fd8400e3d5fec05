"""A Databricks workspace on this machine, as far as a deployment asks: files, schemas, volumes, grants, jobs, runs.

In: what databricks-sdk's own client sends. Out: `Workspace`, which shows what it holds and can be told how a
run ends. Ids are given in order; a request that it does not know is a 404, so that no call passes unseen.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ME = "ann@example.com"


@dataclass(slots=True)
class Workspace:
    """What the workspace holds, and what it was asked."""

    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    schemas: dict[str, Any] = field(default_factory=dict)
    volumes: dict[str, Any] = field(default_factory=dict)
    grants: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    jobs: dict[int, Any] = field(default_factory=dict)
    permissions: dict[str, Any] = field(default_factory=dict)
    runs: dict[int, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    result: str = "SUCCESS"
    refused: str = ""  # a path that is answered with 403
    host: str = ""

    def answer(self, verb: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """Answer one request."""
        self.asked.append(f"{verb} {path}")
        if self.refused and path.startswith(self.refused):
            return 403, {"error_code": "PERMISSION_DENIED", "message": "not for you"}
        name = re.sub(r"[^a-z]+", "_", f"{verb} {path.partition('/api/')[2]}".lower()).strip("_")
        for rule, method in _RULES:
            if re.fullmatch(rule, name):
                return getattr(self, method)(unquote(path.rpartition("/")[2]), query, body)
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": f"{verb} {path}"}

    def me(self, *_: Any) -> tuple[int, Any]:
        """Say who asks."""
        return 200, {"id": "1", "userName": ME}

    def mkdirs(self, _: str, __: Any, body: Any) -> tuple[int, Any]:
        """Make a folder."""
        self.folders.add(body["path"])
        return 200, {}

    def upload(self, _: str, __: Any, body: Any) -> tuple[int, Any]:
        """Take a file, whose folder has to be there."""
        path = body["path"].decode()
        if path.rpartition("/")[0] not in self.folders:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such folder"}
        self.files[path] = (body["format"].decode(), body["content"])
        return 200, {}

    def find(self, of: dict[str, Any], name: str) -> tuple[int, Any]:
        """Give something of the catalog."""
        found = of.get(name)
        missing = {"error_code": "NOT_FOUND", "message": f"{name} does not exist"}
        return (200, found) if found else (404, missing)

    def schema(self, name: str, *_: Any) -> tuple[int, Any]:
        """Give a schema."""
        return self.find(self.schemas, name)

    def volume(self, name: str, *_: Any) -> tuple[int, Any]:
        """Give a volume."""
        return self.find(self.volumes, name)

    def new_schema(self, _: str, __: Any, body: Any) -> tuple[int, Any]:
        """Make a schema."""
        self.schemas[f"{body['catalog_name']}.{body['name']}"] = body
        return 200, body

    def new_volume(self, _: str, __: Any, body: Any) -> tuple[int, Any]:
        """Make a volume, in a schema that is there."""
        if f"{body['catalog_name']}.{body['schema_name']}" not in self.schemas:
            return 404, {"error_code": "NOT_FOUND", "message": "no such schema"}
        self.volumes[f"{body['catalog_name']}.{body['schema_name']}.{body['name']}"] = body
        return 200, body

    def grant(self, name: str, _: Any, body: Any) -> tuple[int, Any]:
        """Change who has which privileges on something of the catalog."""
        if name not in {*self.schemas, *self.volumes}:
            return 404, {"error_code": "NOT_FOUND", "message": f"{name} does not exist"}
        granted = self.grants.setdefault(name, {})
        for change in body["changes"]:
            granted.setdefault(change["principal"], set()).update(change.get("add", ()))
            granted[change["principal"]].difference_update(change.get("remove", ()))
        return 200, {}

    def list_jobs(self, _: str, query: dict[str, str], __: Any) -> tuple[int, Any]:
        """List jobs of a name, in whichever case."""
        found = [
            {"job_id": key, "settings": {"name": job["name"], "tags": job.get("tags", {})}}
            for key, job in self.jobs.items()
            if job["name"].lower() == query.get("name", job["name"]).lower()
        ]
        return 200, {"jobs": found, "has_more": False}

    def new_job(self, _: str, __: Any, body: Any) -> tuple[int, Any]:
        """Make a job."""
        self.jobs[len(self.jobs) + 1] = body
        return 200, {"job_id": len(self.jobs)}

    def reset_job(self, _: str, __: Any, body: Any) -> tuple[int, Any]:
        """Set a job anew."""
        self.jobs[body["job_id"]] = body["new_settings"]
        return 200, {}

    def permit(self, name: str, _: Any, body: Any) -> tuple[int, Any]:
        """Add permissions."""
        self.permissions[name] = body["access_control_list"]
        return 200, {}

    def run_now(self, _: str, __: Any, body: Any) -> tuple[int, Any]:
        """Start a run."""
        self.runs[len(self.runs) + 1] = body
        return 200, {"run_id": len(self.runs)}

    def get_run(self, _: str, query: dict[str, str], __: Any) -> tuple[int, Any]:
        """Give a run, which has ended, unless nothing has come of it yet."""
        state = {"life_cycle_state": "RUNNING"}
        if self.result:
            state = {
                "life_cycle_state": "TERMINATED",
                "result_state": self.result,
                "state_message": "that is all",
            }
        return 200, {"run_id": int(query["run_id"]), "state": state, "run_page_url": "https://run"}


_RULES = (
    ("get_preview_scim_v_me|get_._preview_scim_v_me|get_.*scim_v_me", "me"),
    ("post_.*workspace_mkdirs", "mkdirs"),
    ("post_.*workspace_import", "upload"),
    ("post_.*unity_catalog_schemas", "new_schema"),
    ("post_.*unity_catalog_volumes", "new_volume"),
    ("get_.*unity_catalog_schemas_.*", "schema"),
    ("get_.*unity_catalog_volumes_.*", "volume"),
    ("patch_.*unity_catalog_permissions_(schema|volume)_.*", "grant"),
    ("get_.*jobs_list", "list_jobs"),
    ("post_.*jobs_create", "new_job"),
    ("post_.*jobs_reset", "reset_job"),
    ("patch_.*permissions_jobs.*", "permit"),
    ("post_.*jobs_run_now", "run_now"),
    ("get_.*jobs_runs_get", "get_run"),
)


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP for a workspace."""

    workspace: Workspace
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # else each answer waits 40 ms for the client to acknowledge its headers
    )

    def _serve(self) -> None:
        url = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.headers.get("Content-Type", "")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = _form(kind, data) if kind.startswith("multipart") else json.loads(data or b"{}")
        status, said = self.workspace.answer(self.command, url.path, query, body)
        told = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST = do_PATCH = do_PUT = _serve  # noqa: N815  # the base's names

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def _form(kind: str, data: bytes) -> dict[str, bytes]:
    """Read the fields of a form."""
    message = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + data)
    found: dict[str, bytes] = {}
    for part in message.get_payload():
        name = re.search(r'name="([^"]+)"', str(part["Content-Disposition"]))  # type: ignore[index]  # a multipart holds parts
        assert name is not None
        found[name[1]] = part.get_payload(decode=True)  # type: ignore[union-attr, assignment]  # bytes, as it decodes
    return found


@contextmanager
def serve(workspace: Workspace) -> Iterator[Workspace]:
    """Serve a workspace on this machine."""
    handler = type("Served", (_Handler,), {"workspace": workspace})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    workspace.host = f"http://127.0.0.1:{server.server_port}"
    try:
        yield workspace
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
