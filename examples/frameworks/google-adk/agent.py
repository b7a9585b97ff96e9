"""A support agent that looks up orders and, if the client agrees, pays them back."""

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool

from a2ad import Worker
from a2ad.google_adk import run

worker = Worker()  # A2AD_URL, A2AD_API_KEY


def shop(request: str) -> str:
    """Stand for the API of a shop."""
    return f"{request}: a lamp, 30 EUR"


def find_order(order: str) -> str:
    """Look up an order."""
    return shop(f"GET /orders/{order}")


def refund(order: str, amount: int) -> str:
    """Pay an order back."""
    return shop(f"POST /orders/{order}/refund")


agent = LlmAgent(
    name="support",
    model="gemini-flash-latest",
    instruction="You help with orders.",
    tools=[find_order, FunctionTool(refund, require_confirmation=True)],
)


@worker.agent("support")
async def support(task, message):
    await run(task, agent, message.text)


if __name__ == "__main__":
    worker.run()
