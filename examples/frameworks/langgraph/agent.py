"""A support agent that looks up orders and, if the client agrees, pays them back."""

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from a2ad import Worker
from a2ad.langgraph import run

worker = Worker()  # A2AD_URL, A2AD_API_KEY


def shop(request: str) -> str:
    """Stand for the API of a shop."""
    return f"{request}: a lamp, 30 EUR"


@tool
def find_order(order: str) -> str:
    """Look up an order."""
    return shop(f"GET /orders/{order}")


@tool
def refund(order: str, amount: int) -> str:
    """Pay an order back."""
    question = f"Pay {amount} EUR of {order} back?"
    if interrupt({"question": question, "choices": ["yes", "no"]}) == "no":
        return "The person said no."
    return shop(f"POST /orders/{order}/refund")


tools = [find_order, refund]


def model():
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-5").bind_tools(tools)


async def think(state: MessagesState):
    return {"messages": [await model().ainvoke(state["messages"])]}


graph = (
    StateGraph(MessagesState)
    .add_node("think", think)
    .add_node("tools", ToolNode(tools))
    .add_edge(START, "think")
    .add_conditional_edges("think", tools_condition)
    .add_edge("tools", "think")
    .compile()
)


@worker.agent("support")
async def support(task, message):
    await run(task, graph, {"messages": [("user", message.text)]})


if __name__ == "__main__":
    worker.run()
