"""An agent of agno with a model that says the same each time, in pieces, and draws an image."""

import sys

import uvicorn
from agno.agent import Agent
from agno.media import Image
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.interfaces.a2a import A2A


class Greeter(Model):
    def __init__(self):
        super().__init__(id='greeter', name='greeter', provider='none')

    async def ainvoke_stream(self, *_, **__):
        for text in ('Hel', 'lo', ' there'):
            yield ModelResponse(role='assistant', content=text)
        yield ModelResponse(role='assistant', images=[Image(url='https://example.com/hello.png')])

    async def ainvoke(self, *_, **__):
        return ModelResponse(role='assistant', content='Hello there')

    def invoke(self, *_, **__):
        raise NotImplementedError

    def invoke_stream(self, *_, **__):
        raise NotImplementedError

    def _parse_provider_response(self, response, **_):
        return response

    def _parse_provider_response_delta(self, response):
        return response


agent = Agent(id='greeter', model=Greeter(), telemetry=False)
app = AgentOS(agents=[agent], interfaces=[A2A(agents=[agent])], telemetry=False).get_app()
uvicorn.run(app, host='127.0.0.1', port=int(sys.argv[1]), log_level='warning')
