"""a2ad as the client of fasta2a sees it. It sends and reads over JSON-RPC 0.3; it neither streams nor cancels."""

import unittest
import uuid

import pydantic
from fasta2a.client import A2AClient

from fixture import Interop


def say(text, **of):
    return {
        'role': 'user', 'kind': 'message', 'message_id': str(uuid.uuid4()), 'parts': [{'kind': 'text', 'text': text}],
        **of
    }


class FastA2A(Interop):
    async def test_send_read_and_continue(self):
        client = A2AClient(self.url)
        self.addAsyncCleanup(client.http_client.aclose)

        task = (await client.send_message(say('hello, wörld')))['result']
        self.assertEqual((task['kind'], task['status']['state']), ('task', 'completed'))
        self.assertEqual(''.join(p['text'] for p in task['artifacts'][0]['parts']), 'hello, wörld')
        self.assertEqual((await client.get_task(task['id']))['result'], task)

        asked = (await client.send_message(say('ask')))['result']
        self.assertEqual(asked['status']['state'], 'input-required')
        done = (await client.send_message(say(
            'that one', task_id=asked['id'], context_id=asked['context_id']
        )))['result']
        self.assertEqual((done['id'], done['status']['state']), (asked['id'], 'completed'))
        await self.check_task('COMPLETED', 'that one', messages=2)

        # The client reads an error only if its message is "Task not found", which is an example of the specification.
        with self.assertRaisesRegex(pydantic.ValidationError, "Input should be 'Task not found'"):
            await client.get_task(str(uuid.uuid4()))


if __name__ == '__main__':
    unittest.main()
