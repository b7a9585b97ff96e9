"""An agent that only writes to its storage, as the base class of fasta2a's workers does."""

import sys
from contextlib import asynccontextmanager

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part
from fasta2a.storage import InMemoryStorage


class Echo(Worker):
    async def run_task(self, params):
        await self.storage.update_task(params['id'], state='working')
        await self.storage.update_task(
            params['id'], state='completed',
            new_artifacts=[Artifact(artifact_id='echo', parts=params['message']['parts'])],
            new_messages=[Message(role='agent', message_id='note', parts=[Part(text='echoed')])],
        )

    async def cancel_task(self, params):
        await self.storage.update_task(params['id'], state='canceled')

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return []


storage, broker = InMemoryStorage(), InMemoryBroker()


@asynccontextmanager
async def lifespan(app):
    async with app.task_manager, Echo(broker=broker, storage=storage).run():
        yield


port = int(sys.argv[1])
app = FastA2A(storage=storage, broker=broker, lifespan=lifespan, url=f'http://127.0.0.1:{port}')
uvicorn.run(app, host='127.0.0.1', port=port, log_level='warning')
