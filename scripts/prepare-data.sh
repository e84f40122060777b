#!/usr/bin/env bash
# Writes data/bible.txt: the King James Bible as plain text (4 MB) from Debian's package bible-kjv.
# Does nothing when it is there and whole. As root or with sudo the package is installed when it is missing.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh
out=data/bible.txt

# The first words, the last, and about as many bytes as there must be: a half-written file is made again.
whole() {
  [ -f "$1" ] && [ "$(wc -c < "$1")" -gt 4000000 ] && head -n 5 "$1" | grep -q 'In the beginning God created' &&
    tail -n 5 "$1" | grep -q 'Amen'
}

if whole "$out"; then
  echo "$out is there ($(wc -c < "$out") bytes)"
  exit 0
fi
command -v bible > /dev/null || install_packages $packages_data || exit 1
mkdir -p data
part=$(mktemp data/.bible.XXXXXX)
trap 'rm -f "$part"' EXIT
# Told that its output is no terminal, bible breaks lines at 80 columns and never asks for a pager.
bible gen1:1-rev22:21 < /dev/null > "$part"
if ! whole "$part"; then
  echo "bible (package bible-kjv) did not print the text it should: $(wc -c < "$part") bytes" >&2
  exit 1
fi
chmod 644 "$part"
mv "$part" "$out"
echo "wrote $out ($(wc -c < "$out") bytes)"
