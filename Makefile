# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
#
# make demo   a recording flows through ROS 2 topics into a policy; chunks are executed at 15 Hz
# make test   everything that must hold: style, types, builds, tests
SHELL := /bin/bash
PYTHON ?= python3
ENV := . .venv/env.sh
PYTEST_ARGS ?=
# Exit code 5 is "no test selected", which either half may be where somebody selects some.
ONLY := $(if $(PYTEST_ARGS),5,0)
# Build folders of their own, so that a colcon workspace around the checkout is left alone.
COLCON := colcon --log-base log build --base-paths . --packages-select cosmos_lite_ros \
	--event-handlers console_cohesion- desktop_notification-

.PHONY: demo test lint types build env clean

env:
	@$(PYTHON) scripts/setup_env.py

build: env
	@$(ENV) && $(COLCON) --symlink-install >/dev/null || { cat log/latest_build/*/stderr.log; exit 1; }

lint: env
	@$(ENV) && ruff check . && ruff format --check .

types: env
	@$(ENV) && mypy

# Files on two workers; then the nodes alone, since their tests wait for clocks.
test: env
	@$(MAKE) --no-print-directory lint types build
	@$(ENV); failed=0; \
	for half in "not ros" "ros"; do \
		workers=; [ "$$half" = ros ] || workers="-n 2 --dist loadgroup"; \
		python -m pytest -m "$$half" $$workers $(PYTEST_ARGS); code=$$?; \
		[ $$code -eq 0 ] || [ $$code -eq $(ONLY) ] || failed=1; \
	done; exit $$failed

demo: env
	@$(MAKE) --no-print-directory build
	@$(ENV) && cosmos-lite-ros demo --out demo_out $(DEMO_ARGS)

clean:
	rm -rf .venv build install log demo_out
