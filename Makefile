# make demo: install into .venv, impute the example in data/, score it. make workflow: the same with Snakemake, in
# chunks. make quick: lint and the tests that are not marked slow, in about two minutes. make test: lint, types and
# all tests. make coverage: all tests, and which lines they reach. make docs: pages into build/site; a warning is an
# error. make dist: wheel and sdist, each tried in an empty environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo workflow quick test coverage lint docs dist clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What earlier versions kept beside their installed files stays when they are uninstalled, and hides the sources.
define install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.$(1)'
	for folder in $(VENV)/lib/python*/site-packages/spinimpute; do \
	    test -e "$$folder/__init__.py" || rm -rf "$$folder"; \
	done
endef

$(VENV)/installed: pyproject.toml setup.py | $(BIN)/python
	$(call install,)
	touch $@

$(VENV)/installed-test: pyproject.toml setup.py | $(BIN)/python
	$(call install,[test])
	touch $@ $(VENV)/installed

demo: $(VENV)/installed
	mkdir -p demo
	$(BIN)/spinimpute panel build --vcf data/example/panel.vcf.gz --map data/example/genetic.map \
	    --out demo/panel.spin --force
	$(BIN)/spinimpute impute --vcf data/example/target.vcf.gz --panel demo/panel.spin \
	    --out demo/imputed.vcf.gz --force
	$(BIN)/spinimpute evaluate --truth data/example/truth.vcf.gz --imputed demo/imputed.vcf.gz \
	    --panel demo/panel.spin --typed data/example/target.vcf.gz --out demo/evaluation --force
	@echo
	@echo "Imputed genotypes:  demo/imputed.vcf.gz"
	@echo "Accuracy:           demo/evaluation/accuracy.tsv"
	@echo "To call the program: $(BIN)/spinimpute, or first run: source $(BIN)/activate"

workflow: $(VENV)/installed
	$(call install,[workflow])
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --snakefile workflows/impute/Snakefile --cores 2 \
	    --config out=demo/workflow chunk_cM=0.4
	@echo
	@echo "Report over all targets and chromosomes:  demo/workflow/report.html"

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/numpydoc lint $$(find spinimpute cli -name '*.py')

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile --no-loadscope-reorder

quick: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(PYTEST) -m "not slow"

test: lint
	$(PYTEST)

# Lines of compiled kernels count as not reached. `tests/hmm` and others compare kernels with slow references.
coverage: $(VENV)/installed-test
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage
	@echo "Each file, line by line:  build/coverage/index.html"

dist: $(VENV)/installed-test
	rm -rf dist build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tests/packaging/check_dist.py dist

docs: $(VENV)/installed
	$(call install,[docs])
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --clean
	@echo "Documentation:  build/site/index.html"

clean:
	rm -rf $(VENV) demo dist build *.egg-info
