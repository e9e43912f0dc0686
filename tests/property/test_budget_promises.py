"""Whatever answers cost, fail or come late: what is spent never passes a limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Lock

from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.errors import ModelError
from graphbus_core.llm.attempts import RetryingClient
from graphbus_core.llm.budget import NANO, Amount, Bill, BudgetMeter, current_bill
from graphbus_core.llm.client import Completion, ModelPrompt
from graphbus_core.model.config import Budget
from graphbus_core.model.spending import Price, Usage

PRICE = Price(3.0, 15.0)


class Unsteady:
    """Costs anything up to the worst case, fails now and then, and may be paid for its failures."""

    model = "scripted:unsteady"
    price: Price | None = PRICE

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lock = Lock()
        self.billed = Amount()

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: object = None) -> Completion:
        with self.lock:
            chance, share_in, share_out = (self.random.random() for _ in range(3))
            most_in = len(prompt.task.encode())
            usage = Usage(input_tokens=int(share_in * most_in), output_tokens=int(share_out * max_output_tokens))
            cost = (usage.input_tokens * PRICE.input_usd + usage.output_tokens * PRICE.output_usd) / 1e6
            if chance >= 0.2:
                self.billed = self.billed.plus(Amount(usage.total_tokens, round(cost * NANO)))
                if chance >= 0.4:
                    return Completion(text="ok", model=self.model, usage=usage, cost_usd=cost)
        raise ModelError("GBE448", may_be_billed=chance >= 0.2, provider="x", reason="chance")

    def close(self) -> None: ...


@given(
    seed=st.integers(0, 10_000),
    max_usd=st.floats(0.001, 0.05),
    max_tokens=st.integers(0, 20_000),
    held=st.integers(0, 5_000),
    questions=st.integers(1, 30),
)
def test_no_limit_is_ever_passed(seed: int, max_usd: float, max_tokens: int, held: int, questions: int) -> None:
    provider = Unsteady(seed)
    client = RetryingClient(provider, 1, 0, 8)
    meter = BudgetMeter(Budget(max_usd=max_usd, max_tokens=max_tokens))

    def ask(number: int) -> None:
        reserved = Amount(held, held * 1000)
        if meter.set_aside(reserved):
            return
        with Bill(meter, reserved).running():
            for _ in range(1 + number % 3):
                try:
                    current_bill().add_answer(client.complete(ModelPrompt(shared="", task="x" * (100 * number)), 200))
                except ModelError:
                    continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(questions)))
    assert meter.held == Amount()
    for spent in (meter.spent, provider.billed):
        assert spent.nano_usd <= max_usd * NANO
        assert not max_tokens or spent.tokens <= max_tokens
    assert provider.billed.tokens <= meter.spent.tokens
