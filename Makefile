# SPDX-License-Identifier: Apache-2.0
# The few commands of this project. Each makes ready what it needs first, and does nothing twice.
#   HKT_CUDA=1 or 0  with or without CUDA (default: with it where both nvcc and a GPU are)
#   HKT_PYTHON       the Python whose torch is used (default: see scripts/setup)
#   SECONDS, TARGETS of make fuzz: how long each target is fuzzed (default: 60), and which (default: all in tests/fuzz/corpus)

HKT_CUDA ?= $(shell command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1 && echo 1)
preset := $(if $(filter 1,$(HKT_CUDA)),cuda,release)
python = $(shell cat build/.python)
sources = $(wildcard $(shell git ls-files -co --exclude-standard '*.cpp' '*.h' '*.cu' '*.cuh'))
lint = .venv/lint/bin

.PHONY: help setup setup-lint setup-fuzz build build-all demo report test wheel package test-matrix bench sanitize fuzz format lint clean

help:
	@echo 'make demo        build the program, train standard attention and HKT side by side on ListOps, and byte language models on the'
	@echo '                 source of Python; compare and examine them: runs/report.html'
	@echo 'make report      write report.html, the page about the experiments of results/'
	@echo 'make build       set up this machine, then build the library, the operators and the program'
	@echo 'make test        build, then run all tests and hold the published ratios against results/limits.json'
	@echo 'make wheel       write the Python package as a wheel for the torch of this machine into dist/'
	@echo 'make package     write the program as a .deb for Debian and Ubuntu, which needs no torch, into dist/'
	@echo 'make test-matrix install the Python package in all ways, beside this torch and the newest, and test it there (half an hour)'
	@echo 'make bench       build, then measure operators and training steps; results go to results/'
	@echo 'make sanitize    run tests under the address and undefined behaviour sanitizers'
	@echo 'make fuzz        fuzz readers and whole commands with libFuzzer, each for SECONDS (default: 60)'
	@echo 'make format      lay out the sources'
	@echo 'make lint        check layout and code'
	@echo 'make clean       remove what was built'

setup:
	@scripts/setup
setup-lint:
	@scripts/setup lint
setup-fuzz:
	@scripts/setup fuzz

# Configured again when the Python or the preset changes; setup and the line below touch these files only then.
build/.python: setup ;
build/.preset: setup
	@test "$$(cat $@ 2>/dev/null)" = $(preset) || echo $(preset) >$@
build/build.ninja: build/.python build/.preset requirements.txt CMakePresets.json
	cmake --preset $(preset) -DHKT_PYTHON=$(python)
	@touch $@

# What users need; tests and measurements are built by those who ask for them.
build: build/build.ninja
	cmake --build --preset $(preset) --target hkt hkt_loader hkt_library
build-all: build/build.ninja
	cmake --build --preset $(preset)

# Stopped and called again, it goes on where it was; remove runs/ to begin anew. The language models read the modules at the top
# of Python's library, which need no download; through a link, so that results do not say where Python is on this machine.
library = "$$($(python) -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')"
demo: build
	build/hkt reproduce listops --budget quick
	for run in standard hkt; do build/hkt theory runs/listops-quick/$$run-seed0 || exit; done
	@ln -sfn $(library) build/stdlib
	build/hkt reproduce lm --budget quick --set 'data.train=build/stdlib/*.py'
	build/hkt report runs/listops-quick runs/lm-quick --out runs/report.html

# The paper's tables first.
paper := $(patsubst %,results/%-full.json,listops scifar imdb)
report: build
	build/hkt report $(paper) $(filter-out $(paper),$(wildcard results/*-full.json)) --out report.html

# Threads wait asleep: on a busy machine spinning ones would make the tests many times slower.
test sanitize: export OMP_WAIT_POLICY = passive

test: build-all
	ctest --preset $(preset)
	HKT_BUILD=build $(python) -m pytest -q -n 2 --dist loadfile tests/python
	scripts/check-limits

# For the torch of requirements.txt, or of HKT_PYTHON; with CUDA as `make build` would have it.
wheel: setup
	HKT_CUDA=$(if $(filter 1,$(HKT_CUDA)),1,0) $(python) -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .

# For CPUs: cmake/package.cmake says what is in it.
package: build
	cd build && cpack -G DEB
	@mkdir -p dist && mv build/hkt_*.deb dist/ && ls dist/hkt_*.deb

# What CI has no time for. The tests compare the package with the program, which make build leaves in build/.
test-matrix: build-all wheel
	scripts/test-install

bench: build-all
	build/hkt_bench --out results/bench-cpu
	scripts/update-tables

sanitize: setup
	cmake --preset asan-ubsan -DHKT_PYTHON=$(python)
	cmake --build --preset asan-ubsan
	ctest --preset asan-ubsan

fuzz: setup-fuzz
	cmake --preset fuzz -DHKT_PYTHON=$(python)
	cmake --build --preset fuzz
	scripts/fuzz $(or $(SECONDS),60) $(TARGETS)

format: setup-lint
	@$(lint)/clang-format -i $(sources)

# clang-tidy reads the compiler commands of a build without precompiled headers, which only GCC understands as it does some
# options, and takes omp.h from GCC, having none of its own.
lint: setup-lint
	@$(lint)/clang-format --dry-run --Werror $(sources)
	cmake --preset release -B build/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DHKT_PYTHON=$(python) >/dev/null
	cmake --build build/lint --target hkt_version >/dev/null
	$(lint)/run-clang-tidy.py -clang-tidy-binary $(lint)/clang-tidy -p build/lint -quiet -warnings-as-errors='*' \
		-extra-arg=-Wno-unused-command-line-argument -extra-arg=-idirafter$(dir $(shell g++ -print-file-name=include/omp.h)) '^$(CURDIR)/(src|tests|bench)/'

clean:
	rm -rf build
