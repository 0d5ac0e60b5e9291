# qkv: what people type. `make demo` and `make test` are all the set-up there is.
BUILD   ?= build
WERROR  ?= OFF
PREFIX  ?= /usr/local
DESTDIR ?=
SUDO    := $(if $(filter 0,$(shell id -u)),,sudo)
FUZZ     = $(notdir $(basename $(wildcard tests/fuzz/*_fuzz.cc)))
PACKAGES = $(shell sed 's/\#.*//' packages.txt)

.PHONY: help setup build install package docs demo test check-all lint asan tsan fuzz bench clean

help:
	@echo "make demo       install packages, build, train a small GPT on Shakespeare, print what it writes"
	@echo "make test       install packages, build, run the tests (under 15 minutes on two cores)"
	@echo "make build      build build/qkv"
	@echo "make install    install the tool and the library (PREFIX=/usr/local DESTDIR=)"
	@echo "make package    a Debian package, and an archive that runs where it is unpacked, in build/"
	@echo "make docs       pages of the library's headers, build/docs/html/index.html"
	@echo "make check-all  the tests again under the sanitizers, 1,000 random models against the specification, lint"
	@echo "make fuzz       libFuzzer on the parsers of untrusted files (clang)"
	@echo "make bench      the benchmarks (docs/benchmarks.md)"

# Tests run two at a time: threads that wait should not burn the other's processor.
test check-all asan tsan: export OMP_WAIT_POLICY = passive

# Debian packages, only when one is missing.
setup:
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 || { $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qy $(PACKAGES); }

# The build system is configured once; the targets below reconfigure it when their options change.
build: setup
	@cmake --preset release -B $(BUILD) -DQKV_WERROR=$(WERROR) >/dev/null
	cmake --build $(BUILD) --target qkv_cli

install: build
	DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

package: build
	@command -v dpkg-shlibdeps >/dev/null || $(SUDO) apt-get install -qy dpkg-dev
	cd $(BUILD) && cpack

docs: setup
	@command -v doxygen >/dev/null || $(SUDO) apt-get install -qy doxygen
	@mkdir -p build/docs
	doxygen docs/Doxyfile
	@! grep -v "of \(class\|struct\) .* is not documented" build/docs/warnings.txt
	@echo "build/docs/html/index.html"

demo: build
	$(BUILD)/qkv train examples/shakespeare.toml --overwrite
	@echo
	$(BUILD)/qkv generate runs/shakespeare --prompt "ROMEO:" --tokens 500 --temperature 0.8 --seed 1

test: setup
	@cmake --preset release -B $(BUILD) -DQKV_WERROR=$(WERROR) >/dev/null
	cmake --build $(BUILD)
	ctest --test-dir $(BUILD) --output-on-failure -j 2

check-all: test lint docs asan tsan
	QKV_SEEDS=1000 $(BUILD)/tests/formal_test --gtest_filter='*AgainstFormal*' --gtest_brief=1

# Formatting, and clang-tidy on the engine.
lint: setup
	@command -v clang-format >/dev/null && command -v clang-tidy >/dev/null || $(SUDO) apt-get install -qy clang-format clang-tidy
	clang-format --dry-run -Werror $$(git ls-files '*.h' '*.cc')
	clang-tidy -p $(BUILD) --quiet --extra-arg=-Wno-unknown-warning-option $$(git ls-files 'qkv/*.cc' | grep -v kernels/cpu)

asan: setup
	cmake --preset asan-ubsan
	cmake --build build/asan-ubsan
	ctest --test-dir build/asan-ubsan --output-on-failure -j 2 -LE isa

# Not formal/ (one thread), nor the command line (driven with one thread), nor the slower instruction sets, nor the
# examples (minutes of plain loops).
tsan: setup
	cmake --preset tsan
	cmake --build build/tsan
	ctest --test-dir build/tsan --output-on-failure -j 1 -LE "formal|isa|cli|examples"

# A minute on each parser of untrusted files.
fuzz: setup
	@dpkg -s clang libclang-rt-14-dev libomp-14-dev >/dev/null 2>&1 || $(SUDO) apt-get install -qy clang libclang-rt-14-dev libomp-14-dev
	cmake --preset fuzz
	cmake --build build/fuzz --target $(FUZZ)
	for target in $(FUZZ); do build/fuzz/tests/$$target -max_total_time=60 -max_len=4096 || exit 1; done

bench: setup
	@cmake --preset release -B $(BUILD) >/dev/null
	cmake --build $(BUILD)
	$(BUILD)/bench/gpt_step

clean:
	rm -rf build
