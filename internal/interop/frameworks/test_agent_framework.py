"""a2ad as A2AAgent of the Microsoft Agent Framework sees it. It speaks A2A 1.0."""

import unittest

import httpx
from a2a.client import A2ACardResolver
from agent_framework import AgentSession
from agent_framework_a2a import A2AAgent

from fixture import Interop


class AgentFramework(Interop):
    async def test_agent(self):
        async with httpx.AsyncClient(timeout=60) as http:
            card = await A2ACardResolver(http, self.url).get_agent_card()
        for binding in ('JSONRPC', 'HTTP+JSON'):
            with self.subTest(binding):
                async with A2AAgent(agent_card=card, supported_protocol_bindings=[binding]) as agent:
                    await self.check(agent)

    async def check(self, agent):
        self.assertEqual(agent.name, 'talker')
        self.assertEqual((await agent.run('hello, wörld')).text, 'hello, wörld')
        await self.check_task('COMPLETED', 'hello, wörld', messages=1)

        pieces = [update.text async for update in agent.run('one two three', stream=True)]
        self.assertEqual([p for p in pieces if p], ['one ', 'two ', 'three'])

        session = AgentSession()
        asked = await agent.run('ask', session=session)
        self.assertIn('Which one?', str([m.to_dict() for m in asked.messages]))
        done = await agent.run('that one', session=session)
        self.assertEqual(done.text, 'that one')
        await self.check_task('COMPLETED', 'that one', messages=2)

        # In the background the answer is a token, with which the task is followed. The agent has no call that cancels.
        token = (await agent.run('hang', background=True)).continuation_token
        canceled = False
        async for _ in agent.run(continuation_token=token, stream=True, background=True):
            if not canceled:
                canceled = True
                await self.call('CancelTask', id=token['task_id'])
        self.assertTrue(canceled)
        await self.check_task('CANCELED', '', messages=1)


if __name__ == '__main__':
    unittest.main()
