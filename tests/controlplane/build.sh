#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok from their Go modules, once for
# each version of what this folder says, and prints the folder with the binaries. About 6 minutes on 2 cores when nothing is
# cached; then nothing. SETPOINT_CACHE moves the cache (default: ~/.cache/setpoint).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KWOK=v0.7.0 # compiles only on its own: its modules are older than Kubernetes 1.35's
KUBERNETES=$(sed -nE 's/^\s*k8s\.io\/kubernetes (v[0-9.]+).*/\1/p' "$here/go/kubernetes/go.mod" | head -1)

key=$( (cat "$here"/go/*/go.mod "$here"/go/*/go.sum; echo "$KWOK") | sha256sum | cut -c1-16)
cache="${SETPOINT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/setpoint}/controlplane"
bin="$cache/$key/bin"
if [ "${1:-}" = --where ]; then
	echo "$bin"
	exit 0
fi
if [ -d "$bin" ]; then
	echo "$bin"
	exit 0
fi
command -v go >/dev/null || { echo "the control plane is built with Go 1.25 or newer, and there is no go on PATH" >&2; exit 1; }

mkdir -p "$cache"
# Only one build at a time: the second waits and finds the first one's result.
exec 9>"$cache/.lock"
flock 9
[ ! -d "$bin" ] || { echo "$bin"; exit 0; }
work=$(mktemp -d "$cache/.building-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly

say() { echo "building $*" >&2; }
version=k8s.io/component-base/version
minor=${KUBERNETES#v1.}
stamp="-X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"

say etcd
(cd "$here/go/etcd" && go build -ldflags "-s -w" -o "$work/bin/etcd" go.etcd.io/etcd/server/v3)
say "Kubernetes $KUBERNETES: kube-apiserver, kube-controller-manager, kube-scheduler, kubectl (minutes)"
(cd "$here/go/kubernetes" && go build -ldflags "-s -w $stamp" -o "$work/bin/" \
	k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl})
say "kwok $KWOK"
(cd "$work" && GOFLAGS= GOBIN="$work/bin" go install -ldflags "-s -w" "sigs.k8s.io/kwok/cmd/kwok@$KWOK")

# One rename: an interrupted build leaves nothing that looks finished.
mkdir -p "$cache/$key"
mv "$work/bin" "$bin"
echo "$bin"
