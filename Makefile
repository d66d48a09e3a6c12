# make         build the program, man pages and completions
# make demo    build, then testbed demo (root or sudo)
# make test    the tests, on real packets too, in about 4 minutes on two processors; needs Go
#              and root or sudo. It leaves out long tests and the race detector, and says so
# make check   formatting, vet, staticcheck, then short tests under the race detector, and all tests
#              without it, planted faults and comparisons with other programs included (root or
#              sudo, gcc)
# make nightly  what takes hours: all tests under the race detector too, long series of planted
#              faults and clean runs, comparisons of whole traces, long tests on the stock kernel
# make picture  the picture of the README, from the newest run of the quickstart or RUN=…
#              (needs chromium)
# make install    what make has built, below PREFIX (/usr/local), through sudo if that is not
#              writable; compiles nothing; make uninstall removes it
# make dist    packages for amd64 and arm64 in bin/dist: archives, .deb, .rpm, wheels, images, lists of
#              components (CycloneDX) and checksums; the same bytes from the same commit and Go
# make uml-kernel LINUX=linux-source-7.2.tar.xz  a kernel of user-mode Linux for virtual time
# make truth   compares runs in real time with the same in virtual time, with TRUTH_FLAGS such as
#              "-kernel bin/linux"; half an hour on a quiet machine (docs/fidelity.md)
# make test-vm  the privileged tests on Debian's stock kernel, in qemu (docs/testing.md)
# make test-dist  tests of what make dist has packaged: the same bytes from a clone, on fresh Debian and
#              Ubuntu, on an emulated arm64, in the image; installs debootstrap and others if they are missing; 20 minutes
# make test-engines  the commands of docs/scale-out.md on GNU parallel and Slurm, which it installs
#              from Debian's packages if they are missing; a minute
# make suite-fair, suite-philae, suite-shufflewatcher, suite-dolly, suite-sinbad  compare policies with the figures of
#              their papers, on packets (root or sudo), on the fluid model and on traces (docs/suites.md): testbed suite
#              with SUITE_FLAGS such as "--only table,learning" or --fluid. TRACE is the Facebook trace of coflows for
#              suite-philae, and SWIM-FB-2009 for suite-fair

GO      ?= go
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
# RELEASE for the commit of its tag, otherwise with the commit.
RELEASE := $(shell sed -n 's/^const Release = "\(.*\)"$$/\1/p' emu/cli/version.go)
DESCRIBE = git describe --dirty
VERSION := $(shell [ "$$($(DESCRIBE) --exact-match --match 'v$(RELEASE)' 2>/dev/null)" = 'v$(RELEASE)' ] && echo '$(RELEASE)' || \
	echo "$(RELEASE)+$$($(DESCRIBE) --always --exclude '*' 2>/dev/null || echo unknown)" | tr - .)
# Without symbol tables, which profiles of the program do not need; make STRIP= keeps them for perf and debuggers.
STRIP   ?= -s -w
LDFLAGS := $(STRIP) -X testbed/emu/cli.version=$(VERSION)

# The time of man pages and packages: that of the commit.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y emu/cli/version.go)
# Without C, and without paths of this directory, everywhere: what one command compiles, the others use.
export CGO_ENABLED = 0
export GOFLAGS    += -trimpath

# The GOGC of compilers and linters: with the default of 100 they collect garbage for 10 % or more of their time.
export COMPILERS ?= 400

.PHONY: all build install uninstall man completions dist test-dist demo picture suite-philae suite-sinbad suite-fair suite-shufflewatcher suite-dolly test test-vm uml-kernel test-engines check nightly lint bench truth fuzz clean

# OUT is the directory of everything that is built.
OUT ?= bin

all: build man completions

build: $(OUT)/testbed

$(OUT)/testbed: FORCE
	$(GO) build -ldflags '$(LDFLAGS)' -o $@ .

FORCE:

man:
	@mkdir -p $(OUT)/man && rm -f $(OUT)/man/*
	$(GO) run ./scripts/manpages -version '$(VERSION)' $(OUT)/man

completions: build
	@mkdir -p $(OUT)/completions
	$(OUT)/testbed completion bash >$(OUT)/completions/testbed
	$(OUT)/testbed completion zsh >$(OUT)/completions/_testbed
	$(OUT)/testbed completion fish >$(OUT)/completions/testbed.fish

# Packagers set DESTDIR. INSTALLED lists the installed files, for uninstall.
PREFIX  ?= /usr/local
DESTDIR ?=
SHARE     = $(DESTDIR)$(PREFIX)/share
INSTALLED = $(SHARE)/testbed/installed
AS_NEEDED = d="$(DESTDIR)$(PREFIX)"; while [ ! -e "$$d" ]; do d=$$(dirname "$$d"); done; \
	if [ -w "$$d" ]; then as=; else as=sudo; fi; set -e

# It compiles nothing: root may have another PATH than the user who built, without go.
BUILT = $(OUT)/testbed $(OUT)/man/testbed.1 $(addprefix $(OUT)/completions/,testbed _testbed testbed.fish)
install:
	@for f in $(BUILT); do [ -e "$$f" ] || { echo "make install: $$f is not built: run make first, as yourself" >&2; exit 1; }; done
	@$(AS_NEEDED); list=$$(mktemp); put() { $$as install -D -m "$$1" "$$2" "$(DESTDIR)$(PREFIX)/$$3"; echo "$(PREFIX)/$$3"; }; \
	{ put 755 $(OUT)/testbed bin/testbed; \
	put 644 $(OUT)/completions/testbed share/bash-completion/completions/testbed; \
	put 644 $(OUT)/completions/_testbed share/zsh/site-functions/_testbed; \
	put 644 $(OUT)/completions/testbed.fish share/fish/vendor_completions.d/testbed.fish; \
	for page in $(OUT)/man/*; do put 644 "$$page" "share/man/man1/$$(basename "$$page")"; done; } >"$$list"; \
	$$as install -D -m 644 "$$list" "$(INSTALLED)"; \
	echo "installed $$(wc -l <"$$list") files below $(DESTDIR)$(PREFIX) (list: $(INSTALLED))"; rm -f "$$list"

uninstall:
	@[ -f "$(INSTALLED)" ] || { echo "make uninstall: $(INSTALLED) does not exist: not installed below $(DESTDIR)$(PREFIX)" >&2; exit 1; }
	@$(AS_NEEDED); while read -r file; do $$as rm -f "$(DESTDIR)$$file"; done <"$(INSTALLED)"; \
	$$as rm -rf "$(SHARE)/testbed"; echo "removed testbed from $(DESTDIR)$(PREFIX)"

# The tools are a module of their own.
DIST ?= $(OUT)/dist
dist: all
	$(GO) -C tools/dist run . -version '$(VERSION)' -ldflags '$(LDFLAGS)' -epoch '$(SOURCE_DATE_EPOCH)' \
		-source '$(CURDIR)' -built '$(abspath $(OUT))' -o '$(abspath $(DIST))'

# On fresh systems, on an emulated arm64 and in the image: what packages promise.
test-dist: dist
	@for p in debootstrap curl qemu-aarch64-static skopeo rpm; do command -v $$p >/dev/null || exit 1; done || \
		$(SUDO) apt-get install -y --no-install-recommends debootstrap curl qemu-user-static skopeo rpm
	$(GO) -C tools/dist vet .
	$(SUDO) env DIST='$(abspath $(DIST))' $(GO) -C tools/dist test -count 1 -timeout 30m -v .

demo: build
	$(SUDO) $(OUT)/testbed demo

RUN = $(shell ls -td runs/quickstart-2* 2>/dev/null | head -n 1)
picture: build
	@[ -n "$(RUN)" ] || { echo "make picture: no run of the quickstart: run make demo first" >&2; exit 1; }
	scripts/picture/picture.sh $(RUN) docs/picture.png

# Parts without packets need no root: make suite-philae SUDO= SUITE_FLAGS="--only table", or
# make suite-sinbad SUDO= SUITE_FLAGS=--fluid.
suite-philae: SUITE_TRACE = $(if $(TRACE),--set "trace=$(TRACE)")
suite-fair: SUITE_TRACE = $(if $(TRACE),--set jobs=$(OUT)/swim.yaml)
suite-philae suite-sinbad suite-fair suite-shufflewatcher suite-dolly: suite-%: build
	$(if $(and $(TRACE),$(filter fair,$*)),$(OUT)/testbed workload jobs derive "$(TRACE)" -o $(OUT)/swim.yaml --force)
	$(SUDO) $(OUT)/testbed suite scripts/$*/claims.yaml $(SUITE_TRACE) $(SUITE_FLAGS)

# Packages whose tests move packets. Those that judge durations run alone (scripts/test.sh).
export ON_PACKETS = ./emu/calibration/measure ./emu/cli ./emu/runner ./emu/kernel ./emu/live ./hosts ./hosts/disk ./hosts/pace
export GO

test: build
	@sh scripts/test.sh short

# Needs no root. VMFLAGS are the flags of scripts/testvm, such as -run or -kernel. Exit code 3:
# this machine cannot run a virtual machine. TESTBED_VM_OPTIONAL=1 makes that a success.
test-vm:
	$(GO) build -o bin/testvm ./scripts/testvm
	./bin/testvm $(VMFLAGS)

# LINUX is a linux-source-*.tar.xz of Debian.
uml-kernel:
	sh scripts/uml/build.sh "$(LINUX)" $(OUT)/linux

# Slurm's services need not run: the tests start their own.
ENGINES = parallel munge slurmctld slurmd slurm-client
test-engines: export PATH := $(PATH):/usr/sbin
test-engines:
	@for p in parallel munged slurmctld slurmd sbatch; do command -v $$p >/dev/null || exit 1; done || $(SUDO) apt-get install -y --no-install-recommends $(ENGINES)
	TESTBED_ENGINES=1 TESTBED_TOOLS=required $(GO) test -count 1 -timeout 30m -v ./scripts/engines

check: lint build
	@sh scripts/test.sh all

# Packages with comparisons that take minutes, which the flag -whole adds (docs/testing.md).
WHOLE = ./emu/flowsim ./emu/fluid ./workloads ./results/metrics ./scripts/philae

nightly: lint build
	@sh scripts/test.sh nightly
	for p in $(WHOLE); do $(GO) test -timeout 3h $$p -whole || exit 1; done
	$(SUDO) env TESTBED_PRIVILEGED=1 TESTBED_NIGHTLY=1 $(GO) test -timeout 4h ./emu/runner -run 'Caught|CleanRuns' -whole -v
	$(SUDO) env TESTBED_PRIVILEGED=1 TESTBED_NIGHTLY=1 $(GO) test -timeout 4h ./emu/runner -run EveryDistortion -every -v
	$(MAKE) test-engines
	$(MAKE) fuzz FUZZTIME=60s
	$(MAKE) test-vm VMFLAGS="-long -timeout 2h -package-timeout 1h"

lint:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	GOGC=$(COMPILERS) $(GO) vet ./...
	GOGC=$(COMPILERS) $(GO) tool -modfile=tools/go.mod staticcheck ./...

# Compared with bare netlink, Mininet, tshark and SimGrid, where they are installed; BENCH_FLAGS such as -rounds 9 -big -json.
bench:
	$(SUDO) $(GO) run ./scripts/bench $(BENCH_FLAGS)

truth: build
	$(SUDO) $(GO) run ./scripts/truth -testbed $(OUT)/testbed $(TRUTH_FLAGS)

# Every fuzz target, FUZZTIME each, in one program of its package, with the number of inputs that it executed; fewer than
# FUZZLEAST is a failure. With FUZZBUILD= inputs are not chosen by what they cover, for which all packages that a target
# needs are compiled once more. Minimizing an input takes 10 executions at most: by default it takes up to a minute, in which a target executes few other inputs. Before Go 1.27, fuzzing that ends
# during minimization may print "context deadline exceeded" and fail without a failing input
# (go.dev/issue/75804): that is not counted as a failure.
FUZZTIME  ?= 20s
FUZZLEAST ?= 200
FUZZBUILD ?= -fuzz=.
fuzz:
	@mkdir -p bin; rm -f bin/fuzz-failed.log; cache=$$($(GO) env GOCACHE)/fuzz; \
	failed() { echo "make fuzz: $$1"; cat bin/fuzz.log; } >>bin/fuzz-failed.log; \
	for d in $$($(GO) list -f '{{.Dir}}' ./...); do p=.$${d#$(CURDIR)}; \
		targets=$$(sed -n 's/^func \(Fuzz[^(]*\)(.*/\1/p' $$p/*_test.go 2>/dev/null); [ -n "$$targets" ] || continue; \
		$(GO) test -c -vet=off -ldflags='-s -w' $(FUZZBUILD) -o bin/fuzz.test $$p >bin/fuzz.log 2>&1 || { failed "$$p"; continue; }; \
		for f in $$targets; do \
			(cd $$p && $(CURDIR)/bin/fuzz.test -test.run='^$$' -test.fuzz="^$$f$$" -test.fuzztime=$(FUZZTIME) -test.fuzzminimizetime=10x \
				-test.fuzzcachedir="$$cache/$$p" -test.timeout=10m -test.paniconexit0) >bin/fuzz.log 2>&1; code=$$?; \
			n=$$(sed -n 's/^fuzz: elapsed: .*, execs: \([0-9]*\) .*/\1/p' bin/fuzz.log | tail -n 1); \
			echo "$$p $$f: $${n:-0} executions in $(FUZZTIME)"; \
			if [ $$code != 0 ] && { grep -q 'Failing input written\|panic\|hung or terminated' bin/fuzz.log || ! grep -q '^ *context deadline exceeded$$' bin/fuzz.log; }; then \
				failed "$$p $$f"; \
			elif [ "$${n:-0}" -lt $(FUZZLEAST) ]; then failed "$$p $$f: expected $(FUZZLEAST) executions or more (FUZZLEAST)"; fi; \
		done; done; [ ! -e bin/fuzz-failed.log ] || { cat bin/fuzz-failed.log >&2; exit 1; }

clean:
	rm -rf bin
