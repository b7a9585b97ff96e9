"""A task in memory, which behaves like one on the server. For tests of agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ._errors import Refused
from ._values import compact, digest


@dataclass
class StoredTask:
    """A task as the server keeps it."""

    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    checkpoint: Any = None
    ended: dict[str, Any] | None = None
    wait: dict[str, Any] | None = None
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    """By key of a streamed step: the length of the log when it first began."""
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    """Sums by model."""

    def apply(self, events: Sequence[dict[str, Any]]) -> None:
        for e in events:
            if self.ended is not None or self.wait is not None:
                raise Refused("nothing may follow the event that ends the run")
            ((kind, v),) = e.items()
            getattr(self, f"_{kind}")(v)

    def _statusUpdate(self, v: dict[str, Any]) -> None:
        self.log.append({"statusUpdate": v})
        if v["status"]["state"] in _FINAL:
            self.ended = v["status"]

    def _artifactUpdate(self, v: dict[str, Any]) -> None:
        self.log.append({"artifactUpdate": v})

    def _checkpoint(self, v: Any) -> None:
        self.checkpoint = v

    def _usage(self, v: dict[str, Any]) -> None:
        sums = self.usage.setdefault(v.get("model", ""), {})
        for member, n in v.items():
            if member != "model":
                sums[member] = sums.get(member, 0) + n

    def _step(self, v: dict[str, Any]) -> None:
        key, old = v["key"], self.steps.get(v["key"])
        sha = digest(compact(v["input"])) if "input" in v else ""
        step = {"kind": "step", "attempts": 1, **v, "inputSha": sha}
        step.pop("input", None)
        begins = "artifact" in v
        if not begins and "error" not in v:
            step.setdefault("result", None)
        if old is not None:
            if old["kind"] != "step" or old.get("name") != v.get("name") or old["inputSha"] != sha:
                raise Refused(f"nondeterministic step {key!r}")
            if "endedAt" in old:
                if begins or old.get("result") != step.get("result"):
                    raise Refused(f"a step has the key {key!r} already")
                return
            if begins and key in self.after:
                self._restore(v["artifact"], self.after[key])
            step["artifact"] = old.get("artifact") or v.get("artifact", "")
        if begins:
            self.after.setdefault(key, len(self.log))
        if not begins and "nextAt" not in v:
            step.setdefault("endedAt", "now")
        else:
            step.pop("endedAt", None)
        self.steps[key] = step

    def _restore(self, artifact: str, after: int) -> None:
        later = [e for e in self.log[after:] if _artifact_id(e) == artifact]
        if not later:
            return
        parts = fold(self.log[:after]).get(artifact) or [{"text": ""}]
        self._artifactUpdate({"artifact": {"artifactId": artifact, "parts": parts}})

    def _wait(self, v: dict[str, Any]) -> None:
        old = self.steps.get(v["key"])
        sha = digest(compact(v["input"])) if "input" in v else ""
        if old is not None and (
            "endedAt" in old or old["kind"] != "wait" or old["inputSha"] not in ("", sha)
        ):
            raise Refused(f"nondeterministic step {v['key']!r}")
        if float(v.get("for", "1s").removesuffix("s")) <= 0:
            raise Refused("a wait needs until, for, message, signal or tasks")
        self.steps[v["key"]] = {"kind": "wait", "key": v["key"], "inputSha": sha}
        self.wait = v
        if "status" in v:
            self.log.append({"statusUpdate": {"status": v["status"]}})

    def _call(self, v: dict[str, Any]) -> None:
        sha, old = digest(compact(v["message"])), self.steps.get(v["key"])
        if old is not None:
            if (old["kind"], old.get("name"), old["inputSha"]) != ("call", v["agent"], sha):
                raise Refused(f"nondeterministic step {v['key']!r}")
            return
        self.steps[v["key"]] = {
            "kind": "call",
            "key": v["key"],
            "name": v["agent"],
            "agent": v["agent"],
            "inputSha": sha,
        }
        self.calls[v["key"]] = v


_FINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED")


def _artifact_id(e: dict[str, Any]) -> str:
    return str(e["artifactUpdate"]["artifact"]["artifactId"]) if "artifactUpdate" in e else ""


def fold(log: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    artifacts: dict[str, list[dict[str, Any]]] = {}
    for e in log:
        if "artifactUpdate" in e:
            u = e["artifactUpdate"]
            parts = list(u["artifact"]["parts"])
            old = artifacts.get(_artifact_id(e), []) if u.get("append") else []
            artifacts[_artifact_id(e)] = old + parts
    return artifacts
