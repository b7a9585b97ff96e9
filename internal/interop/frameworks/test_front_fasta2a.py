"""a2ad in front of fasta2a. Its streams bring only states: artifacts and messages are in the task."""

import unittest

from fixture import Front


class FastA2A(Front):
    program = 'upstream_fasta2a.py'

    async def test_what_is_only_in_the_task(self):
        for text in ('one', 'two'):
            self.assertEqual(self.said(await self.ask(text)), (['echoed'], [text], ''))


if __name__ == '__main__':
    unittest.main()
