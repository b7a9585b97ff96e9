"""a2ad as the A2A client of LiteLLM sees it. It sends and streams; it starts a new task with every message."""

import os
import unittest
import uuid

os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'  # else it asks the network for prices

from a2a.compat.v0_3.types import MessageSendParams, SendMessageRequest, SendStreamingMessageRequest  # noqa: E402
from litellm.a2a_protocol import (  # noqa: E402
    aget_agent_card, asend_message, asend_message_streaming, create_a2a_client,
)

from fixture import Interop  # noqa: E402


def params(text):
    message = {
        'kind': 'message', 'role': 'user', 'message_id': uuid.uuid4().hex, 'parts': [{'kind': 'text', 'text': text}]
    }
    return MessageSendParams(message=message)


class LiteLLM(Interop):
    async def test_client(self):
        self.assertEqual((await aget_agent_card(base_url=self.url)).name, 'talker')
        client = await create_a2a_client(base_url=self.url)
        answer = await asend_message(
            a2a_client=client, request=SendMessageRequest(id='1', params=params('hello, wörld'))
        )
        result = answer.model_dump(mode='json', exclude_none=True)['result']
        self.assertEqual(result['status']['state'], 'completed')
        await self.check_task('COMPLETED', 'hello, wörld', messages=1)

        streaming = await create_a2a_client(base_url=self.url, streaming=True)
        request = SendStreamingMessageRequest(id='2', params=params('one two three'))
        pieces = []
        async for chunk in asend_message_streaming(a2a_client=streaming, request=request):
            event = chunk.model_dump(mode='json', exclude_none=True)
            pieces += [p['text'] for p in event['result'].get('artifact', {}).get('parts', [])]
        self.assertEqual(pieces, ['one ', 'two ', 'three'])

        answer = await asend_message(a2a_client=client, request=SendMessageRequest(id='3', params=params('ask')))
        result = answer.model_dump(mode='json', exclude_none=True)['result']
        self.assertEqual(result['status']['state'], 'input-required')


if __name__ == '__main__':
    unittest.main()
