#!/usr/bin/env bash
# Prints the size of the tree by room: each folder of launcher, agent, shard_runtime and tests.
#   scripts/size.sh                       this tree
#   scripts/size.sh TREE                  the tree at that path
#   scripts/size.sh BEFORE AFTER          both trees, and the difference in per cent
#   scripts/size.sh --formatted TREE...   after clang-format, in copies
# Columns: files; all lines, lines of code, lines of comments (by cloc); tokens of C and CUDA code.
# Texts and data (Markdown, .txt, YAML, JSON, CSV) are not counted.
set -u
formatted=
[ "${1:-}" != --formatted ] || { formatted=yes; shift; }
case ${1:-} in -*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;; esac
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || set -- "$here"
command -v cloc > /dev/null || { echo "scripts/size.sh needs cloc (Debian package: cloc)" >&2; exit 1; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# tokens FILE...: prints "FILE<tab>TOKENS" for each file. A token is a literal, a name, a number, an operator,
# or any other character that is not blank.
tokens() {
  perl -0777 -e '
    my $literal = qr/"(?:\\.|[^"\\\n])*"|\x27(?:\\.|[^\x27\\\n])*\x27/s;
    my $operator = qr/<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|&&|\|\||##|::|[-+*\/%&|^<>=!]=/;
    for my $file (@ARGV) {
        open(my $in, "<", $file) or die "$file: $!\n";
        my $text = <$in>;
        $text =~ s{($literal)|/\*.*?\*/|//[^\n]*|\\\n}{defined $1 ? $1 : " "}gse;
        my $count = () = $text =~ /$literal|[A-Za-z_]\w*|\.?\d(?:[eEpP][-+]|[\w.])*|$operator|\S/g;
        print "$file\t$count\n";
    }' "$@"
}

# measure TREE: prints "FILE<tab>lines<tab>code<tab>comment<tab>tokens" for each file.
measure() {
  (
    cd "$1" || exit 1
    cloc --quiet --csv --by-file --skip-uniqueness launcher agent shard_runtime tests |
      awk -F, -v OFS='\t' '$1 ~ /^(C|C\/C\+\+ Header|CUDA|Bourne Shell|Bourne Again Shell|Python|awk)$/ {
        sub(/^\.\//, "", $2); print $2, $3 + $4 + $5, $5, $4 }' | sort > "$work/lines"
    mapfile -t files < <(cut -f 1 "$work/lines" | grep -E '\.(c|h|cu|cuh)$')
    tokens "${files[@]}" > "$work/tokens"
    join -t $'\t' -a 1 -e 0 -o 0,1.2,1.3,1.4,2.2 "$work/lines" "$work/tokens"
  )
}

# copy_formatted TREE COPY
copy_formatted() {
  local folder
  mkdir "$2" && cp "$here/.clang-format" "$2" || return 1
  for folder in launcher agent shard_runtime tests; do cp -r "$1/$folder" "$2/$folder" || return 1; done
  find "$2" -name '*.[ch]' -print0 | xargs -0 -P "$(nproc)" -n 50 clang-format-14 -i
}

# table TWO FILE...: the table of one or two measured trees. A room is a folder of the second level, and each
# folder of tests/unit. Deeper folders are part of their room.
table() {
  awk -F '\t' -v two="$1" '
    function room(file,   part, n) {
      n = split(file, part, "/")
      if (part[1] == "tests" && part[2] == "unit") { sub(/\/[^\/]*$/, "", file); return file }
      return n > 2 ? part[1] "/" part[2] : part[1]
    }
    function add(name,   i) {
      if (!(name in seen)) { seen[name] = 1; if (name !~ /^total/) names[++n_names] = name }
      files[name, tree]++
      for (i = 2; i <= 5; i++) sum[name, tree, i] += $i
    }
    function row(name,   i, a, b) {
      printf "%-34s", name
      for (i = 1; i <= 5; i++) {
        a = i == 1 ? files[name, 1] : sum[name, 1, i]
        b = i == 1 ? files[name, 2] : sum[name, 2, i]
        printf " %8d", two ? b : a
        if (two && i != 1 && i != 2) printf " %7s", a ? sprintf("%+.1f%%", 100 * (b - a) / a) : "new"
      }
      printf "\n"
    }
    FNR == 1 { tree++ }
    { add(room($1)); add(($1 ~ /^tests\//) ? "total of tests" : "total of the product") }
    END {
      change = two ? "       %" : ""
      printf "%-34s %8s %8s %8s%s %8s%s %8s%s\n", "room", "files", "lines", "code", change, "comment", change,
        "tokens", change
      for (i = 2; i <= n_names; i++)  # sorts the names: a second tree may have new ones
        for (j = i; j > 1 && names[j] < names[j - 1]; j--) {
          swapped = names[j]; names[j] = names[j - 1]; names[j - 1] = swapped
        }
      for (i = 1; i <= n_names; i++) row(names[i])
      row("total of the product")
      row("total of tests")
    }' "${@:2}"
}

n=0
for tree; do
  n=$((n + 1))
  if [ -n "$formatted" ]; then copy_formatted "$tree" "$work/tree$n" || exit 1; tree=$work/tree$n; fi
  measure "$tree" > "$work/measured$n" || exit 1
done
case $n in
1) table 0 "$work/measured1" ;;
2) table 1 "$work/measured1" "$work/measured2" ;;
*) echo "scripts/size.sh compares two trees at most" >&2; exit 2 ;;
esac
