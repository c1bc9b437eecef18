#!/bin/sh
# usage: two_hosts.sh COMMAND [ARGUMENT…]
#
# Runs a command under mpirun, one rank on each of two hosts. The hosts are network namespaces with names of their own, joined
# by a pair of virtual interfaces; between them there is nothing but TCP. Exit code 77: not permitted here.
set -eu

skip() { echo "$1" >&2; exit 77; }
command -v ip >/dev/null || skip "no ip (iproute2)"
command -v unshare >/dev/null || skip "no unshare (util-linux)"

net=10.213.77
left=shardgrad-left-$$ right=shardgrad-right-$$
place=$(mktemp -d)
ip netns add "$left" 2>/dev/null || { rm -rf "$place"; skip "network namespaces are not permitted here"; }
trap 'ip netns del "$left"; ip netns del "$right" 2>/dev/null || true; rm -rf "$place"' EXIT
ip netns add "$right" 2>/dev/null || skip "network namespaces are not permitted here"
ip -n "$left" link add wire type veth peer name wire netns "$right" 2>/dev/null || skip "virtual interfaces are not permitted here"
unshare --uts true 2>/dev/null || skip "names of hosts are not permitted here"
for side in "$left 1" "$right 2"; do
  space=${side% *} number=${side#* }
  ip -n "$space" addr add "$net.$number/24" dev wire
  ip -n "$space" link set wire up
  ip -n "$space" link set lo up
done

# What mpirun calls instead of ssh: the address, then the command line.
cat >"$place/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec "$right" unshare --uts sh -c "hostname right; \$*"
AGENT
chmod +x "$place/agent"

# Every rank says its host once, so that it is seen that there are two.
cat >"$place/rank" <<'RANK'
#!/bin/sh
hostname >"$PLACE/host$OMPI_COMM_WORLD_RANK"
exec "$@"
RANK
chmod +x "$place/rank"

cat >"$place/start" <<'START'
#!/bin/sh
hostname left
exec timeout 100 mpirun -n 2 --host "$NET.1:1,$NET.2:1" -x PLACE \
  --mca plm_rsh_agent "$PLACE/agent" --mca plm_rsh_no_tree_spawn 1 \
  --mca oob_tcp_if_include "$NET.0/24" --mca btl_tcp_if_include "$NET.0/24" --mca btl self,tcp --mca pml ob1 \
  "$PLACE/rank" "$@"
START
chmod +x "$place/start"

PLACE=$place NET=$net ip netns exec "$left" unshare --uts "$place/start" "$@"
echo "hosts: $(cat "$place/host0") $(cat "$place/host1")" >&2
