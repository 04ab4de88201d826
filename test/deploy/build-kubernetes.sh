#!/bin/sh
# Builds what kubernetes-server.test.ts starts: a control plane without machines. Needs Go and six minutes of two cores.
#   sh test/deploy/build-kubernetes.sh [FOLDER]
set -eu
version=1.34.1 # as in test/support/kubernetes-server.ts
out=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/infer-batch-tests/kubernetes-v$version}
mkdir -p "$out"
out=$(cd "$out" && pwd)
making=$(mktemp -d)
trap 'rm -rf "$making"' EXIT
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=mod"

# `go install` refuses modules that replace others, as k8s.io/kubernetes does: a module of our own replaces them.
mkdir "$making/kubernetes" "$making/etcd"
cd "$making/kubernetes"
go mod init made/kubernetes
go mod edit -require=k8s.io/kubernetes@v$version
of=$(go mod download -json k8s.io/kubernetes@v$version | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p')
for module in $(grep -E '^[[:space:]]*k8s\.io/[a-z-]+ (=>|v0\.0\.0( |$))' "$of" | awk '{ print $1 }' | sort -u); do
  go mod edit -replace="$module=$module@v0.${version#1.}"
done
cat > tools.go <<'GO'
//go:build tools

package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
GO
stamp=k8s.io/component-base/version
for program in kube-apiserver kube-controller-manager kubectl; do
  go build -trimpath -o "$out/$program" \
    -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=34" \
    "k8s.io/kubernetes/cmd/$program"
done

cd "$making/etcd"
go mod init made/etcd
go mod edit -require=go.etcd.io/etcd/server/v3@v3.6.5
printf '//go:build tools\n\npackage tools\n\nimport _ "go.etcd.io/etcd/server/v3"\n' > tools.go
go build -trimpath -o "$out/etcd" go.etcd.io/etcd/server/v3
