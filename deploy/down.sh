#!/bin/sh
# down.sh [cluster.yaml]: ends Ray on all machines. `ray down` alone ends it on the head only; it is
# called at the end because it notes that the cluster is gone.
set -u
file="${1:-cluster.yaml}"
status=0
ray exec "$file" '. ~/.plait/env.sh && python -m plait.deploy.stop' || status=$?
ray down -y "$file" || status=$?
exit $status
