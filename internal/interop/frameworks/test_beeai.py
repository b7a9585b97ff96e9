"""a2ad as A2AAgent of the BeeAI framework sees it. It speaks A2A 0.3."""

import unittest

from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory

from fixture import Interop


class BeeAI(Interop):
    async def test_agent(self):
        for streaming in (True, False):
            with self.subTest(streaming=streaming):
                agent = A2AAgent(url=self.url, memory=UnconstrainedMemory())
                await agent.check_agent_exists()
                self.assertEqual(agent.name, 'talker')
                said = await agent.run('hello, wörld', streaming=streaming)
                self.assertEqual(said.last_message.text, 'hello, wörld')
                await self.check_task('COMPLETED', 'hello, wörld', messages=1)

                asked = await agent.run('ask', streaming=streaming)
                self.assertEqual(asked.last_message.text, 'Which one?')
                done = await agent.run('that one', streaming=streaming)
                self.assertEqual(done.last_message.text, 'that one')
                await self.check_task('COMPLETED', 'that one', messages=2)


if __name__ == '__main__':
    unittest.main()
