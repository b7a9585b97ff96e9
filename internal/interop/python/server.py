"""An a2ad server as a process, and a gate at which its agents wait for the test."""

import asyncio
import json
import os
import shutil
import signal
import tempfile


class Server:
    """`a2ad dev` with its own PostgreSQL. After a restart it has the same address and the same tasks."""

    def __init__(self, *flags):
        """A flag that is a pair names a file below the directory of the server, and its text."""
        self.files = [f for f in flags if isinstance(f, tuple)]
        self.flags = [f for f in flags if not isinstance(f, tuple)]
        self.address = '127.0.0.1:0'
        self.log = []

    @property
    def url(self):
        return f'http://{self.address}'

    async def start(self):
        self.dir = tempfile.mkdtemp(prefix='a2ad-interop-py-')
        os.chmod(self.dir, 0o711)  # PostgreSQL may run as another user
        for name, text in self.files:
            path = os.path.join(self.dir, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w') as f:
                f.write(text)
        await self.restart()

    async def key(self, owner, scopes):
        """A new API key."""
        process = await asyncio.create_subprocess_exec(
            os.environ['A2AD_BIN'], 'apikey', 'create', '-o', 'json', '--data-dir', os.path.join(self.dir, 'pg'),
            '--tenant', 't', '--owner', owner, '--scopes', scopes,
            stdout=asyncio.subprocess.PIPE, cwd=self.dir,
        )
        out, _ = await process.communicate()
        return json.loads(out)['key']

    async def restart(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith('A2AD_') or k == 'A2AD_PG_BINDIR'}
        self.process = await asyncio.create_subprocess_exec(
            os.environ['A2AD_BIN'], 'dev', '--data-dir', os.path.join(self.dir, 'pg'), '--listen', self.address,
            '--admin-listen', 'off', '--log-format', 'json', *self.flags,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, env=env, cwd=self.dir,
        )
        while line := await self.process.stderr.readline():
            self.log.append(line)
            if b'"msg":"ready"' in line:
                self.address = json.loads(line)['api']
                self.reading = asyncio.create_task(self._read())
                return
        raise AssertionError('a2ad did not start:\n' + b''.join(self.log).decode())

    async def _read(self):
        while line := await self.process.stderr.readline():
            self.log.append(line)

    async def kill(self):
        await self._signal(signal.SIGKILL)

    async def stop(self):
        code = await self._signal(signal.SIGTERM)
        shutil.rmtree(self.dir)
        log = b''.join(self.log).decode()
        assert code == 0 and '"level":"ERROR"' not in log, f'a2ad ended with {code}:\n{log}'

    async def _signal(self, number):
        self.process.send_signal(number)
        code = await self.process.wait()
        await self.reading
        return code


class Gate:
    """A place in a script where the agent waits until the test lets it pass."""

    async def __aenter__(self):
        self.opened = asyncio.Event()
        self.server = await asyncio.start_server(self._answer, '127.0.0.1', 0)
        port = self.server.sockets[0].getsockname()[1]
        self.op = {'op': 'effect', 'url': f'http://127.0.0.1:{port}/', 'key': 'gate'}
        return self

    async def __aexit__(self, *_):
        self.open()
        self.server.close()

    def open(self):
        self.opened.set()

    async def _answer(self, reader, writer):
        await reader.readuntil(b'\r\n\r\n')
        await self.opened.wait()
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
        writer.close()
