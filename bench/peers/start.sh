#!/bin/sh
# Starts a relay to be measured: start.sh peer program port directory
set -eu
peer=$1 program=$2 port=$3 dir=$4

# Some do not ask for more files than a shell has, which is too few for the idle connections.
ulimit -n "$(ulimit -H -n)"

# Writes the peer's configuration into its directory and says where.
configured() {
    sed -e "s|{port}|$port|g" -e "s|{dir}|$dir|g" "$(dirname "$0")/$peer/$1" >"$dir/$1"
    echo "$dir/$1"
}

# In place of this shell: what is measured is the process that was started.
case $peer in
nostr-rs-relay) RUST_LOG=warn exec "$program" --config "$(configured config.toml)" ;;
nostr-relay) exec "$program" --config "$(configured config.yaml)" serve --use-uvicorn ;;
*) exec "$program" "$port" "$dir" ;;
esac
