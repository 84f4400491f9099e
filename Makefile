# Setpoint. `make demo` and `make test` need make, Python 3.11 or newer, and a package index; everything else is made here.
# uv is used where it is installed, because it is faster; pip installs the same files with the same hashes.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# A machine that sets it compiles Django anew in every process: a start takes 2.9 s instead of 1.3 s, and a run of the
# tests starts hundreds of them.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
TIER ?= fast
ARGS ?=

# The newest of the tested Pythons that is here; PYTHON=... overrides.
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3; do \
	if "$$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2])' 2>/dev/null; then echo "$$candidate"; break; fi; done)

.PHONY: help test coverage lint checks docs images format demo break up bench soak guards controlplane machine node charts vendor secrets openapi lock screenshots clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' | expand -t 15

# ── The virtual environment: one, grown from base (what the server image has) to test to lint to docs to release ──────────────
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Setpoint needs Python 3.11 or newer; none found on PATH (PYTHON=/path/to/python3 names one)" >&2; exit 1; }
	@if uv --version >/dev/null 2>&1; then uv venv --quiet --allow-existing --python "$(PYTHON)" $(VENV); \
	else "$(PYTHON)" -m venv $(VENV); fi

define install
	@echo "installing requirements/$(1).txt into $(VENV)"
	@if uv --version >/dev/null 2>&1; then uv pip install --quiet --require-hashes --python $(BIN)/python -r requirements/$(1).txt; \
	else $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/$(1).txt; fi
	@touch $(foreach name,$(2),$(VENV)/.installed-$(name))
endef

$(VENV)/.installed-base: requirements/base.txt | $(BIN)/python
	$(call install,base,base)
$(VENV)/.installed-test: requirements/test.txt | $(BIN)/python
	$(call install,test,base test)
$(VENV)/.installed-lint: requirements/lint.txt | $(BIN)/python
	$(call install,lint,base test lint)
$(VENV)/.installed-docs: requirements/docs.txt | $(BIN)/python
	$(call install,docs,base test lint docs)
$(VENV)/.installed-release: requirements/release.txt | $(BIN)/python
	$(call install,release,base test lint docs release)
$(VENV)/.installed-node: requirements/node.txt | $(BIN)/python
	$(call install,node,node)

# ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────────────
test: $(VENV)/.installed-test $(if $(filter full all,$(TIER)),vendor $(VENV)/.installed-release) ## the fast tier; TIER=node a machine in QEMU, TIER=full each part of everything, TIER=all everything (hours); ARGS="tests/jobs -k pause" narrows
	@$(BIN)/python -m tests.run $(TIER) $(ARGS)

coverage: $(VENV)/.installed-test ## the fast tier's coverage by lines and branches, in var/coverage/; ARGS narrows
	@$(BIN)/python -m tests.run fast $(or $(ARGS),-n2) --cov --cov-report=html --cov-report=term

lint: checks ## ruff, mypy strict, import contracts, djade, forgotten migrations, rules for prose, names and sizes
	TIER=fast $(BIN)/python -m pytest -q tests/platform/source

checks: $(VENV)/.installed-lint ## lint without the rules that are tests of the fast tier, for .ci/run, which runs that tier next
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@templates=$$(git ls-files '*.html'); if [ -n "$$templates" ]; then \
	echo "djade --check"; $(BIN)/djade --check --target-version 5.2 $$templates; fi
	SETPOINT_VAR=$$(mktemp -d) $(BIN)/python manage.py makemigrations --check --dry-run

docs: $(VENV)/.installed-docs ## the documentation as a site, in var/site/ (TO=folder); needs no network, and fails on a link that leads nowhere
	@$(BIN)/python -m tools.site $(if $(TO),--to $(TO))

format: $(VENV)/.installed-lint ## what lint would complain about, where a tool can put it right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@templates=$$(git ls-files '*.html'); if [ -n "$$templates" ]; then $(BIN)/djade --target-version 5.2 $$templates || true; fi

images: $(VENV)/.installed-release ## a release's images with SBOMs, in var/release/ (TO=folder): of the commit, reproducible, without a daemon (root, buildah)
	@$(BIN)/python -m tools.release images --to $(or $(TO),var/release) $(if $(SOURCE),--source $(SOURCE))

# ── Running ───────────────────────────────────────────────────────────────────────────────────────────────────────────
demo: $(VENV)/.installed-base vendor ## simulated clusters, seeded content, on 127.0.0.1; PORT=8000 NODES=51 (to 5000)
	@$(BIN)/python manage.py demo --port $(PORT) $(if $(NODES),--nodes $(NODES))

break: $(VENV)/.installed-base ## breaks something in the running demo by hand: WHAT=image, config, quota, no-quota, registry, crash, outage; WHAT=mend
	@$(BIN)/python manage.py demo_break $(or $(WHAT),image)

up: $(VENV)/.installed-base vendor ## the embedded server for real use on one machine; PORT=8000
	@$(BIN)/python manage.py up --port $(PORT)

secrets: $(BIN)/python ## deploy/*.env with fresh keys and passwords, for containers and the Helm chart; never overwrites
	@$(BIN)/python deploy/new_environment.py

vendor: $(BIN)/python ## the browser's libraries into static/vendor, from package-lock.json
	@command -v npm >/dev/null || $(MAKE) $(VENV)/.installed-node
	@$(BIN)/python tools/vendor.py

screenshots: $(VENV)/.installed-test vendor ## docs/screenshots/ and its index, from the demo (needs Chromium)
	@$(BIN)/python tools/screenshots.py $(ARGS)

openapi: $(VENV)/.installed-base ## docs/openapi.yaml from the code
	SETPOINT_VAR=$$(mktemp -d) $(BIN)/python manage.py spectacular --file docs/openapi.yaml --validate

# ── Heavy machinery ───────────────────────────────────────────────────────────────────────────────────────────────────
controlplane: ## builds and caches the real control plane for the full tier (Go 1.25 or newer; 8 minutes when cold)
	tests/controlplane/build.sh

machine: $(VENV)/.installed-test ## builds and caches the disk and the kubelet of TIER=node (root, Go; 4 minutes when cold)
	tests/nodemachine/build.sh
	@$(BIN)/python -m tests.nodemachine.disk

node: machine controlplane ## a real cluster of one node to try Setpoint on, in QEMU, until Ctrl-C (docs/real-cluster.md)
	@$(BIN)/python -m tests.nodemachine

charts: $(VENV)/.installed-base ## the real charts that the full tier tries, from their repositories; TO=folder, which SETPOINT_CHARTS then names
	@$(BIN)/python tools/charts.py $(if $(TO),--to $(TO))

bench: $(VENV)/.installed-test controlplane ## the tables of docs/performance/, measured here
	@$(BIN)/python -m bench $(ARGS)

soak: $(VENV)/.installed-test controlplane ## 100 rollouts of nodes and 100 of components under kill -9; SEED=1 COUNT=100
	@SEED=$(or $(SEED),1) COUNT=$(or $(COUNT),100) $(BIN)/python -m tests.run full tests/soak $(ARGS)

guards: $(VENV)/.installed-test ## takes each guard of the laws away and sees whether its tests notice; LAW=5, TIER=full
	@$(BIN)/python tools/guards.py --tier $(TIER) $(if $(LAW),--law $(LAW)) $(ARGS)

# ── Dependencies ──────────────────────────────────────────────────────────────────────────────────────────────────────
# PIP_* and UV_* of this machine must not leave traces in what is committed: the files name packages and hashes, nothing else.
COMPILE := env $$(env | sed -nE 's/^((PIP|UV)_[A-Z_]+)=.*/-u \1/p') uv pip compile --quiet --universal --generate-hashes \
	--python-version 3.11 --no-emit-index-url --no-strip-extras --no-header --no-annotate --no-config
lock: ## requirements/*.txt from pyproject.toml (needs uv); UPGRADE=1 takes the newest versions
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements/base.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --group test -c requirements/base.txt -o requirements/test.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --group test --group lint -c requirements/test.txt -o requirements/lint.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --group test --group lint --group docs -c requirements/lint.txt -o requirements/docs.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --group test --group lint --group docs --group release -c requirements/docs.txt -o requirements/release.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --group node -o requirements/node.txt
	$(BIN)/python -m tools.pins requirements/test.txt requirements/lint.txt requirements/docs.txt requirements/release.txt

clean: ## everything made here except var/ (an installation's data) and the control plane's cache
	rm -rf $(VENV) node_modules static/vendor staticfiles .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
