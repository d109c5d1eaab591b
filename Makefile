# Everything runs in .venv, made on first use from requirements.lock. Nothing here needs more than Python 3.11+, make and a network once.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
ENVIRONMENT := pyproject2conda yaml --name perfkit --python-include infer --extra dev --req '-e .' --no-header
BY_FILE := --dist loadfile  # what a module reads or builds for its tests is made once, by one process
PORT ?= 8866
PROJECT ?= project
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

.PHONY: install app lab test test-all-but-browser test-unit lint format bench bench-soak fuzz screenshots docs lock environment wheel wheelhouse install-matrix deployment sbom js browser edit clean

install: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "perfkit needs Python 3.11 or newer; none was found on PATH (set PYTHON=...)"; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing perfkit's environment into $(VENV) (once; a minute or two)..."
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --python $(BIN)/python -r requirements.lock && uv pip install --quiet --python $(BIN)/python --no-deps -e . ; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock && $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e . ; \
	fi
	-@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib perfkit  # by all cores; pip takes one
	@touch $@

app: install  ## serve the app on 127.0.0.1 with the sample project
	@test -e $(PROJECT)/perfkit.toml || $(BIN)/perfkit demo $(PROJECT)
	@$(BIN)/perfkit serve $(PROJECT) --port $(PORT)

lab: install  ## the same pages as notebooks in JupyterLab
	@test -e $(PROJECT)/perfkit.toml || $(BIN)/perfkit demo $(PROJECT)
	@$(BIN)/perfkit serve $(PROJECT) --lab

test:  ## everything: lint, types, contracts, unit tests, notebooks, browser
	@$(MAKE) --no-print-directory -j 3 browser lint test-all-but-browser
	$(BIN)/python -m pytest -n 2 $(BY_FILE) -m browser tests/browser

test-all-but-browser: install
	$(BIN)/python -m pytest -n 2 $(BY_FILE) --no-loadscope-reorder -m "not browser" tests

test-unit: install  ## the quick half: no browser, no notebooks
	$(BIN)/python -m pytest -n 2 $(BY_FILE) --no-loadscope-reorder -m "not browser and not slow" tests

lint: install  ## format, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: install
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: install  ## paired comparisons; ratios, not seconds
	@for script in benchmarks/*/bench_*.py; do $(BIN)/python -m $$(echo $${script%.py} | tr / .) || exit 1; done

bench-soak: install  ## 20 visitors for 10 minutes with killed kernels and missing descriptors, under hard limits
	@$(BIN)/python -m benchmarks.server.bench_soak --visitors 20 --minutes 10 --max-gb 12

SECONDS ?= 60
fuzz: install  ## bytes that nobody wrote to every reader, SECONDS each; led by coverage where atheris is installed
	@$(BIN)/python -m benchmarks.fuzz.fuzz --seconds $(SECONDS) --found found

docs: install  ## dist/site: tutorial, how-to, reference and explanation; a link that leads nowhere ends it
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs dist/site
	@echo "open dist/site/index.html"

screenshots: install browser  ## one picture per page and theme under screenshots/
	@$(BIN)/python -m benchmarks.ui.screenshots screenshots

browser:
	@sh tests/browser/ensure_chromium.sh

lock: install  ## pin every dependency; the file records no download address
	uv pip compile pyproject.toml --extra dev --extra docs --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --quiet -o requirements.lock

environment: install  ## environment.yml from pyproject.toml
	@$(BIN)/$(ENVIRONMENT) -o environment.yml -w force

wheel: install  ## dist/perfkit-VERSION-py3-none-any.whl
	@$(BIN)/hatchling build -t wheel

wheelhouse: wheel  ## dist/wheelhouse: perfkit and all that it needs, for this Python without a network; tar it and carry it over
	@rm -rf dist/wheelhouse
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check -c requirements.lock -w dist/wheelhouse dist/perfkit-*.whl
	@echo "there: pip install --no-index --find-links wheelhouse perfkit"

install-matrix: wheelhouse  ## perfkit from its wheel on every Python here: locked, newest, lowest and offline
	@$(BIN)/python -m tests.install.matrix --wheel dist/perfkit-*.whl --wheelhouse dist/wheelhouse

deployment: install  ## the Kubernetes manifest against its schemas, and the container built and run where there is a builder
	@$(BIN)/python -m tests.install.deployment

sbom: install  ## dist/perfkit.cdx.json: what is installed, with versions and licences (CycloneDX)
	@$(BIN)/python -m tests.install.licences --sbom dist/perfkit.cdx.json

js:  ## rebuild the committed JavaScript bundle (needs npm)
	cd js && npm ci && npm run build

edit: install  ## edit a page as text: make edit PAGE=02
	@$(BIN)/python -m tests.notebook_format --edit $(PAGE)

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis screenshots
