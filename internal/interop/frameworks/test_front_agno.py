"""a2ad in front of agno. It sends a message in pieces, and the whole Task after the last status."""

import unittest

from fixture import Front


class Agno(Front):
    program = 'upstream_agno.py'
    card = '/a2a/agents/greeter/.well-known/agent-card.json'

    async def test_pieces_of_a_message_and_an_image(self):
        task = await self.ask('hello')
        self.assertEqual(self.said(task), (['Hel', 'lo', ' there'], [''], ''))
        self.assertEqual(task['artifacts'][0]['parts'][0]['url'], 'https://example.com/hello.png')


if __name__ == '__main__':
    unittest.main()
