"""A graph whose model answers with the number of messages that it was given, on LangGraph's own server.

The message "ask" is answered with a question first.
"""

import json
import os
import sys

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


async def talk(state):
    if state['messages'][-1].content == 'ask':
        interrupt('Sure?')
    model = GenericFakeChatModel(messages=iter([AIMessage(content=f'Answer {len(state["messages"])}')]))
    return {'messages': [await model.ainvoke(state['messages'])]}


graph = StateGraph(MessagesState).add_node('talk', talk).add_edge(START, 'talk').add_edge('talk', END).compile()

if __name__ == '__main__':
    with open('langgraph.json', 'w') as f:
        json.dump({'dependencies': ['.'], 'graphs': {'agent': os.path.abspath(__file__) + ':graph'}}, f)
    os.environ['LOG_LEVEL'] = 'ERROR'
    langgraph = os.path.join(os.path.dirname(sys.executable), 'langgraph')
    os.execv(langgraph, [langgraph, 'dev', '--no-browser', '--no-reload', '--port', sys.argv[1]])
