"""Write durable A2A agents: workers for an a2ad server.

::

    from a2ad import Worker

    worker = Worker()  # A2AD_URL, A2AD_API_KEY

    @worker.agent("hello")
    async def hello(task, message):
        await task.write(f"Hello, {message.text}!")

    if __name__ == "__main__":
        worker.run()
"""

from ._artifact import ArtifactWriter
from ._check import Duration
from ._errors import (
    CallError,
    Error,
    Fail,
    NondeterminismError,
    Refused,
    Reject,
    Retry,
    StepError,
    Stopped,
    Timeout,
    UsageError,
)
from ._sync import SyncArtifactWriter, SyncTask
from ._task import Task
from ._wait import CallResult
from ._wire import Artifact, Message, Part
from ._worker import Worker

__all__ = [
    "Artifact",
    "ArtifactWriter",
    "CallError",
    "CallResult",
    "Duration",
    "Error",
    "Fail",
    "Message",
    "NondeterminismError",
    "Part",
    "Refused",
    "Reject",
    "Retry",
    "StepError",
    "Stopped",
    "SyncArtifactWriter",
    "SyncTask",
    "Task",
    "Timeout",
    "UsageError",
    "Worker",
]
