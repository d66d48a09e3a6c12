# make demo   build, then run the quickstart (as root, or through sudo)
# make test   every test, the privileged ones included (as root, or through sudo)
# make suite-philae  the coflow schedulers of Philae's paper side by side: on the trace
#              TRACE (generated without it) by arithmetic, then on packets (as root, or
#              through sudo); SUITE_FLAGS such as "-only table,learning" (docs/philae.md)
# make suite-sinbad  block placement by Sinbad beside its baselines, on packets (as root,
#              or through sudo) and on the fluid model; SUITE_FLAGS such as
#              "-only rack,large" or "-fluid" (docs/sinbad.md)
# make check  what CI runs: formatting, vet, staticcheck, then make test
# make test-vm  the privileged tests on Debian's stock kernel, in qemu (docs/testing.md)

GO      ?= go
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X testbed/emu/cli.version=$(VERSION)

# Programs that tests compare with, by the names of their Debian packages.
COMPARED := tshark tcptrace tcpdump iperf3 chromium

.PHONY: build demo suite-philae suite-sinbad test test-vm check lint bench bench-build fuzz clean

build: bin/testbed

bin/testbed: FORCE
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ .

FORCE:

demo: build
	$(SUDO) ./bin/testbed run scripts/quickstart/scenario.yaml

# Without the part on packets, as by SUITE_FLAGS="-only table", it needs no root:
# make suite-philae SUDO= SUITE_FLAGS="-only table".
suite-philae: build
	$(SUDO) $(GO) run ./scripts/philae $(if $(TRACE),-trace "$(TRACE)") $(SUITE_FLAGS)

# Without packets, as by SUITE_FLAGS=-fluid, it needs no root: make suite-sinbad SUDO=
suite-sinbad: build
	$(SUDO) $(GO) run ./scripts/sinbad $(SUITE_FLAGS)

# Tests that move packets share the machine's two or more processors with them, so
# their packages are tested one at a time; the others side by side, and first, since
# what they compile is compiled on all processors. The race detector's default keeps
# each program a second after its main function.
ON_PACKETS = ./emu/calibrate ./emu/cli ./emu/experiment ./emu/kernel ./emu/live ./hosts ./hosts/disk ./hosts/pace
export GORACE ?= atexit_sleep_ms=10
test: build
	@if [ "$$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null && ! [ -t 0 ]; then \
		echo "make test: the privileged tests need root: run it as root, or where sudo works" >&2; exit 1; fi
	@command -v gcc >/dev/null || { echo "make test: the race detector needs gcc: apt-get install gcc" >&2; exit 1; }
	@command -v tc >/dev/null || [ -x /usr/sbin/tc ] || { echo "make test: a plan is tried as a script of ip and tc: apt-get install iproute2" >&2; exit 1; }
	@missing=; for p in $(COMPARED); do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
		[ -z "$$missing" ] || echo "make test: not installed, so comparisons with it are skipped:$$missing (apt-get install --no-install-recommends $(COMPARED))"
	@failed=0; \
	rest=$$($(GO) list ./... | grep -vxF "$$($(GO) list $(ON_PACKETS))") || exit 1; \
	set -x; export TESTBED_PRIVILEGED=1; \
	$(SUDO) $(GO) test -race -shuffle=on -timeout 20m $$rest || failed=1; \
	$(SUDO) $(GO) test -p 1 -race -shuffle=on -timeout 20m $(ON_PACKETS) || failed=1; \
	exit $$failed

# Needs no root. VMFLAGS are the flags of scripts/testvm, such as -run or -kernel.
# Error 3 is that no virtual machine can be run here, which TESTBED_VM_OPTIONAL=1
# makes a success.
test-vm:
	$(GO) build -o bin/testvm ./scripts/testvm
	./bin/testvm $(VMFLAGS)

check: lint test

lint:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...

bench:
	$(SUDO) $(GO) test -p 1 -run '^$$' -bench . -benchtime 2s ./...

# Building and tearing down, beside bare netlink and, where it is installed,
# Mininet; BENCH_FLAGS such as -rounds 9 -big -json.
bench-build:
	$(SUDO) $(GO) run ./scripts/bench $(BENCH_FLAGS)

# Every fuzz target, FUZZTIME each. Before Go 1.27, fuzzing that comes to its end while
# an input is being made smaller may say "context deadline exceeded" and fail, without an
# input that failed (go.dev/issue/75804): that is no failure.
FUZZTIME ?= 20s
fuzz:
	@mkdir -p bin; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz'); do \
			if $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p >bin/fuzz.log 2>&1; then cat bin/fuzz.log; continue; fi; \
			cat bin/fuzz.log; \
			if grep -q 'Failing input written\|panic\|hung or terminated' bin/fuzz.log || ! grep -q '^ *context deadline exceeded$$' bin/fuzz.log; then exit 1; fi; \
			echo "$$f: no input failed"; \
		done; done

clean:
	rm -rf bin
