"""The worker that bench.py measures."""

import asyncio
import os
import time

from a2ad import Worker

worker = Worker()
SECONDS = float(os.environ["BENCH_SECONDS"])
RATE = 50


async def tokens(write):
    """Write at the rate of a model, and catch up after a delay."""
    start = time.monotonic()
    for i in range(int(SECONDS * RATE)):
        await write("token ")
        await asyncio.sleep(max(0, start + (i + 1) / RATE - time.monotonic()))


@worker.agent("stream", concurrency=100)
async def stream(task, message):
    await tokens(task.write)


@worker.agent("quiet", concurrency=100)
async def quiet(task, message):
    async def nothing(text):
        pass

    await tokens(nothing)


@worker.agent("steps", concurrency=100)
async def steps(task, message):
    async def work():
        return 1

    took = []
    for _ in range(int(message.text)):
        start = time.perf_counter()
        await task.step("work", work)
        took.append(time.perf_counter() - start)
    took.sort()
    return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "all": sum(took)}


worker.run()
