"""A program that plays the model: the prompt comes on stdin, the answer goes to stdout. Its answers are scripted.

A real one would hand the prompt to a model. The format of the answers is described in docs/answer-format.md.
"""

import re
import sys

VALIDATED = """\
    @schema_method(
        input_schema={"order_id": str, "items": list[dict[str, float]]},
        output_schema={"status": str, "total": float},
    )
    @publishes("/Order/Created", {"order_id": str, "total": float})
    def process_order(self, order_id: str, items: list[dict[str, float]]) -> dict[str, str | float]:
        if any(item["price"] < 0 for item in items):
            raise ValueError(f"order {order_id} has a negative price")
        total = float(sum(item["price"] * item["qty"] for item in items))
        self.publish("/Order/Created", {"order_id": order_id, "total": total})
        return {"status": "confirmed", "total": total}
"""

PROPOSAL = f"""\
## proposal
title: Add input validation for negative prices
intent: add_validation
reason: Prevents downstream errors in the calculation of the total.
affects: InventoryService, NotificationService
### edit replace_symbol agents/order_processor.py OrderProcessor.process_order
```python
{VALIDATED}```
"""

OPINIONS = {
    "InventoryService": "reduces error handling in my handler",
    "NotificationService": "no schema impact on my side",
}


def answer(prompt: str) -> str:
    """Answer as whoever is asked would."""
    agent = re.search(r"You speak for the class (\w+)", prompt)[1]
    task, _, rest = re.search(r"^# Your task: (.*)$", prompt, re.MULTILINE)[1].partition(" ")
    if task == "analyze":
        return "## analysis\nresponsibility: does what its docstring says\n"
    if task == "propose" and agent == "OrderProcessor" and "has a negative price" not in prompt:
        return PROPOSAL
    if task == "evaluate":
        return "".join(
            f"## evaluation {number}\ndecision: accept\nreasoning: {OPINIONS.get(agent, 'nothing breaks')}\n"
            for number in re.findall(r"P\d+", rest)
        )
    return "## nothing\n"


if __name__ == "__main__":
    sys.stdout.write(answer(sys.stdin.read()))
