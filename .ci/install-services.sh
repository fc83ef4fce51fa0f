#!/bin/sh
# Install the Debian packages that the `real` tests start by themselves on loopback, and the two clients that read
# rendered manifests without a daemon. Safe to run again.
#
# usage: .ci/install-services.sh          needs root and apt; prints the versions that are there afterwards
set -eu

packages="prometheus victoria-metrics prometheus-alertmanager nftables iproute2 libibverbs1 tmux docker-compose"
# A kubectl that is already there stays: Debian's would fight it over the same file.
kubectl kustomize --help >/dev/null 2>&1 || packages="$packages kubernetes-client"

present() {
    dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

missing=""
for package in $packages; do
    present "$package" || missing="$missing $package"
done

if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "install-services: root is needed to install:$missing" >&2
        exit 1
    fi
    # The tests start these programs on ports of their own; a daemon on the well-known port would only be in the way.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM
    elif ! grep -q 'exit 101' "$policy"; then
        echo "install-services: $policy lets daemons start; install by hand:$missing" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # the list is meant to be split
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

# shellcheck disable=SC2086
dpkg-query -W -f '${Package} ${Version}\n' $packages
kubectl version --client 2>/dev/null | grep -i version
