#!/bin/sh
# Starts an image's file tree by its entry point, in namespaces of its own. Called by check.sh, which passes the image's config.
set -eu
fail() {
  echo "$TARGET: $1" >&2
  tail -5 "$LOG" >&2
  exit 1
}
ip link set lo up
mount --bind "$ROOT" "$ROOT"
mkdir -p "$ROOT/proc" "$ROOT/dev" "$ROOT/tmp" "$ROOT/etc/linkspan"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
for folder in tmp var/lib/linkspan home/node; do mount -t tmpfs -o "mode=0700,uid=1000,gid=1000" tmpfs "$ROOT/$folder"; done
mount --bind "$CONFIG" "$ROOT/etc/linkspan"
mount -o remount,ro,bind "$ROOT"

# The words of the image's config have no spaces in them. Its PATH need not have `chroot`.
chroot=$(command -v chroot)
inside() { env -i $VARIABLES "$chroot" --userspec=1000:1000 "$ROOT" "$@"; }

inside node -e 'process.exit(process.getuid() === 1000 ? 0 : 1)' || fail 'does not run as the user 1000'
if inside node -e 'require("fs").writeFileSync("/app/new", "")' 2> /dev/null; then fail 'its root can be written'; fi
case $TARGET in
  full) for program in npx uvx python3 git; do inside "$program" --version > /dev/null || fail "has no $program"; done ;;
  remote) for program in /bin/sh /usr/bin/env /usr/local/bin/npm; do [ ! -e "$ROOT$program" ] || fail "has $program"; done ;;
esac

# Not by the function, whose subshell would get the signals.
env -i $VARIABLES "$chroot" --userspec=1000:1000 "$ROOT" $COMMAND > "$LOG" 2>&1 &
gateway=$!
tries=0
until inside ${HEALTH#CMD } > /dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 30 ] || fail 'does not become healthy'
  kill -0 "$gateway" 2> /dev/null || fail 'has ended'
  sleep 1
done
grep -q 'this first start has made one' "$LOG" || fail 'shows no first key'
inside linkspan status > /dev/null || fail 'its command "linkspan status" does not find the gateway'
inside linkspan validate > /dev/null || fail 'its command "linkspan validate" refuses the config that runs'
kill -TERM "$gateway"
status=0
wait "$gateway" || status=$?
[ "$status" = 0 ] || fail "ends with $status on SIGTERM"
echo "$TARGET: built, healthy as the user 1000 on a read-only root, ended by SIGTERM"
