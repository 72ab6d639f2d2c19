#!/bin/sh
# Gathers the files of the image without a shell: remote-files.sh <folder>. Runs in the base image as root.
set -eu
root=$1

# Copies a file to the same path below the root, and the file that a link points to.
copy() {
  mkdir -p "$root$(dirname "$1")"
  cp --dereference "$1" "$root$1"
}

node=$(command -v node)
tini=$(command -v tini)
mkdir -p "$root/usr/local/bin" "$root/usr/bin"
cp --dereference "$node" "$root/usr/local/bin/node"
cp --dereference "$tini" "$root/usr/bin/tini"
# `ldd` prints "name => path (address)", and for the loader "path (address)".
for program in "$node" "$tini"; do
  ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p'
done | sort -u | while read -r library; do copy "$library"; done

# Names of hosts are looked up in /etc/hosts and by DNS.
mkdir -p "$root/etc"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then copy /etc/ssl/certs/ca-certificates.crt; fi
echo 'node:x:1000:1000::/home/node:/sbin/nologin' > "$root/etc/passwd"
echo 'node:x:1000:' > "$root/etc/group"

mkdir -p "$root/tmp" "$root/home/node" "$root/var/lib/linkspan" "$root/etc/linkspan"
chmod 1777 "$root/tmp"
chmod 0700 "$root/var/lib/linkspan"
chown 1000:1000 "$root/home/node" "$root/var/lib/linkspan"
