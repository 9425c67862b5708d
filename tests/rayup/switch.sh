#!/bin/bash
# switch.sh SITE BASE: the first process of the site, in namespaces of its own: it holds the switch
# and, in memory, the roots of all machines. All of it ends with this process.
set -eu
site=$1 base=$2 ram=$1/ram
mkdir -p "$ram"
mount --make-rprivate /
mount -t tmpfs -o size=14g tmpfs "$ram"
mkdir -p "$ram/base"
tar -C "$ram/base" -xf "$base"
ip link set lo up
ip link add switch type bridge
ip link set switch up
touch "$site/ready"
trap : TERM HUP INT
while :; do sleep 1000 & wait $! || true; done # as a first process it reaps orphans
