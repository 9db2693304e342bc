#!/usr/bin/env bash
# Installs system packages, where apt and root allow; else names the command: scripts/system.sh [PACKAGE...]
# Without arguments: all that the tests use.
set -u
packages=("$@")
[ $# -gt 0 ] || packages=(bubblewrap slurmctld slurmd slurm-client munge openssh-server openssh-client chromium g++ cmake podman runc catatonit busybox-static openmpi-bin openssl zsh fish python3 postgresql)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
command="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed: ${missing[*]}; as root: $command" >&2
  exit 0
fi
echo "installing system packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# A package's own service must not start on a machine that only tests with it.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d.trainshed
[ -e /usr/sbin/policy-rc.d ] || { cp /usr/sbin/policy-rc.d.trainshed /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; made=1; }
apt-get update -q >/dev/null && $command >/dev/null
code=$?
[ -z "${made:-}" ] || rm -f /usr/sbin/policy-rc.d
rm -f /usr/sbin/policy-rc.d.trainshed
[ $code -eq 0 ] || echo "could not install them all; by hand: apt-get update && $command" >&2
exit 0
