"""a2ad as RemoteA2aAgent of the Google Agent Development Kit sees it. It speaks A2A 1.0."""

import logging
import os
import unittest

os.environ['ADK_SUPPRESS_A2A_EXPERIMENTAL_FEATURE_WARNINGS'] = 'true'

from google.adk.agents.remote_a2a_agent import AgentCardResolutionError, RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

from fixture import Interop

logging.getLogger('google_adk').setLevel(logging.CRITICAL)

CARD = '/.well-known/agent-card.json'


class Remote(Interop):
    flags = ('--grpc-listen', 'same', '--grpc-card', 'url')

    async def test_agent(self):
        agent = RemoteA2aAgent(name='talker', agent_card=self.url + CARD)
        runner = InMemoryRunner(agent=agent, app_name='interop')
        session = await runner.session_service.create_session(app_name='interop', user_id='ann')

        async def say(*parts):
            content = types.Content(role='user', parts=list(parts))
            return [e async for e in runner.run_async(user_id='ann', session_id=session.id, new_message=content)]

        def texts(events):
            return [p.text for e in events if e.content for p in e.content.parts if p.text]

        events = await say(types.Part(text='hello, wörld'))
        self.assertIn('hello, wörld', ''.join(texts(events)))
        self.assertFalse([e.error_message for e in events if e.error_message])
        await self.check_task('COMPLETED', 'hello, wörld', messages=1)

        events = await say(types.Part(text='ask'))
        [call] = [c for e in events for c in e.get_function_calls()]
        self.assertIn('Which one?', str(call.args))
        answer = types.FunctionResponse(id=call.id, name=call.name, response={'result': 'that one'})
        self.assertIn('that one', ''.join(texts(await say(types.Part(function_response=answer)))))
        await self.check_task('COMPLETED', 'that one', messages=2)
        await runner.close()


class CardCheck(Interop):
    """ADK wants every interface of a card on https, or on http of a loopback host, and on the origin of the card."""

    async def resolve(self):
        agent = RemoteA2aAgent(name='talker', agent_card=self.url + CARD)
        try:
            return await agent._ensure_resolved()
        finally:
            await agent.cleanup()


class SameAndURL(CardCheck):
    flags = ('--grpc-listen', 'same', '--grpc-card', 'url')

    async def test_card_is_accepted(self):
        self.assertIsNotNone(await self.resolve())


class Off(CardCheck):
    flags = ('--grpc-listen', '127.0.0.1:0', '--grpc-card', 'off')

    async def test_card_is_accepted(self):
        self.assertIsNotNone(await self.resolve())


class Refused(CardCheck):
    async def check_refused(self):
        with self.assertRaisesRegex(
            AgentCardResolutionError, 'Agent card RPC URL must use https, or http on a loopback host'
        ):
            await self.resolve()


class OwnPort(Refused):
    flags = ('--grpc-listen', '127.0.0.1:0')

    async def test_card_is_refused(self):
        await self.check_refused()


class SameAndAddress(Refused):
    flags = ('--grpc-listen', 'same', '--grpc-card', 'address')

    async def test_card_is_refused(self):
        await self.check_refused()


if __name__ == '__main__':
    unittest.main()
