#!/usr/bin/env bash
# Builds a component's own programs from its Go modules, once for each version, and prints the folder with the binaries:
# build.sh kueue. 5 to 20 minutes each on 2 cores, then nothing. Only the test that runs them asks for them.
# SETPOINT_CACHE moves the cache (default: ~/.cache/setpoint).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
component=${1:?a folder beside this script: node-feature-discovery, kueue, rdma-shared-device-plugin or volcano}
modules=$here/$component
[ -f "$modules/go.mod" ] || { echo "there is no $modules/go.mod" >&2; exit 1; }
# The stamps are those of each component's own Makefile.
case $component in
node-feature-discovery)
	module=sigs.k8s.io/node-feature-discovery
	stamps=(pkg/version.version=VERSION pkg/utils/hostpath.pathPrefix=/host-)
	;;
kueue)
	module=sigs.k8s.io/kueue
	stamps=(pkg/version.GitVersion=VERSION)
	;;
rdma-shared-device-plugin)
	module=github.com/Mellanox/k8s-rdma-shared-dev-plugin
	stamps=(main.version=VERSION)
	;;
volcano)
	module=volcano.sh/volcano
	stamps=(pkg/version.Version=VERSION)
	;;
esac
version=$(sed -nE "s|^\s*$module (v[0-9.]+).*|\1|p" "$modules/go.mod")

key=$(find "$modules" "$here/build.sh" -type f -print0 | sort -z | xargs -0 cat | sha256sum | cut -c1-16)
cache="${SETPOINT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/setpoint}/node"
bin="$cache/$component-$version-$key"
if [ -d "$bin" ]; then
	echo "$bin"
	exit 0
fi
command -v go >/dev/null || { echo "$component is built with Go 1.26 or newer, and there is no go on PATH" >&2; exit 1; }

mkdir -p "$cache"
# Only one build at a time: the second waits and finds the first one's result.
exec 9>"$cache/.$component.lock"
flock 9
[ ! -d "$bin" ] || { echo "$bin"; exit 0; }
work=$(mktemp -d "$cache/.building-XXXXXX")
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS=-mod=readonly

flags="-s -w"
for stamp in "${stamps[@]}"; do
	case $stamp in main.*) ;; *) stamp=$module/$stamp ;; esac
	flags+=" -X ${stamp/VERSION/$version}"
done
cd "$modules"
modfile=$modules/go.mod
if [ -d "$modules/apis" ]; then
	# The API's module of this version is a folder of the component's repository, which no proxy serves: the newest that
	# is one, and what the programs need besides. `go list` names no folder of a module that was never downloaded.
	go mod download "${module%/*}/apis"
	cp -r "$(go list -m -f '{{.Dir}}' "${module%/*}/apis")" "$work/apis"
	chmod -R u+w "$work/apis"
	cp -r "$modules/apis/." "$work/apis/"
	cp go.mod go.sum "$work/"
	modfile=$work/go.mod
	go mod edit -replace "${module%/*}/apis=$work/apis" "$modfile"
fi
echo "building $component $version (minutes)" >&2
# One package at a time: a machine in QEMU beside it needs the other core.
if ! nice -n 10 go build -p 1 -modfile="$modfile" -ldflags "$flags" -o "$work/" tool; then
	echo "$component $version was not built; its modules come from $(go env GOPROXY)" >&2
	exit 1
fi
if [ "$component" = volcano ]; then
	# Written for Alpine's sh, which knows [[; Debian's does not, and bash does.
	sed '1s|.*|#!/bin/bash|' "$(go list -m -f '{{.Dir}}' "$module")/installer/dockerfile/webhook-manager/gen-admission-secret.sh" \
		>"$work/gen-admission-secret.sh"
fi
if [ "$component" = rdma-shared-device-plugin ]; then
	cp "$(go list -m -f '{{.Dir}}' "$module")/deployment/k8s/base/daemonset.yaml" "$work/"
fi
rm -rf "$work/apis" "$work"/go.*

# One rename: an interrupted build leaves nothing that looks finished.
chmod 755 "$work"
mv "$work" "$bin"
echo "$bin"
