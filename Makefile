# Two commands matter: `make demo` shows GraphBus at work, `make test` proves everything.
# Each sets up its own virtual environment in .venv and needs nothing but Python >= 3.11, git and make.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test check-fast live bench soak docs lock format clean
.DEFAULT_GOAL := help

help:  ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "GraphBus needs Python 3.11 or newer; none found on PATH." >&2; exit 2; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)  ## A shop is made, checked, negotiated, tested and run
	@$(BIN)/python scripts/demo.py

test: $(READY)  ## Everything: format, lint, types, floor plan, tests, coverage, guarantees, docs
	@$(BIN)/python scripts/test.py

check-fast: $(READY)  ## Static checks and the quick tests, in about a minute
	@$(BIN)/python scripts/test.py --fast

live: $(READY)  ## Negotiate with a real model: ARGS="--gguf FILE --server PROGRAM" or "--base-url URL --model NAME"
	@$(BIN)/python -m scripts.live $(ARGS)

bench: $(READY)  ## Measure against the limits and peers of docs/performance.md
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/bench.txt
	@$(BIN)/python benchmarks/run_all.py

soak: $(READY)  ## Ten million events: none lost, none twice, memory stays where it is
	@$(BIN)/python benchmarks/soak.py

docs: $(READY)  ## Build the documentation into site/
	@$(BIN)/python -m scripts.docs

format: $(READY)  ## Format the code in place
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix-only --quiet .

lock:  ## Recompute the hashed requirements (needs uv)
	@cd requirements && for f in runtime llm serve watch otel nats mcp dev bench; do \
	  uv pip compile --quiet --generate-hashes --universal --no-emit-index-url --no-header --no-annotate \
	    --python-version 3.11 --exclude-newer "$$(date -u -d '7 days ago' +%Y-%m-%d)" $$f.in -o $$f.txt; done; \
	for f in langgraph faststream bubus autogen signals validators; do \
	  uv pip compile --quiet --generate-hashes --universal --no-emit-index-url --no-header --no-annotate --only-binary :all: \
	    --python-version 3.11 --exclude-newer "$$(date -u -d '7 days ago' +%Y-%m-%d)" peer-$$f.in -o peer-$$f.txt; done
	@cd requirements && uv pip compile --quiet --no-deps --generate-hashes --universal --no-emit-index-url --no-header --no-annotate \
	  --only-binary :all: --python-version 3.11 --exclude-newer "$$(date -u -d '7 days ago' +%Y-%m-%d)" live.in -o live.txt
	@$(BIN)/python scripts/image_pins.py

clean:  ## Remove everything that can be made again
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .cache .coverage* .testreport site dist
