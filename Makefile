# What can be done in this repository: `make help` lists it.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO    ?= go
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/tools

# --- Tools -------------------------------------------------------------------
# Each group of tools is a Go module of its own under tools/, so that what a tool
# needs never shows up in the product's go.mod. A binary is built once, and again
# when its module changes.

BUF         := $(TOOLS)/buf
PROTOC_GENS := $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc
LINTER      := $(TOOLS)/golangci-lint

$(BUF): tools/buf/go.mod tools/buf/go.sum
	@mkdir -p $(TOOLS)
	$(GO) -C tools/buf build -buildvcs=false -o $@ github.com/bufbuild/buf/cmd/buf
	@touch $@

$(PROTOC_GENS) &: tools/protoc/go.mod tools/protoc/go.sum
	@mkdir -p $(TOOLS)
	$(GO) -C tools/protoc build -buildvcs=false -o $(TOOLS)/ tool
	@touch $(PROTOC_GENS)

.PHONY: tools-proto
tools-proto: $(BUF) $(PROTOC_GENS) ## Build buf and the protobuf plugins into .cache/tools
