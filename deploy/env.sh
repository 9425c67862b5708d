# Read by every shell that starts Ray or talks to the cluster: on the head, on the workers, and on
# the machine you submit from (there: set PLAIT_HOME to the folder that holds the token). The three
# must agree, or Ray refuses its own nodes.

export PLAIT_HOME="${PLAIT_HOME:-$HOME/.plait}"
export PATH="$PLAIT_HOME/venv/bin:$PATH"

# The address by which SSH came in: how the other machines see this one. Without it Ray may take
# 127.0.1.1 where there is no default route. Ray is started with it.
PLAIT_ADDRESS="${PLAIT_ADDRESS:-$(echo "${SSH_CONNECTION:-}" | cut -d ' ' -f 3)}"

# Machines without a way to PyPI: take everything from the folder wheels (docs/deploying.md).
# export PIP_NO_INDEX=1
# export PIP_FIND_LINKS="$PLAIT_HOME/wheels"

# Without a token anyone who reaches a port of Ray can run code here. Say it in words: if the mode
# is not set, it depends on which files happen to be there.
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH="$PLAIT_HOME/token"

# On the machines of the cluster Ray keeps its files where no other user can write. In /tmp/ray
# everyone can, and who puts another address there is sent the token. The path must be short: Ray
# puts sockets into it.
if [ "$PLAIT_HOME" = "$HOME/.plait" ]; then
    export RAY_TMPDIR="$PLAIT_HOME/tmp"
    (umask 077 && mkdir -p "$RAY_TMPDIR")
fi

# Ray opens three ports for Prometheus to the whole network, without a token and without an option
# for the address. A port below 0 cannot be opened, so these stay closed; take the lines out to have
# them, behind a firewall.
export AUTOSCALER_METRIC_PORT=-1
export DASHBOARD_METRIC_PORT=-1
export RAY_enable_metrics_collection=0

# For machines you have, Ray's autoscaler v2 counts the head as one of the workers and starts one
# too few. `ray up` asks for v2 in front of each command; this comes later and wins.
export RAY_enable_autoscaler_v2=0

# A node that is cut off is declared dead after about 4 seconds, not after a minute.
export RAY_health_check_initial_delay_ms=5000
export RAY_health_check_period_ms=500
export RAY_health_check_timeout_ms=1000
export RAY_health_check_failure_threshold=3

# A node of a job of which nothing is heard is lost after as long (4.5 seconds by the lines above), or
# after what is given here:
# export PLAIT_SILENCE=20s

# Processes outlive a restart of the head's control service if it is back within this time.
export RAY_gcs_rpc_server_reconnect_timeout_s=600

# A client that comes by ray:// gets a process of its own on the head, which Ray gives up after 30
# seconds; a head that has much to do takes longer to start one.
export RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S=300

# Ray gives its workers a low priority; the nodes of a job are no work for idle times.
export RAY_worker_niceness=0

# To encrypt what the nodes of a job send each other, name the certificates of each host:
# export PLAIT_TLS_CERT=... PLAIT_TLS_KEY=... PLAIT_TLS_CA=...

export RAY_USAGE_STATS_ENABLED=0
