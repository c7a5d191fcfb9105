# The verbs of this repository. `make test` needs only Go and make.

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := bin/golangci-lint-$(GOLANGCI_VERSION)

# The builder of Collectors, of the release of all its components.
COLLECTOR_VERSION := v0.161.0
BUILDER           := bin/builder-$(COLLECTOR_VERSION)

# Modules below the root: what they need stays out of the published module. What
# the builder makes under dist/ is none of ours.
NESTED := $(filter-out dist/%,$(patsubst %/,%,$(dir $(wildcard */go.mod */*/go.mod))))

FUZZTIME ?= 10s
TREES    ?= 1000000
SOAK     ?= 60s

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/budgetctl.
	go build -trimpath -o bin/budgetctl ./cmd/budgetctl

.PHONY: collector
collector: bin/otelcol-latencybudget ## Build bin/otelcol-latencybudget, a Collector with the processor (minutes).

.PHONY: first-tier
first-tier: bin/otelcol-first-tier ## Build bin/otelcol-first-tier, which spreads traces over Collectors (minutes).

# What each is made of. A change of anything else makes no other Collector.
bin/otelcol-latencybudget: processor/builder-config.yaml go.mod \
	$(shell find analyzer internal processor propagation/attr -name '*.go' ! -name '*_test.go')
bin/otelcol-first-tier: processor/builder-config-first-tier.yaml

bin/otelcol-%: | $(BUILDER)
	mkdir -p dist/otelcol-$*
	$(BUILDER) --config $(filter %.yaml,$^)
	cp -f dist/otelcol-$*/otelcol-$* $@

$(BUILDER):
	GOBIN=$(CURDIR)/bin go install go.opentelemetry.io/collector/cmd/builder@$(COLLECTOR_VERSION)
	mv bin/builder $@

.PHONY: e2e
e2e: collector first-tier ## Run the order chain through Collectors and Prometheus, and check what they make of it (minutes).
	LATENCYBUDGET_COLLECTOR=$(CURDIR)/bin/otelcol-latencybudget LATENCYBUDGET_FIRST_TIER=$(CURDIR)/bin/otelcol-first-tier \
		go test ./internal/e2e ./examples/demo -count=1 -timeout 20m -p 1
	LATENCYBUDGET_COLLECTOR=$(CURDIR)/bin/otelcol-latencybudget go -C dashboards/gen test -count=1 .

.PHONY: demo
demo: collector build ## Run the order chain, the Collector and Prometheus through two avalanches and compare them (a minute).
	go build -trimpath -o bin/ ./examples/orders ./examples/demo
	bin/demo

.PHONY: test
test: ## Run all tests.
	go test ./...
	@set -e; for dir in $(NESTED); do echo "go -C $$dir test ./..."; go -C $$dir test ./...; done

.PHONY: lint
lint: $(GOLANGCI) ## Check style, mistakes and the directions of imports.
	$(GOLANGCI) run ./...
	@set -e; for dir in $(NESTED); do \
		echo "$(GOLANGCI) run ./$$dir/..."; \
		(cd $$dir && $(CURDIR)/$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...); \
	done

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

.PHONY: generate
generate: ## Write everything that is generated and committed.
	go generate ./...
	go -C dashboards/gen generate ./...

.PHONY: check
check: lint race current ## All that must hold before a merge: lint, tests with -race, generated files current.

.PHONY: race
race:
	go test -race -short -timeout 20m ./...

.PHONY: current
current: generate
	git --no-pager diff --exit-code
	@new=$$(git ls-files --others --exclude-standard testdata processor); \
		if [ -n "$$new" ]; then echo "generated but not committed:"; echo "$$new"; exit 1; fi
	@set -e; for dir in . $(NESTED); do go -C $$dir mod tidy -diff; done

.PHONY: bench
bench: ## Measure against the same pipeline on pdata (minutes).
	go -C bench test -run '^$$' -bench . -benchtime 1x -timeout 60m -v

.PHONY: trees
trees: ## Check the laws of budgets on 1,000,000 random call trees (minutes).
	LATENCYBUDGET_TREES=$(TREES) go test ./analyzer/budget -run TestRandomTrees -timeout 60m -v

.PHONY: soak
soak: ## Run the Collector processor at full speed for SOAK (60s).
	LATENCYBUDGET_SOAK=$(SOAK) go test ./processor/latencybudgetprocessor -run TestSoak -timeout 30m -v

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (10s).
	@grep -rl --include='*_test.go' '^func Fuzz' analyzer cmd internal processor propagation | sort | while read -r file; do \
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file" | while read -r target; do \
			go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || exit 1; \
		done || exit 1; \
	done
