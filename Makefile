# a2ad. `make help` says what there is; `make run` and `make test` need nothing but Go and make.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go

# The newest released version of the changelog is what the binary says; the commit tells builds between releases apart. Both
# work without git and without a repository.
VERSION ?= $(shell sed -n 's/^\#\# \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md 2>/dev/null | head -n 1 | grep . || echo dev)
COMMIT ?= $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Tools are built once into bin/ under a name that holds their version, so a new version here is built by the next run.
SQLC_VERSION := v1.31.1
GOLANGCI_VERSION := v2.15.0
SQLC := bin/sqlc-$(SQLC_VERSION)
GOVULN_VERSION := v1.8.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
GOVULN := bin/govulncheck-$(GOVULN_VERSION)

PKGS ?= ./...
TESTFLAGS ?=
# RACE=1 runs the tests under the race detector, which needs a C compiler.
RACE ?=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## Build, find or install PostgreSQL, and start a2ad for this machine (ARGS="--listen …")
	@scripts/ensure-postgres.sh run
	@$(MAKE) --no-print-directory build
	@exec ./bin/a2ad dev $(ARGS)

.PHONY: build
build: ## Build bin/a2ad, static and stamped with its version
	CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags '$(LDFLAGS)' -o bin/a2ad ./cmd/a2ad

.PHONY: test
test: ## Run all tests; finds or installs PostgreSQL first (RACE=1, PKGS=./internal/store, TESTFLAGS=-v)
	@scripts/ensure-postgres.sh test
	$(GO) test $(if $(RACE),-race )-timeout 25m $(TESTFLAGS) $(PKGS)

# The first call downloads that version (npm); bin/ keeps it.
.PHONY: test-pg
test-pg: PKGS = ./internal/store/... ./internal/e2e
test-pg: ## Run the store and e2e tests on PostgreSQL 15, 16, 17 or 18 (VERSION=18, RACE=1, TESTFLAGS=-v)
	@bin=$$(scripts/postgres-version.sh $(if $(filter file,$(origin VERSION)),,$(VERSION))) || exit 1; \
	echo "$$($$bin/postgres --version)"; \
	A2AD_PG_BINDIR=$$bin A2AD_TEST_PG_SERVER_ONLY=1 $(GO) test $(if $(RACE),-race )-timeout 40m $(TESTFLAGS) $(PKGS)

.PHONY: bench
bench: ## Measure, and print each figure beside its baseline
	@scripts/ensure-postgres.sh test
	$(GO) run ./internal/bench $(ARGS)

SEEDS ?= 20
SEED ?=
DURATION ?= 4m
JOBS ?= 2
CHAOS_REPORT ?= chaos-report.md

.PHONY: chaos
chaos: ## Soak under faults, and print a report (SEEDS=20, SEED=7 for that one alone, DURATION=4m, JOBS=2 at a time)
	@scripts/ensure-postgres.sh test
	@rm -f $(CHAOS_REPORT); status=0; \
	CHAOS_SEEDS=$(SEEDS) CHAOS_SEED=$(SEED) CHAOS_DURATION=$(DURATION) CHAOS_JOBS=$(JOBS) CHAOS_REPORT=$(abspath $(CHAOS_REPORT)) \
	$(GO) test ./internal/e2e -run '^TestChaos$$' -count=1 -timeout 24h -parallel 100 $(TESTFLAGS) >$(CHAOS_REPORT).log 2>&1 || status=$$?; \
	cat $(CHAOS_REPORT) 2>/dev/null || tail -n 100 $(CHAOS_REPORT).log; exit $$status

.PHONY: patroni
patroni: ## Pause the leader of three Patroni nodes, and cut it off (Debian, as root; some minutes)
	@GO='$(GO)' scripts/patroni.sh

.PHONY: promcheck
promcheck: ## Have Prometheus evaluate the alerts and the dashboard below deploy
	cd internal/promcheck && $(GO) test ./...

.PHONY: deploycheck
deploycheck: ## Have the libraries of compose, kustomize and Kubernetes read what is below deploy
	cd internal/deploycheck && $(GO) test ./...

.PHONY: interop
interop: build ## Drive a2ad with the official clients: Go, JavaScript (needs node and npm), Python (where there is one)
	@scripts/ensure-postgres.sh test
	cd internal/interop && $(GO) test -race -timeout 10m ./...
	cd examples/front-js && npm ci --ignore-scripts --no-audit --no-fund
	cd internal/interop/js && npm ci --ignore-scripts --no-audit --no-fund && A2AD_BIN='$(CURDIR)/bin/a2ad' npm test
	A2AD_TEST_NPM=1 $(GO) test ./internal/doctest -count=1 -run TestDocuments/examples/typescript
	@if python3 -c 'import ensurepip, venv' 2>/dev/null; then $(MAKE) --no-print-directory interop-python; \
	else echo "there is no python3 with venv here: the Python client is left out" >&2; fi
	@$(MAKE) --no-print-directory interop-frameworks

# Apart, so that it can be run by itself. The newest and the oldest client of each version; the environments are kept.
.PHONY: interop-python
interop-python: build
	@for run in requirements:test_a2ad requirements-oldest:test_a2ad requirements-v1:test_v1 requirements-v1-oldest:test_v1; do \
		python=$$(scripts/python-env.sh internal/interop/python/$${run%:*}.txt) || exit 1; \
		echo "--- $${run#*:}.py with $${run%:*}.txt"; \
		A2AD_BIN='$(CURDIR)/bin/a2ad' $$python -B internal/interop/python/$${run#*:}.py -v || exit 1; \
	done

.PHONY: interop-frameworks
interop-frameworks: build ## Drive a2ad with the A2A clients of frameworks, each pinned (FRAMEWORKS="google_adk js" for some)
	@scripts/ensure-postgres.sh test
	scripts/interop-frameworks.sh $(FRAMEWORKS)

.PHONY: up
up: ## Start docker-compose.yml: PostgreSQL, two replicas and a proxy (docs/how-to/deploy.md)
	A2AD_VERSION=$(VERSION) A2AD_COMMIT=$(COMMIT) docker compose up --build --detach --wait

.PHONY: down
down: ## Stop the containers of `make up`; the database is kept
	docker compose down

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w cmd internal migrations

.PHONY: generate
generate: $(SQLC) ## Generate internal/store/dbsqlc from queries/ and migrations/
	$(SQLC) generate

.PHONY: sqlc-diff
sqlc-diff: $(SQLC) ## Fail when the generated code is not what sqlc makes now
	$(SQLC) diff

.PHONY: lint
lint: $(GOLANGCI) ## Check format, style and the arrows between packages
	$(GOLANGCI) run ./...
	for module in . oldest/go03 oldest/go10; do (cd internal/interop/$$module && '$(CURDIR)/$(GOLANGCI)' run ./...) || exit 1; done
	cd internal/promcheck && '$(CURDIR)/$(GOLANGCI)' run ./...
	cd internal/deploycheck && '$(CURDIR)/$(GOLANGCI)' run ./...
	scripts/check-sleeps.sh

.PHONY: vet
vet: ## Check format, go vet, and that go.mod is tidy
	@out=$$(gofmt -l cmd internal migrations 2>/dev/null); [ -z "$$out" ] || { echo "not formatted:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) mod verify
	$(GO) mod tidy -diff

# Apart from verify: it asks the database of the Go project, which not every build machine reaches.
.PHONY: vuln
vuln: $(GOVULN) ## Look for known weaknesses in what the code uses; needs the network
	$(GOVULN) ./...

.PHONY: verify
verify: vet lint sqlc-diff ## All checks that are not tests

.PHONY: tools
tools: $(SQLC) $(GOLANGCI) ## Build the tools into bin/

.PHONY: clean
clean: ## Remove what was built; the database of `make run` (.a2ad) is kept
	rm -rf bin

# A tool is built by its own module's versions, apart from go.mod. CGO off: no C compiler is needed.
$(SQLC):
	@mkdir -p bin
	CGO_ENABLED=0 GOBIN=$(CURDIR)/bin $(GO) install github.com/sqlc-dev/sqlc/cmd/sqlc@$(SQLC_VERSION)
	@mv bin/sqlc $@

$(GOVULN):
	@mkdir -p bin
	CGO_ENABLED=0 GOBIN=$(CURDIR)/bin $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULN_VERSION)
	@mv bin/govulncheck $@

$(GOLANGCI):
	@mkdir -p bin
	CGO_ENABLED=0 GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv bin/golangci-lint $@
