# tests: units (cmocka), the simulation, fuzz corpora, and the real binaries driven from Python.
VENV_OK := build/venv/.ok
PIP_TEST := grpcio grpcio-tools pytest
T ?=

.PHONY: test venv upstream demo bench check
venv: $(VENV_OK)
$(VENV_OK): tests/room.mk
	@test -x $(PY) || /usr/bin/python3 -m venv build/venv
	@$(PY) -m pip install -q --disable-pip-version-check $(PIP_TEST)
	@touch $@

# Real upstream projects, by package name; nothing of theirs is kept in the repository.
UPSTREAM_OK := build/upstream/.ok
upstream: $(UPSTREAM_OK)
$(UPSTREAM_OK): tests/upstream/fetch.py $(wildcard tests/upstream/*.json)
	/usr/bin/python3 tests/upstream/fetch.py --out build/upstream
	@touch $@

test: bins units venv upstream
	@tests/run $(B) $(UNIT_TESTS) $(if $(T),-- $(T))

demo:
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j2 bins upstream
	@/usr/bin/python3 tests/demo.py
