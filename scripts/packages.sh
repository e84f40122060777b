#!/usr/bin/env bash
# The Debian 12 packages, and how they are installed: sourced by the scripts a person runs, or run as it is,
#   scripts/packages.sh      installs what the build and the quickstart's text need (apt; sudo when not root)
# docs/dependencies.md says why each is there.
packages_run="libuv1 libyaml-0-2 libcjson1 libdnnl2 libssl3 libxxhash0 libgomp1"
packages_build="gcc libc6-dev make pkg-config git ca-certificates libuv1-dev libyaml-dev libcjson-dev libdnnl-dev libssl-dev libcurl4-openssl-dev libxxhash-dev"
packages_data="bible-kjv"
packages_test="libcriterion-dev g++ jq strace nftables iproute2 procps clang-14 libclang-rt-14-dev libomp-14-dev util-linux zip unzip patchelf"
packages_pytorch="python3 python3-venv" # scripts/test-pytorch.sh; .ci/run alone installs them
packages_ci="clang-format-14 valgrind slurmctld slurmd slurm-client slurm-wlm-basic-plugins systemd-container zsh fish mandoc man-db etcd-server debootstrap" # for tests that are skipped without; .ci/run and scripts/nightly.sh
packages_lint="clang-tidy-14 clang-format-14 cppcheck cloc" # make lint, make format, scripts/size.sh; no script installs them

# install_packages NAME...: installs what is missing, by apt, with sudo when not root. Says what is missing
# when it cannot.
install_packages() {
  local missing="" name as_root=""
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing="$missing $name"
  done
  [ -n "$missing" ] || return 0
  if ! command -v apt-get > /dev/null; then
    echo "This machine has no apt-get. Needed, by their Debian 12 names:$missing" >&2
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null; then
      echo "Packages are missing and there is no sudo. As root: apt-get install$missing" >&2
      return 1
    fi
    as_root=sudo
  fi
  echo "installing:$missing"
  $as_root apt-get update -qq || echo "apt-get update failed: trying with the lists at hand" >&2
  if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing > /dev/null; then
    echo "apt-get could not install:$missing (is the network reachable?)" >&2
    return 1
  fi
}

if [ "${BASH_SOURCE[0]:-}" = "$0" ]; then
  install_packages $packages_build $packages_data
fi
