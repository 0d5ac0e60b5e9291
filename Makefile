# qkv: what people type. `make demo` and `make test` are all the set-up there is.
BUILD        ?= build
WERROR       ?= OFF
PREFIX       ?= /usr/local
DESTDIR      ?=
FUZZ_SECONDS ?= 600
SUDO         := $(if $(filter 0,$(shell id -u)),,sudo)
FUZZ          = $(filter-out shape_fuzz,$(notdir $(basename $(wildcard tests/fuzz/*_fuzz.cc))))
COUNT        ?= 200
PACKAGES      = $(shell sed 's/\#.*//' packages.txt)

.PHONY: help setup build programs install package docs demo test test-all isa seeds check-all format tidy tidy-all lint \
  docs-check docs-full skip-check asan tsan clang aarch64 browser fuzz shape-fuzz coverage thousand benches bench clean

help:
	@echo "make demo       install packages, build, train a small GPT on Shakespeare, print what it writes"
	@echo "make test       install packages, build, run the tests (two cores: 10 minutes to build, 9 to run)"
	@echo "make build      build build/qkv"
	@echo "make install    install the tool and the library (PREFIX=/usr/local DESTDIR=)"
	@echo "make package    a Debian package, and an archive that runs where it is unpacked, in build/"
	@echo "make docs       pages with search, build/docs/site/index.html, and of the library's headers"
	@echo "make bench      the benchmarks (docs/benchmarks.md)"
	@echo "make check-all  every check below in full, for hours; .ci/run takes 25 minutes at most"
	@echo "  format        clang-format on all sources"
	@echo "  test-all      all tests, also those of isa and the longer ones"
	@echo "  isa           tests again on slower instruction sets (after make test)"
	@echo "  seeds         60 random models of each suite against the specification (after make test)"
	@echo "  tidy          clang-tidy on the sources that changed; tidy-all: on all"
	@echo "  docs-check    links, commands and examples of the documents (after make test)"
	@echo "  docs-full     the README's commands, with trainings as long as a reader's"
	@echo "  skip-check    skipped tests against tests/allowed_skips.txt (after make test)"
	@echo "  asan, tsan    all tests under AddressSanitizer and UBSan, or under ThreadSanitizer"
	@echo "  clang         the whole build with clang, warnings as errors, and the unit tests"
	@echo "  aarch64       the kernels for aarch64, their tests under qemu"
	@echo "  fuzz          libFuzzer on the parsers of untrusted files, ten minutes in all (FUZZ_SECONDS=600)"
	@echo "  shape-fuzz    COUNT=200 random models of odd shapes, trained, decoded, damaged, under the sanitizers"
	@echo "  browser       pages of traces and reports in headless Chromium (after make build)"
	@echo "  coverage      lines that the tests run, by folder"
	@echo "  thousand      1,000 random models against the specification (after make test)"

# Tests run two at a time: threads that wait should not burn the other's processor.
test test-all isa seeds check-all asan tsan clang coverage thousand: export OMP_WAIT_POLICY = passive

# $(call need,PACKAGE...): Debian packages, only when one is missing.
need = @dpkg -s $(1) >/dev/null 2>&1 || { $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qy $(1); }

setup:
	$(call need,$(PACKAGES))

# The build system is configured once; the targets below reconfigure it when their options change.
build: setup
	@cmake --preset release -B $(BUILD) -DQKV_WERROR=$(WERROR) >/dev/null
	cmake --build $(BUILD) --target qkv_cli

install: build
	DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

package: build
	$(call need,dpkg-dev)
	cd $(BUILD) && cpack

docs: setup
	$(call need,doxygen python3-markdown)
	@mkdir -p build/docs
	/usr/bin/python3 tools/docs_site.py . build/docs/site
	doxygen docs/Doxyfile
	@! grep -v "of \(class\|struct\) .* is not documented\|std::ranges::enable_\|enable_\(borrowed_range\|view\)<" build/docs/warnings.txt
	@echo "build/docs/site/index.html (pages), build/docs/html/index.html (headers of the library)"

demo: build
	$(BUILD)/qkv train examples/shakespeare.toml --overwrite
	@echo
	$(BUILD)/qkv generate runs/shakespeare --prompt "ROMEO:" --tokens 500 --temperature 0.8 --seed 1

# How tests are run; what they skip is read from the results by skip-check.
CTEST = ctest --output-on-failure --output-junit tests.xml --test-output-size-passed 1000000

# The tool and the tests' programs.
programs: setup
	@cmake --preset release -B $(BUILD) -DQKV_WERROR=$(WERROR) >/dev/null
	cmake --build $(BUILD)

test: programs
	@rm -rf $(BUILD)/results
	$(CTEST) --test-dir $(BUILD) -j 2 -LE isa

test-all: export QKV_CHECK_ALL = 1
test-all: programs
	@rm -rf $(BUILD)/results
	$(CTEST) --test-dir $(BUILD) -j 2

isa: programs
	ctest --output-on-failure --test-dir $(BUILD) -j 2 -L isa

seeds: programs
	QKV_SEEDS=60 ctest --output-on-failure --test-dir $(BUILD) -j 2 -L formal

# Each with its longest time: .ci/check_all.
check-all:
	.ci/check_all

format:
	$(call need,clang-format)
	@git ls-files '*.h' '*.cc' '*.c' | xargs clang-format --dry-run -Werror

# Any finding is an error. No file is begun after one minute; check-all looks at all. clang-tidy reads the commands of a
# build without the precompiled header, which is g++'s own.
tidy tidy-all: setup
	$(call need,clang-tidy)
	@cmake --preset release -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DQKV_UNITY=OFF -DQKV_CCACHE=OFF >/dev/null
	tools/tidy.py build/tidy $(if $(filter tidy-all,$@),--all,--limit-s 60)

lint: format tidy-all

docs-check:
	python3 tools/docs_check.py . $(BUILD)/qkv --run

docs-full:
	python3 tools/docs_check.py . $(BUILD)/qkv --run-in-full README.md

skip-check:
	python3 tools/skip_check.py tests/allowed_skips.txt $(BUILD)/tests.xml $(wildcard $(BUILD)/results/*.xml)

asan: setup
	cmake --preset asan-ubsan
	cmake --build build/asan-ubsan
	@rm -rf build/asan-ubsan/results
	$(CTEST) --test-dir build/asan-ubsan -j 2
	@$(MAKE) skip-check BUILD=build/asan-ubsan

# One at a time: a test's threads need both processors for their turns to vary, and so this takes hours. The examples
# train long, with one thread: the sanitizer's maps of all the code that oneDNN generates then exceed vm.max_map_count.
tsan: setup
	cmake --preset tsan
	cmake --build build/tsan
	@rm -rf build/tsan/results
	$(CTEST) --test-dir build/tsan -j 1 --timeout 7200 -E ^cli_examples$$
	@$(MAKE) skip-check BUILD=build/tsan

clang: setup
	$(call need,clang libclang-rt-14-dev libomp-14-dev)
	cmake --preset clang
	cmake --build build/clang
	@rm -rf build/clang/results
	$(CTEST) --test-dir build/clang -j 2 -L unit

aarch64: setup
	$(call need,g++-aarch64-linux-gnu qemu-user)
	cmake -S tests/aarch64 -B build/aarch64 -G Ninja
	cmake --build build/aarch64
	$(CTEST) --test-dir build/aarch64 -j 2

browser: build
	$(call need,chromium)
	python3 tests/browser/pages_test.py $(BUILD)/qkv

# Ten minutes on the parsers of untrusted files.
fuzz: setup
	$(call need,clang libclang-rt-14-dev libomp-14-dev)
	cmake --preset fuzz
	cmake --build build/fuzz --target $(FUZZ)
	for target in $(FUZZ); do \
	  build/fuzz/tests/$$target -max_total_time=$$(($(FUZZ_SECONDS) / $(words $(FUZZ)))) -max_len=4096 || exit 1; done

# An instrumented library links with nothing that is not: install_test is left out.
coverage: setup
	$(call need,gcovr)
	cmake --preset coverage
	cmake --build build/coverage
	@rm -rf build/coverage/results
	find build/coverage -name '*.gcda' -delete
	GCOV_ERROR_FILE=$(CURDIR)/build/coverage/gcov_errors.txt $(CTEST) --test-dir build/coverage -j 2 -LE isa -E install_test
	gcovr --root . --filter 'qkv/' --filter 'formal/' --json-summary build/coverage/summary.json build/coverage
	tools/coverage.py build/coverage/summary.json

thousand:
	QKV_SEEDS=1000 $(BUILD)/tests/formal_test --gtest_filter='*AgainstFormal*:Variations.*' --gtest_brief=1

# Builds the library and one program alone, with the code of `qkv forward` in it.
shape-fuzz: setup
	@cmake --preset shape-fuzz >/dev/null
	cmake --build build/shape-fuzz --target shape_fuzz
	OMP_WAIT_POLICY=passive build/shape-fuzz/tests/shape_fuzz --count $(COUNT)

benches: setup
	@cmake --preset release -B $(BUILD) >/dev/null
	cmake --build $(BUILD) --target benches

bench: benches
	$(BUILD)/bench/gpt_step

clean:
	rm -rf build
