"""a2ad as A2AAgent of Strands Agents sees it. It speaks A2A 0.3, streams, and makes a new task for every message."""

import unittest

from strands.agent.a2a_agent import A2AAgent

from fixture import Interop


class Strands(Interop):
    async def test_agent(self):
        agent = A2AAgent(self.url)
        self.assertEqual((await agent.get_agent_card()).name, 'talker')
        result = await agent.invoke_async('hello, wörld')
        self.assertEqual((result.stop_reason, str(result).split()), ('end_turn', ['hello,', 'wörld']))
        await self.check_task('COMPLETED', 'hello, wörld', messages=1)

        pieces = []
        async for event in agent.stream_async('one two three'):
            if event.get('type') == 'a2a_stream':
                update = event['event'][1]
                if getattr(update, 'kind', None) == 'artifact-update':
                    pieces += [p.root.text for p in update.artifact.parts]
        self.assertEqual(pieces, ['one ', 'two ', 'three'])

        asked = await agent.invoke_async('ask')
        self.assertEqual((asked.stop_reason, str(asked).strip()), ('interrupt', 'Which one?'))


if __name__ == '__main__':
    unittest.main()
