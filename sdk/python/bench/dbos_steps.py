"""Does the same steps with DBOS on the same PostgreSQL, and prints one line of JSON."""

import asyncio
import json
import logging
import os
import sys
import time

import usage
from dbos import DBOS, DBOSConfig

config: DBOSConfig = {
    "name": "bench",
    "system_database_url": os.environ["BENCH_DATABASE"],
    "run_admin_server": False,
}
DBOS(config=config)
logging.disable(logging.CRITICAL)
POSTMASTER = int(os.environ["BENCH_POSTMASTER"])


@DBOS.step()
async def work() -> int:
    return 1


@DBOS.workflow()
async def workflow(n: int) -> list[float]:
    took = []
    for _ in range(n):
        start = time.perf_counter()
        await work()
        took.append(time.perf_counter() - start)
    return took


async def main() -> None:
    n, together = int(sys.argv[1]), int(sys.argv[2])
    took = sorted(await workflow(n))
    start, before = time.perf_counter(), spent()
    await asyncio.gather(*(workflow(n) for _ in range(together)))
    rate = n * together / (time.perf_counter() - start)
    cpu = (spent() - before) / (n * together)
    print(json.dumps({"p50": took[n // 2], "p99": took[n * 99 // 100], "rate": rate, "cpu": cpu}))


def spent() -> float:
    """Return the CPU seconds of this process and of the database."""
    return time.process_time() + usage.tree(POSTMASTER)


DBOS.launch()
asyncio.run(main())
DBOS.destroy()
