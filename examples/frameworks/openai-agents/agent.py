"""A support agent that looks up orders and, if the client agrees, pays them back."""

from agents import Agent, function_tool

from a2ad import Worker
from a2ad.openai_agents import run

worker = Worker()  # A2AD_URL, A2AD_API_KEY


def shop(request: str) -> str:
    """Stand for the API of a shop."""
    return f"{request}: a lamp, 30 EUR"


@function_tool
def find_order(order: str) -> str:
    """Look up an order."""
    return shop(f"GET /orders/{order}")


@function_tool(needs_approval=True)
def refund(order: str, amount: int) -> str:
    """Pay an order back."""
    return shop(f"POST /orders/{order}/refund")


agent = Agent(
    name="support",
    model="gpt-5",
    instructions="You help with orders.",
    tools=[find_order, refund],
)


@worker.agent("support")
async def support(task, message):
    await run(task, agent, message.text)


if __name__ == "__main__":
    worker.run()
