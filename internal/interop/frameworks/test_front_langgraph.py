"""a2ad in front of LangGraph's server. Its tasks show the history of their context, and each read has other ids."""

import asyncio
import json
import unittest
import urllib.request

from fixture import Front


class LangGraph(Front):
    program = 'upstream_langgraph.py'

    async def started(self, address):
        self.card = '/ok'
        await super().started(address)
        found = []
        while not found:
            search = urllib.request.Request(address + '/assistants/search', b'{}', {'Content-Type': 'application/json'})
            with urllib.request.urlopen(search, timeout=10) as answer:
                found = json.load(answer)
            await asyncio.sleep(0.2)
        return f'{address}/.well-known/agent-card.json?assistant_id={found[0]["assistant_id"]}'

    async def test_history_of_the_context(self):
        for answer in ('Answer 1', 'Answer 3'):  # the graph has seen the first task
            history, artifacts, last = self.said(await self.ask('hello', contextId='one'))
            # Each message repeats the text so far, so the last one has all of it.
            self.assertEqual(history, [answer[:n] for n in (6, 7, 8)])
            self.assertEqual((artifacts, last), ([answer], 'Task completed successfully'))

        asked = await self.ask('ask', contextId='one')
        self.assertEqual(asked['status']['state'], 'TASK_STATE_INPUT_REQUIRED')
        answered = await self.ask('yes', contextId='one', taskId=asked['id'])
        history, artifacts, _ = self.said(answered)
        self.assertEqual((history, artifacts[1:]), (['Answer', 'Answer ', 'Answer 5'], ['Answer 5']))


if __name__ == '__main__':
    unittest.main()
