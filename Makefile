# make demo: install into .venv, impute the example in data/, score it. make test: lint, types, tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
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
	@echo "Accuracy:           demo/evaluation/accuracy.tsv and accuracy.png"

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -q

clean:
	rm -rf $(VENV) demo build *.egg-info
