# Sourced after harness.sh: commands in a terminal, which script(1) makes. Skip without it.

# in_terminal COLUMNS COMMAND...: with what it types on stdin; the typescript is `drawn`
in_terminal() {
  local columns=$1; shift
  : > drawn
  SHELL=/bin/bash timeout 120 script -qfec "stty rows 24 cols $columns -echo; $*; echo status=\$?; stty -a | grep -o .icanon" drawn > /dev/null
}
# The frames that were drawn, without what moves the cursor.
frames() { sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g; s/\r*$//; s/\r/\n/g; /^Script /d' drawn; }
# wider COLUMNS: the lines of the frames that are
wider() { frames | sed 's/[^ -~\t]/?/g' | awk -v most="$1" 'length > most'; }
