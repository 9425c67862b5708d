#!/bin/sh
# join.sh HOST [cluster.yaml]: brings a machine into the running cluster, without a restart: a new
# one, or one that was set up anew at the address of another. The head copies to it what it has
# itself, installs plait and starts Ray there.
set -eu
if [ $# -lt 1 ]; then
    echo 'usage: join.sh HOST [cluster.yaml]' >&2
    exit 2
fi
exec ray exec "${2:-cluster.yaml}" ". ~/.plait/env.sh && python -m plait.deploy.join '$1'"
