"""a2ad as the client of agno sees it.

It sends and streams over JSON-RPC 0.3, and always makes a new task. It neither reads nor cancels.
"""

import logging
import unittest

from agno.client.a2a import A2AClient

from fixture import Interop

logging.getLogger('agno').setLevel(logging.ERROR)  # it warns of every line of a stream that is an id


class Agno(Interop):
    async def test_client(self):
        client = A2AClient(self.url, protocol='json-rpc')
        sent = await client.send_message('hello, wörld', context_id='one')
        self.assertTrue(sent.is_completed)
        self.assertEqual((sent.context_id, [a.artifact_id for a in sent.artifacts]), ('one', ['said']))
        await self.check_task('COMPLETED', 'hello, wörld', messages=1)

        events = [e async for e in client.stream_message('one two three')]
        self.assertEqual(''.join(e.content for e in events if e.is_content), 'one two three')
        self.assertEqual((events[-1].event_type, events[-1].is_final), ('completed', True))

        self.assertEqual((await client.send_message('ask')).status, 'input-required')

        # REST is the client's default. It finds the card there, and sends the envelope of JSON-RPC, which HTTP+JSON
        # does not have.
        rest = A2AClient(self.url)
        self.assertEqual((await rest.aget_agent_card()).name, 'talker')
        with self.assertRaises(Exception) as caught:
            await rest.send_message('hello')
        self.assertIn('422', str(caught.exception))


if __name__ == '__main__':
    unittest.main()
