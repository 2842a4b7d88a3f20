# What can be done in this repository: `make help` lists it.

SHELL         := /bin/bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory

GO    ?= go
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/tools

# Where `make build` puts the binaries.
BIN ?= bin
# How long `make fuzz` spends on each target.
FUZZTIME ?= 5s
# Which measures `make bench` takes: a regular expression of their names; and what
# else it tells bench, `--json` for instance.
BENCH ?= .
BENCHFLAGS ?=

# The version goes into the binaries at link time. Outside a git checkout nothing
# is set, and package version says so.
VERSION := $(shell git describe --tags --dirty 2>/dev/null || echo dev)
COMMIT  := $(shell git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)
DATE    := $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)

VERSION_PACKAGE := guestd.internal/internal/version
LDFLAGS := -s -w \
	-X $(VERSION_PACKAGE).Version=$(VERSION) \
	-X $(VERSION_PACKAGE).Commit=$(COMMIT) \
	-X $(VERSION_PACKAGE).Date=$(DATE)

.PHONY: help
help: ## List what can be made
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | \
		while IFS=$$'\t' read -r target text; do printf '  make %-12s %s\n' "$$target" "$$text"; done

# --- The product -------------------------------------------------------------

.PHONY: build
build: ## Build the static binaries bin/guestd and bin/guestctl
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/guestd ./cmd/guestctl

.PHONY: run
run: ## Install what is missing, build, and show the main job
	@scripts/setup.sh run
	@$(MAKE) build
	@scripts/demo.sh

.PHONY: setup
setup: ## Install the Debian packages that running and testing need
	@scripts/setup.sh test

.PHONY: clean
clean: ## Remove what was built; .cache, which is slow to fill, stays
	rm -rf $(BIN)

# --- Checks ------------------------------------------------------------------

.PHONY: test
test: ## Run everything that CI runs
	@scripts/test.sh

.PHONY: race
race: ## Run all Go tests under the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 10m ./...

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Check formatting, vet and lint
	$(TOOLS)/golangci-lint run --allow-parallel-runners ./...

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (5s)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Measure guestd against the limits it has to hold (BENCH: which measures)
	@$(MAKE) build >&2
	CGO_ENABLED=0 $(GO) run -tags grpcnotrace ./bench --bin $(BIN) --run '$(BENCH)' $(BENCHFLAGS)

.PHONY: test-vm
test-vm: ## Boot a microVM with guestd in it and test it from outside (VM_ACCEL=kvm: not by emulation)
	@scripts/setup.sh vm
	@scripts/vm-parts.sh
	@$(MAKE) build
	$(GO) test -tags vm -count=1 -v -timeout 15m ./test/vm

# Debian releases whose ipykernel is tested beside the machine's own.
IPYKERNELS ?= trixie sid

.PHONY: test-kernels
test-kernels: ## Test Python contexts on other versions of ipykernel (IPYKERNELS: of which Debian releases)
	@scripts/setup.sh kernels
	@scripts/kernel-roots.sh $(IPYKERNELS)
	@scripts/test-kernels.sh $(IPYKERNELS)

# --- The API -----------------------------------------------------------------

# The last released state of the API, which every change must be compatible with.
IMAGE := proto/guestd/v1/image.binpb

.PHONY: proto
proto: tools-proto ## Generate Go from the API, after checking its compatibility
	PATH=$(TOOLS):$$PATH scripts/proto.sh generate $(IMAGE)

.PHONY: check-proto
check-proto: tools-proto ## Check that the API is clean and compatible, and its Go current
	PATH=$(TOOLS):$$PATH scripts/proto.sh check $(IMAGE)

# --- Tools -------------------------------------------------------------------
# Each group of tools is a Go module of its own under tools/, so that what a tool
# needs never shows up in the product's go.mod. A binary is built once, and again
# when its module changes.

PROTOC_GENS := $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc

.PHONY: tools-proto
tools-proto: $(TOOLS)/buf $(PROTOC_GENS) ## Build buf and the protobuf plugins into .cache/tools

$(TOOLS)/buf: tools/buf/go.mod tools/buf/go.sum
	@mkdir -p $(@D)
	$(GO) -C tools/buf build -buildvcs=false -o $@ github.com/bufbuild/buf/cmd/buf
	@touch $@

$(PROTOC_GENS) &: tools/protoc/go.mod tools/protoc/go.sum
	@mkdir -p $(@D)
	$(GO) -C tools/protoc build -buildvcs=false -o $(@D)/ tool
	@touch $(PROTOC_GENS)

$(TOOLS)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@mkdir -p $(@D)
	$(GO) -C tools/lint build -buildvcs=false -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
