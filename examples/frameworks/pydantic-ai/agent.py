"""A support agent that looks up orders and, if the client agrees, pays them back."""

from pydantic_ai import Agent

from a2ad import Worker
from a2ad.pydantic_ai import Durable

worker = Worker()  # A2AD_URL, A2AD_API_KEY
agent = Agent("openai:gpt-5", instructions="You help with orders.", defer_model_check=True)


def shop(request: str) -> str:
    """Stand for the API of a shop."""
    return f"{request}: a lamp, 30 EUR"


@agent.tool_plain
def find_order(order: str) -> str:
    """Look up an order."""
    return shop(f"GET /orders/{order}")


@agent.tool_plain(requires_approval=True)
def refund(order: str, amount: int) -> str:
    """Pay an order back."""
    return shop(f"POST /orders/{order}/refund")


@worker.agent("support")
async def support(task, message):
    await agent.run(message.text, capabilities=[Durable(task)])


if __name__ == "__main__":
    worker.run()
