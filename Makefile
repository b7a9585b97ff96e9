# a2ad. `make help` lists the targets; `make run` and `make test` need only Go and make.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go

# The binary reports the newest released version in the changelog; the commit distinguishes builds between releases.
# Both work without git and without a repository.
VERSION ?= $(shell sed -n 's/^\#\# \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md 2>/dev/null | head -n 1 | grep . || echo dev)
COMMIT ?= $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Tools are built once into bin/ under a name with their version, so that the next run builds a version changed here.
SQLC_VERSION := v1.31.1
GOLANGCI_VERSION := v2.15.0
SQLC := bin/sqlc-$(SQLC_VERSION)
GOVULN_VERSION := v1.8.0
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := bin/gotestsum-$(GOTESTSUM_VERSION)
VALE_VERSION := v3.21.0
VALE := bin/vale-$(VALE_VERSION)
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
GOVULN := bin/govulncheck-$(GOVULN_VERSION)

PKGS ?= ./...
TESTFLAGS ?=
# RACE=1 runs the tests under the race detector, which needs a C compiler.
RACE ?=

# cgo is off for everything else, so that all targets share what one of them has compiled. For the same reason, `make
# build` does not use -trimpath; the Dockerfile adds it.
export CGO_ENABLED = $(if $(RACE),1,0)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{ \
		n = split($$2, words, " "); line = sprintf("  %-18s", $$1); \
		for (i = 1; i <= n; i++) { \
			if (length(line " " words[i]) > 79) { print line; line = sprintf("%20s", "") } \
			line = line " " words[i] \
		} \
		print line }' $(MAKEFILE_LIST)

.PHONY: have-go
have-go:
	@case "$$(GOTOOLCHAIN=local $(GO) version 2>/dev/null)" in \
	"") echo "go not found: install Go 1.21 or newer, https://go.dev/dl" >&2; exit 1 ;; \
	*" go1."[0-9][.\ ]*|*" go1.1"[0-9]*|*" go1.20"*) \
		echo "$$(GOTOOLCHAIN=local $(GO) version) is too old: install Go 1.21 or newer, https://go.dev/dl" >&2; exit 1 ;; \
	esac

.PHONY: run
run: have-go ## Build a2ad, find or install PostgreSQL, and start a local server (ARGS="--listen …")
	@scripts/ensure-postgres.sh run
	@$(MAKE) --no-print-directory build
	@exec ./bin/a2ad dev $(ARGS)

.PHONY: build
build: have-go ## Build bin/a2ad, static and stamped with its version
	CGO_ENABLED=0 $(GO) build -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/a2ad ./cmd/a2ad

# How tests run. A test that fails runs once more, alone; if it passes then, it is reported as FLAKY, and the run is
# green. Most tests wait more than they compute, so more of them run at once than there are cores. -timeout only ends
# what hangs. internal/testreport prints the slowest tests, and flaky ones last. -vet=off, because `make
# vet` runs more analyzers.
REPORT = $@
GOTEST = mkdir -p bin; \
	$(GOTESTSUM) --format pkgname --format-icons text --format-hide-empty-pkg --hide-summary skipped \
		--rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
		--jsonfile bin/$(REPORT).json --packages '$(PKGS)' -- \
		-vet=off $(if $(RACE),-race) $(SHORT) -parallel 8 -timeout 2h $(TESTFLAGS); status=$$?; \
	$(GO) run ./internal/testreport bin/$(REPORT).json >bin/$(REPORT).txt || status=1; \
	cat bin/$(REPORT).txt; exit $$status

.PHONY: test
test: SHORT = -short
test: have-go $(GOTESTSUM) ## Run the tests; finds or installs PostgreSQL (RACE=1, PKGS=./internal/store, TESTFLAGS=-v)
	@scripts/ensure-postgres.sh test
	@$(GOTEST)

# The rest. Each target runs alone, too: a table in CONTRIBUTING.md says which one a change needs.
SLOW := test-crash test-docs test-upgrade test-race test-pg-all test-plans interop sdk-python sdk-go sdk-typescript sdk-conformance console-browser promcheck deploycheck chaos

.PHONY: test-slow
test-slow: ## Run everything that `make test` leaves out; takes hours (SLOW="test-crash interop" for some)
	@for target in $(SLOW); do echo "--- $$target"; $(MAKE) --no-print-directory $$target || failed="$$failed $$target"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

.PHONY: test-crash
test-crash: PKGS = $(shell $(GO) list ./... | grep -v /doctest)
test-crash: have-go $(GOTESTSUM) ## Run all tests of faults: processes, connections, disks and databases that fail
	@scripts/ensure-postgres.sh test
	@$(GOTEST)

.PHONY: test-docs
test-docs: PKGS = ./internal/doctest
test-docs: have-go $(GOTESTSUM) ## Run the commands of all documents
	@scripts/ensure-postgres.sh test
	@$(GOTEST)

.PHONY: test-upgrade
test-upgrade: PKGS = ./internal/e2e
test-upgrade: TESTFLAGS = -run '^TestUpgradeUnderLoad$$'
test-upgrade: have-go $(GOTESTSUM) ## Upgrade from the previous release under load
	@scripts/ensure-postgres.sh test
	@$(GOTEST)

.PHONY: test-race
test-race: RACE = 1
test-race: have-go $(GOTESTSUM) ## Run all tests under the race detector, which needs a C compiler
	@scripts/ensure-postgres.sh test
	@$(GOTEST)

# The first call downloads that version (npm); bin/ keeps it.
.PHONY: test-pg
test-pg: PKGS = ./internal/store/... ./internal/e2e
test-pg: have-go $(GOTESTSUM) ## Run the store and e2e tests on PostgreSQL 15, 16, 17 or 18 (VERSION=18, TESTFLAGS=-v)
	@bin=$$(scripts/postgres-version.sh $(if $(filter file,$(origin VERSION)),,$(VERSION))) || exit 1; \
	echo "$$($$bin/postgres --version)"; \
	export A2AD_PG_BINDIR=$$bin A2AD_TEST_PG_SERVER_ONLY=1; $(GOTEST)

.PHONY: test-pg-all
test-pg-all: ## Run test-pg on each supported version
	@for version in 15 16 17 18; do $(MAKE) --no-print-directory test-pg VERSION=$$version || exit 1; done

# On two busy cores, PostgreSQL 18 took 29 minutes with 10 chunks a task, and 46 with 1,000.
PLAN_TASKS ?= 300 3000 30000 300000 3000000
PLAN_VERSIONS ?= 15 17 18

.PHONY: test-plans
test-plans: have-go $(GOTESTSUM) ## Check that no statement costs more beside millions of tasks (PLAN_TASKS="300 30000")
	@for version in $(PLAN_VERSIONS); do for chunks in 10 1000; do echo "PostgreSQL $$version, $$chunks chunks a task"; \
	bin=$$(scripts/postgres-version.sh $$version) && A2AD_PG_BINDIR=$$bin A2AD_TEST_PG_SERVER_ONLY=1 \
		A2AD_TEST_PLANS='$(PLAN_TASKS)' A2AD_TEST_PLANS_CHUNKS=$$chunks \
		$(GO) test ./internal/store -run '^TestStatementsReadNoOtherTasks$$' -count=1 -timeout 6h -v || exit 1; \
	done; done

.PHONY: affected
affected: ## Run what the changes since BASE call for, by the table in CONTRIBUTING.md (BASE=origin/main, DRY=1)
	@MAKE='$(MAKE)' DRY='$(DRY)' scripts/affected.sh '$(or $(BASE),origin/main)'

.PHONY: bench
bench: ## Run the benchmarks and print each figure with its baseline
	@scripts/ensure-postgres.sh test
	$(GO) run ./internal/bench $(ARGS)

TASKS ?= 1000000
DATA ?=

.PHONY: capacity
capacity: ## Fill a database with ended tasks and measure beside them (TASKS=10000000, DATA=/var/tmp/x keeps it)
	@scripts/ensure-postgres.sh test
	$(GO) run ./internal/bench -run '^capacity$$' -tasks $(TASKS) $(if $(DATA),-data '$(DATA)') -limit 12h $(ARGS)

SEEDS ?= 20
SEED ?=
DURATION ?= 4m
JOBS ?= 2
CHAOS_REPORT ?= chaos-report.md

.PHONY: chaos
chaos: ## Run a soak test with faults and print a report (SEEDS=20, SEED=7 for one seed, DURATION=4m, JOBS=2 in parallel)
	@scripts/ensure-postgres.sh test
	@rm -f $(CHAOS_REPORT); status=0; \
	CHAOS_SEEDS=$(SEEDS) CHAOS_SEED=$(SEED) CHAOS_DURATION=$(DURATION) CHAOS_JOBS=$(JOBS) \
	CHAOS_REPORT=$(abspath $(CHAOS_REPORT)) \
	$(GO) test ./internal/e2e -run '^TestChaos$$' -count=1 -timeout 24h -parallel 100 $(TESTFLAGS) >$(CHAOS_REPORT).log 2>&1 || status=$$?; \
	cat $(CHAOS_REPORT) 2>/dev/null || tail -n 100 $(CHAOS_REPORT).log; exit $$status

.PHONY: patroni
patroni: ## Test failover with three Patroni nodes (Debian, as root; some minutes)
	@GO='$(GO)' scripts/patroni.sh

.PHONY: promcheck
promcheck: ## Test the alerts and the dashboard in deploy with Prometheus
	cd internal/promcheck && $(GO) test ./...

.PHONY: deploycheck
deploycheck: ## Validate deploy with the libraries of compose, kustomize and Kubernetes
	cd internal/deploycheck && $(GO) test ./...

# axe-core finds faults of accessibility. It is needed by this test alone.
AXE := $(CURDIR)/bin/axe-4.11.0/node_modules/axe-core/axe.min.js
$(AXE):
	npm install --prefix bin/axe-4.11.0 --ignore-scripts --no-audit --no-fund axe-core@4.11.0

.PHONY: console-browser
console-browser: build $(AXE) ## Test the console in Chromium (needs chromium, node, npm and psql)
	rm -rf bin/console-failures && mkdir -p bin/console-failures
	cd internal/console/browsertest && A2AD_BIN='$(CURDIR)/bin/a2ad' AXE='$(AXE)' \
		FAILURES='$(CURDIR)/bin/console-failures' $(GO) test -count=1 -timeout 15m ./...

.PHONY: screenshots
screenshots: build ## Write pictures of all pages of the console into bin/screenshots
	mkdir -p bin/screenshots
	cd internal/console/browsertest && A2AD_BIN='$(CURDIR)/bin/a2ad' SCREENSHOTS='$(CURDIR)/bin/screenshots' \
		$(GO) test -count=1 -run TestScreenshots ./...

.PHONY: docs-images
docs-images: build ## Make the pictures of the documents from the demo
	mkdir -p docs/images
	cd internal/console/browsertest && A2AD_BIN='$(CURDIR)/bin/a2ad' DOCS_IMAGES='$(CURDIR)/docs/images' \
		$(GO) test -count=1 -run TestPictures ./...

.PHONY: interop
interop: RACE = 1
interop: build ## Test a2ad with the official clients: Go, JavaScript (needs node and npm), Python (if installed)
	@scripts/ensure-postgres.sh test
	cd internal/interop && $(GO) test -race -timeout 10m ./...
	cd examples/front-js && npm ci --ignore-scripts --no-audit --no-fund
	cd internal/interop/js && npm ci --ignore-scripts --no-audit --no-fund && A2AD_BIN='$(CURDIR)/bin/a2ad' npm test
	cd internal/interop/peerbench/jsserver && npm ci --ignore-scripts --no-audit --no-fund && npm test
	A2AD_TEST_NPM=1 $(GO) test ./internal/doctest -count=1 -run TestDocuments/examples/typescript
	@if python3 -c 'import ensurepip, venv' 2>/dev/null; then $(MAKE) --no-print-directory interop-python; \
	else echo "there is no python3 with venv here: the Python client is left out" >&2; fi
	@$(MAKE) --no-print-directory interop-frameworks

# A separate target for the newest and the oldest Python client of each version, and the database stores of Python's
# servers; the environments are kept.
.PHONY: interop-python
interop-python: build
	@for run in requirements:test_a2ad requirements-oldest:test_a2ad requirements-v1:test_v1 requirements-v1-oldest:test_v1 \
		requirements-stores:test_import requirements-stores-v03:test_import_v03; do \
		python=$$(scripts/python-env.sh internal/interop/python/$${run%:*}.txt) || exit 1; \
		echo "--- $${run#*:}.py with $${run%:*}.txt"; \
		A2AD_BIN='$(CURDIR)/bin/a2ad' $$python -B internal/interop/python/$${run#*:}.py -v || exit 1; \
	done

.PHONY: interop-frameworks
interop-frameworks: build ## Test a2ad with the A2A clients of frameworks, each pinned (FRAMEWORKS="google_adk js" for some)
	@scripts/ensure-postgres.sh test
	scripts/interop-frameworks.sh $(FRAMEWORKS)

.PHONY: sdk-python
sdk-python: build ## Check, test and build the Python library (needs python3 with venv)
	@scripts/ensure-postgres.sh test
	A2AD_BIN='$(CURDIR)/bin/a2ad' scripts/sdk-python.sh

.PHONY: sdk-go
sdk-go: build ## Test the Go library under the race detector, and its module (needs a C compiler)
	@scripts/ensure-postgres.sh test
	A2AD_BIN='$(CURDIR)/bin/a2ad' scripts/sdk-go.sh $(ARGS)

.PHONY: sdk-typescript
sdk-typescript: build ## Check, test and pack the TypeScript library (needs node and npm)
	@scripts/ensure-postgres.sh test
	A2AD_BIN='$(CURDIR)/bin/a2ad' scripts/sdk-typescript.sh

.PHONY: sdk-conformance
sdk-conformance: have-go ## Test that the libraries behave as sdk/conformance says (needs python3 with venv, node, npm; ARGS="-run …")
	@scripts/ensure-postgres.sh test
	scripts/sdk-conformance.sh $(ARGS)

.PHONY: up
up: ## Start docker-compose.yml: PostgreSQL, two replicas and a proxy (docs/how-to/deploy.md)
	A2AD_VERSION=$(VERSION) A2AD_COMMIT=$(COMMIT) docker compose up --build --detach --wait

.PHONY: down
down: ## Stop the containers of `make up`; keep the database
	docker compose down

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w cmd internal migrations sdk/conformance sdk/go

.PHONY: generate
generate: $(SQLC) ## Generate the dbsqlc package of each room from queries/ and migrations/
	$(SQLC) generate

.PHONY: sqlc-diff
sqlc-diff: $(SQLC) ## Fail if the generated code is out of date
	$(SQLC) diff

.PHONY: lint
lint: $(GOLANGCI) ## Check format, style and imports between packages
	$(GOLANGCI) run ./...
	for module in . oldest/go03 oldest/go10; do (cd internal/interop/$$module && '$(CURDIR)/$(GOLANGCI)' run ./...) || exit 1; done
	cd sdk/go && '$(CURDIR)/$(GOLANGCI)' run ./...
	cd internal/promcheck && '$(CURDIR)/$(GOLANGCI)' run ./...
	cd internal/deploycheck && '$(CURDIR)/$(GOLANGCI)' run ./...
	scripts/check-sleeps.sh

.PHONY: prose
prose: $(VALE) ## Check words and sentences of the documents and the help texts against .vale
	@$(VALE) $(shell git ls-files '*.md' 'cmd/a2ad/testdata/help*.golden')

.PHONY: vet
vet: ## Check format, go vet, and that go.mod is tidy
	@out=$$(gofmt -l cmd internal migrations sdk/conformance sdk/go 2>/dev/null); [ -z "$$out" ] || { echo "not formatted:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags patroni ./internal/e2e
	cd sdk/go && $(GO) vet ./... && $(GO) mod tidy -diff
	$(GO) mod verify
	$(GO) mod tidy -diff

# Not part of verify: it needs the Go project's vulnerability database, which not every build machine can reach.
.PHONY: vuln
vuln: $(GOVULN) ## Report known vulnerabilities in dependencies; needs the network
	$(GOVULN) ./...

.PHONY: verify
verify: vet lint prose sqlc-diff ## Run all checks that are not tests

.PHONY: tools
tools: $(SQLC) $(GOLANGCI) $(VALE) $(GOTESTSUM) ## Build the tools into bin/

.PHONY: clean
clean: ## Remove build output; keep the database of `make run` (.a2ad)
	rm -rf bin

# A tool uses the versions of its own module, not of go.mod.
$(SQLC):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin $(GO) install github.com/sqlc-dev/sqlc/cmd/sqlc@$(SQLC_VERSION)
	@mv bin/sqlc $@

# Vale parses code with C libraries.
$(VALE):
	@mkdir -p bin
	CGO_ENABLED=1 GOBIN=$(CURDIR)/bin $(GO) install github.com/vale-cli/vale/v3/cmd/vale@$(VALE_VERSION)
	@mv bin/vale $@

$(GOTESTSUM):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@mv bin/gotestsum $@

$(GOVULN):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULN_VERSION)
	@mv bin/govulncheck $@

$(GOLANGCI):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv bin/golangci-lint $@
