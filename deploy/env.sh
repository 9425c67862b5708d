# Read by every shell that starts Ray or talks to the cluster: on the head, on the workers, and on
# the machine you submit from (there: set PLAIT_HOME to the folder that holds the token). The three
# must agree, or Ray refuses its own nodes.

export PLAIT_HOME="${PLAIT_HOME:-$HOME/.plait}"
export PATH="$PLAIT_HOME/venv/bin:$PATH"

# Without a token anyone who reaches a port of Ray can run code here. Say it in words: if the mode
# is not set, it depends on which files happen to be there.
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH="$PLAIT_HOME/token"

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

# Ray gives its workers a low priority; the nodes of a job are no work for idle times.
export RAY_worker_niceness=0

# To encrypt what the nodes of a job send each other, name the certificates of each host:
# export PLAIT_TLS_CERT=... PLAIT_TLS_KEY=... PLAIT_TLS_CA=...

export RAY_USAGE_STATS_ENABLED=0
