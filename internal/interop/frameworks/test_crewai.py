"""a2ad as the A2A delegation of CrewAI sees it, without the model that would decide to delegate. It speaks A2A 0.3."""

import os
import unittest

os.environ |= {'CREWAI_DISABLE_TELEMETRY': 'true', 'OTEL_SDK_DISABLED': 'true', 'CREWAI_TRACING_ENABLED': 'false'}

from crewai.a2a.updates import PollingConfig, StreamingConfig  # noqa: E402
from crewai.a2a.utils.delegation import aexecute_a2a_delegation  # noqa: E402

from fixture import Interop  # noqa: E402


class CrewAI(Interop):
    async def test_delegation(self):
        # CrewAI also accepts the address of an agent in place of that of its card.
        for endpoint in (self.url + '/.well-known/agent-card.json', self.url + '/agents/talker'):
            for updates in (StreamingConfig(), PollingConfig(interval=0.1)):
                with self.subTest(endpoint=endpoint, updates=type(updates).__name__):
                    await self.check(endpoint, updates)

    async def check(self, endpoint, updates):
        async def delegate(text, **of):
            return await aexecute_a2a_delegation(
                endpoint=endpoint, auth=None, timeout=60, task_description=text, updates=updates,
                agent_branch=None, **of,
            )

        done = await delegate('hello, wörld')
        self.assertEqual(str(done['status'].value), 'completed', done)
        self.assertEqual(done['result'].split(), ['hello,', 'wörld'])
        await self.check_task('COMPLETED', 'hello, wörld', messages=1)

        asked = await delegate('ask')
        self.assertEqual(str(asked['status'].value), 'input-required', asked)
        task = (await self.tasks())[0]
        done = await delegate(
            'that one', task_id=task['id'], context_id=task['contextId'], conversation_history=asked['history']
        )
        self.assertEqual(str(done['status'].value), 'completed', done)
        await self.check_task('COMPLETED', 'that one', messages=2)


if __name__ == '__main__':
    unittest.main()
