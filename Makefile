# Everything a person needs: `make demo` and `make test` set themselves up from a clean clone (Python 3.11+, git, make).
PYTHON ?= python3
WORKERS ?= 3
SHARED ?= $(or $(DOLMA_DASK_SHARED),../shared)
BIN := .venv/bin
UV := $(BIN)/uv
.DEFAULT_GOAL := help

.PHONY: help demo collected compiled test test-thorough test-services test-torch test-models test-cluster test-fast report-preview same-content conformance lint types notebooks lab bench docs wheel lock clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

demo: .venv/run.stamp  ## the whole job on text from this Python installation; ends with reports/demo.html
	$(BIN)/dolma-dask demo --folder demo --report reports/demo.html

collected: .venv/dev.stamp  # what pytest makes of the sources of the tests, once for all its processes
	@$(BIN)/pytest -qq --collect-only tests >/dev/null

compiled: .venv/dev.stamp  # the kernels of the tests
	@cd tests && ../$(BIN)/python -c "import conftest, dolma_dask; dolma_dask.warm_up(workers=1)"

test: .venv/dev.stamp  ## all tests but those on services and on SLURM; those that need the reference data are skipped without it, and counted
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not cluster and not services" tests
	@echo "not run: the tests on an S3 server and in notebooks (make test-services), and those on a real SLURM (make test-cluster)"

test-thorough: export THOROUGH = 1
test-thorough: test  ## the same with ten times as many examples and every variant; for a release, or a change of what all verbs share

test-services: .venv/dev.stamp  ## every verb on a real S3 server, all notebooks, and one in JupyterLab in a browser
	$(BIN)/pytest -n 3 --dist worksteal -m services tests/e2e

test-torch: .venv/torch.stamp  ## rows for training in torch's DataLoader, which is installed for it (900 MB)
	.venv/torch/bin/python -m pytest -q tests/unit/loaders/test_torch.py tests/e2e/test_docs.py -k torch

test-models: .venv/models.stamp  ## taggers of the packages lingua, langdetect, presidio and KenLM, which are installed for it (900 MB, with a C++ compiler)
	.venv/models/bin/python -m pytest -q tests/unit/test_extras.py tests/unit/taggers tests/property/test_taggers.py tests/property/test_fuzzed_texts.py -k "extras or perplexity or presidio or langdetect or lingua or language"

test-cluster: .venv/dev.stamp  ## tests on a real SLURM of their own (needs slurmctld slurmd slurm-client munge, and for several nodes root and python3-fuse; skipped without them)
	$(BIN)/pytest -n 2 --dist worksteal tests/cluster

test-fast: .venv/dev.stamp  ## the quick unit tests of all but the verbs, under a minute; of those: pytest tests/unit/verbs -k NAME
	$(BIN)/pytest -q -n 2 -m "not slow" tests/unit --ignore tests/unit/verbs

same-content: .venv/dev.stamp  ## prove that no byte of any output has changed since the baseline
	$(BIN)/python tools/same_content.py --check tools/same_content.txt

conformance: .venv/dev.stamp  ## compare with outputs of the original tools in $DOLMA_DASK_SHARED (default ../shared)
	@test -d "$(SHARED)/conformance" || { echo "reference data not found at $(SHARED); set DOLMA_DASK_SHARED"; exit 1; }
	DOLMA_DASK_SHARED="$(SHARED)" $(BIN)/pytest -m conformance

lint: .venv/dev.stamp  ## style and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/dev.stamp  ## mypy strict
	$(BIN)/mypy

notebooks: .venv/dev.stamp  ## run the notebooks, and store them with their outputs and the gallery
	$(BIN)/python tools/notebooks.py

report-preview: .venv/dev.stamp  ## reports/example.html and its picture, from the data of `make demo`
	$(BIN)/python tools/report_preview.py demo

lab: demo .venv/dev.stamp  ## JupyterLab with the notebooks, the demo's data and Dask's pane
	$(BIN)/python tools/lab.py

bench: .venv/dev.stamp  ## every benchmark: MB of text per CPU-second and peak memory
	$(BIN)/python -m benchmarks

docs: .venv/dev.stamp  ## the documentation as a site in site/; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: .venv/bin/uv  ## the package as one file in dist/, which containers/ installs
	rm -rf dist
	$(UV) build --quiet --wheel

lock: .venv/bin/uv  ## renew the lock files
	$(UV) pip compile -q --universal --generate-hashes --python-version 3.11 --no-header --no-emit-index-url pyproject.toml --extra s3 --extra slurm --extra jq --extra ftfy --extra report --extra web --extra secrets --extra fast --extra language --extra models -o requirements.lock
	$(UV) pip compile -q --universal --generate-hashes --python-version 3.11 --no-header --no-emit-index-url -c requirements.lock pyproject.toml --extra all --group dev -o requirements-dev.lock

clean:  ## remove what the targets made
	rm -rf .venv demo reports/demo.* dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; call: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9'

.venv/run.stamp: requirements.lock pyproject.toml | .venv/bin/uv
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps -e .
	$(BIN)/python -m compileall -q dolma_dask
	$(BIN)/dolma-dask warm-up
	@touch $@

.venv/torch.stamp: | .venv/dev.stamp
	$(PYTHON) -m venv .venv/torch
	.venv/torch/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0'
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" > "$$(.venv/torch/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	@touch $@

.venv/models.stamp: | .venv/dev.stamp
	$(PYTHON) -m venv .venv/models
	$(UV) pip install --quiet --python .venv/models/bin/python -c requirements-dev.lock -r pyproject.toml --extra kenlm --extra langdetect --extra lingua --extra presidio
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" > "$$(.venv/models/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	@touch $@

.venv/dev.stamp: requirements-dev.lock pyproject.toml | .venv/bin/uv
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements-dev.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps -e .
	$(BIN)/python -m compileall -q dolma_dask
	@touch $@
