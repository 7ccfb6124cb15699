# Everything that builds, checks and tests mlx-dspark. Each step runs only when its inputs changed. What a step leaves has
# the time when it started, so that a source changed meanwhile is seen by the next run.
# Needed: GNU make, Node.js with npm, Python 3 with pip, cargo, CMake, a C++20 compiler.
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.SUFFIXES:

BUN := node_modules/.bin/bun
TOOL = command -v $(1) >/dev/null 2>&1 || { echo "missing tool: $(1): $(2)" >&2; exit 1; }

# node_modules is for development; what npm records there says which lock file it was made from.
NPM := node_modules/.package-lock.json
DEPS := build/stamps/deps
NATIVE := build/stamps/native
EXECUTABLE := dist/mlx-dspark
MACOS_DEPS := build/stamps/deps-macos
MACOS_NATIVE := build/stamps/native-macos
MACOS_EXECUTABLE := dist/macos-arm64/mlx-dspark

SHIM_SOURCES := $(wildcard shim/* shim/*/*)
SETUP_SOURCES := $(filter-out tools/setup/clients.ts,$(wildcard tools/setup/*.ts))
NATIVE_TOOLS := tools/build/native.ts tools/build/platform.ts
PROGRAM_SOURCES := $(shell find src metal -type f 2>/dev/null)
EXECUTABLE_TOOLS := tools/build/executable.ts tools/build/licenses.ts tools/build/platform.ts

.PHONY: all build demo test test-clients test-all clients check bench soak bindings test-native dist-macos clean

all: build
build: $(EXECUTABLE)

$(NPM): package-lock.json
	@$(call TOOL,node,install Node.js 20 or newer (Debian: apt-get install nodejs npm))
	@$(call TOOL,npm,install npm (Debian: apt-get install npm))
	npm ci --no-audit --no-fund
	@# An npm that runs no install scripts leaves Bun's stub in place.
	@$(BUN) --version >/dev/null 2>&1 || node node_modules/bun/install.js
	@touch $@

$(DEPS): package.json $(SETUP_SOURCES) $(NPM)
	@mkdir -p $(@D) && touch $@.started
	$(BUN) tools/setup/natives.ts
	@mv $@.started $@

$(NATIVE): $(SHIM_SOURCES) $(NATIVE_TOOLS) $(DEPS)
	@mkdir -p $(@D) && touch $@.started
	$(BUN) tools/build/native.ts
	@mv $@.started $@

$(EXECUTABLE): $(PROGRAM_SOURCES) $(EXECUTABLE_TOOLS) package.json LICENSE $(NATIVE)
	$(BUN) tools/build/executable.ts

# An answer of the embedded pair, read again token by token; then the pair against plain steps, paired in one process.
demo: $(EXECUTABLE)
	$(EXECUTABLE) generate --verify-lossless --max-new-tokens 120 --prompt "Explain how rainbows form, in a few sentences."
	$(EXECUTABLE) benchmark --modes auto,lookup --max-new-tokens 64

# The bindings belong to the sources: they are written only on request, and `check` compares them.
bindings: $(DEPS)
	$(BUN) tools/bindings/generate.ts

check: $(DEPS)
	$(BUN) tools/build/test.ts check

test-native: $(NATIVE)
	$(BUN) tools/build/test.ts native sanitized aarch64

test: $(EXECUTABLE)
	$(BUN) tools/build/test.ts check unit native e2e

# Installs what is missing; what cannot be installed here is noted, and its tests are skipped with that reason.
clients: $(NPM)
	$(BUN) tools/setup/clients.ts

# The real client programs against the executable.
test-clients: $(EXECUTABLE) clients
	$(BUN) tools/build/test.ts clients

test-all: $(EXECUTABLE) clients
	$(BUN) tools/build/test.ts check unit native e2e clients

bench: $(NATIVE)
	$(BUN) bench/run.ts

# A thousand requests, a fifth of them cut by the client: handles and memory must stay flat.
soak: $(EXECUTABLE)
	$(BUN) test/soak/requests.ts

$(MACOS_DEPS): $(DEPS)
	@mkdir -p $(@D) && touch $@.started
	$(BUN) tools/setup/natives.ts --macos
	@mv $@.started $@

$(MACOS_NATIVE): $(SHIM_SOURCES) $(NATIVE_TOOLS) $(MACOS_DEPS)
	@mkdir -p $(@D) && touch $@.started
	$(BUN) tools/build/native.ts --macos
	@mv $@.started $@

$(MACOS_EXECUTABLE): $(PROGRAM_SOURCES) $(EXECUTABLE_TOOLS) package.json LICENSE $(MACOS_NATIVE)
	$(BUN) tools/build/executable.ts --macos

dist-macos: $(MACOS_EXECUTABLE)
	$(BUN) tools/build/test.ts macos

clean:
	rm -rf dist build/stamps build/native build/native-macos build/shim build/shim-macos build/kernel-tests-* build/executable build/packed \
	  build/test
