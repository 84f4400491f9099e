#!/usr/bin/env bash
# Builds kubelet and kube-proxy from their Go modules, and the program of a pod's first container, once for
# each version, and prints the folder with the binaries. About 3 minutes on 2 cores after the control plane; then nothing.
# SETPOINT_CACHE moves the cache (default: ~/.cache/setpoint). --where prints the folder and builds nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=$here/go
KUBERNETES=$(sed -nE 's/^\s*k8s\.io\/kubernetes (v[0-9.]+).*/\1/p' "$modules/go.mod" | head -1)

key=$(cat "$modules/go.mod" "$modules/go.sum" "$here/pause/main.go" | sha256sum | cut -c1-16)
cache="${SETPOINT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/setpoint}/node"
bin="$cache/bin-$key"
if [ "${1:-}" = --where ] || [ -d "$bin" ]; then
	echo "$bin"
	exit 0
fi
command -v go >/dev/null || { echo "the kubelet is built with Go 1.25 or newer, and there is no go on PATH" >&2; exit 1; }

mkdir -p "$cache"
# Only one build at a time: the second waits and finds the first one's result.
exec 9>"$cache/.lock"
flock 9
[ ! -d "$bin" ] || { echo "$bin"; exit 0; }
work=$(mktemp -d "$cache/.building-XXXXXX")
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS=-mod=readonly
version=k8s.io/component-base/version
minor=${KUBERNETES#v1.}
stamp="-X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"

echo "building kubelet and kube-proxy $KUBERNETES (minutes)" >&2
(cd "$modules" && go build -ldflags "-s -w $stamp" -o "$work/" k8s.io/kubernetes/cmd/{kubelet,kube-proxy})
(cd "$here/pause" && go build -ldflags "-s -w" -o "$work/pause" main.go)

# One rename: an interrupted build leaves nothing that looks finished.
chmod 755 "$work"
mv "$work" "$bin"
echo "$bin"
