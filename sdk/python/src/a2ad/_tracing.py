"""OpenTelemetry spans, if it is installed. Attributes follow its semantic conventions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from ._wire import Run

trace: Any = None
_propagator: Any = None
_tracer: Any = None
with contextlib.suppress(ImportError):
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    _propagator = TraceContextTextMapPropagator()
    _tracer = trace.get_tracer("a2ad")

_TOKENS = {
    "inputTokens": "gen_ai.usage.input_tokens",
    "outputTokens": "gen_ai.usage.output_tokens",
    "cachedInputTokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoningTokens": "gen_ai.usage.reasoning.output_tokens",
}


class Tracer:
    """Traces one run. Without OpenTelemetry it does nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sums: dict[int, dict[str, int]] = {}

    def attempt(self) -> AbstractContextManager[Any]:
        """Trace the agent's function. Its span continues the trace of the client."""
        if _tracer is None:
            return contextlib.nullcontext()
        run = self._run
        parent = _propagator.extract({"traceparent": run.traceparent})
        return self._span(
            f"invoke_agent {run.agent}",
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": run.agent,
                "gen_ai.conversation.id": run.context_id,
                "a2a.task.id": run.task_id,
                "a2ad.attempt": run.attempt,
                "a2ad.epoch": run.epoch,
            },
            context=parent,
        )

    def step(self, name: str, key: str) -> AbstractContextManager[Any]:
        """Trace the work of a step."""
        if _tracer is None:
            return contextlib.nullcontext()
        return self._span(f"step {name}", {"a2ad.step": key})

    @contextlib.contextmanager
    def _span(self, name: str, attributes: dict[str, Any], **how: Any) -> Iterator[Any]:
        with _tracer.start_as_current_span(name, attributes=attributes, **how) as span:
            try:
                yield span
            finally:
                self._sums.pop(id(span), None)

    def outcome(self, outcome: str) -> None:
        """Set how the attempt ended on its span."""
        if _tracer is not None:
            trace.get_current_span().set_attribute("a2ad.outcome", outcome)

    def usage(self, usage: dict[str, Any]) -> None:
        """Add the usage of a model to the span of the step or the attempt."""
        if _tracer is None:
            return
        span = trace.get_current_span()
        sums = self._sums.setdefault(id(span), {})
        for member, attribute in _TOKENS.items():
            if member in usage:
                sums[attribute] = sums.get(attribute, 0) + usage[member]
        span.set_attributes(sums)
        if "model" in usage:
            span.set_attribute("gen_ai.request.model", usage["model"])
