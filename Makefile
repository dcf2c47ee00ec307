# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
#
# make demo   a recording flows through ROS 2 topics into a policy; chunks are executed at 15 Hz
# make test   everything that must hold: style, types, builds, tests
SHELL := /bin/bash
PYTHON ?= python3
ENV := . .venv/env.sh
# Nodes on one worker, which waits for clocks more than it computes; everything else on the other.
PYTEST_ARGS ?= -n 2 --dist loadgroup
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

test: env
	@$(MAKE) --no-print-directory lint types build
	@$(ENV) && python -m pytest $(PYTEST_ARGS)

demo: env
	@$(MAKE) --no-print-directory build
	@$(ENV) && cosmos-lite-ros demo --out demo_out $(DEMO_ARGS)

clean:
	rm -rf .venv build install log demo_out
