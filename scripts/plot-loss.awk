# Draws the loss of a metrics.jsonl in the terminal: awk -v width=60 -v height=12 -v ascii=0 -f plot-loss.awk FILE
# A step that was logged twice (after a restart) counts once, as it was last. A line with a lower term and an earlier
# time than the one before was written by a node that stood still, and does not count.
function field(name,   at) {
  at = match($0, "\"" name "\": *-?[0-9.e+-]+")
  if (!at) return ""
  at = substr($0, RSTART, RLENGTH)
  sub(/^[^:]*: */, "", at)
  return at + 0
}
{
  step = field("step"); loss = field("loss")
  if (step == "" || loss == "" || (field("term") + 0 < term && field("time") + 0 < time)) next
  term = field("term") + 0; time = field("time") + 0
  if (!(step in of)) steps[++n] = step
  of[step] = loss
  if (step > last) last = step
  if (first == "" || step < first) first = step
}
END {
  if (n == 0) { print "no losses to plot"; exit 1 }
  if (!width) width = 60
  if (!height) height = 12
  # The mean of the steps that fall into a column.
  for (i = 1; i <= n; i++) {
    column = last == first ? 0 : int((steps[i] - first) * (width - 1) / (last - first) + 0.5)
    sum[column] += of[steps[i]]; count[column]++
  }
  for (c = 0; c < width; c++) if (c in count) {
    mean = sum[c] / count[c]
    if (low == "" || mean < low) low = mean
    if (high == "" || mean > high) high = mean
  }
  if (high == low) high = low + 1
  for (c = 0; c < width; c++) if (c in count)
    row[c] = int((sum[c] / count[c] - low) / (high - low) * (height - 1) + 0.5)
  dot = ascii ? "*" : "●"; bar = ascii ? "|" : "│"; floor_ = ascii ? "+" : "└"; dash = ascii ? "-" : "─"
  for (r = height - 1; r >= 0; r--) {
    line = ""
    for (c = 0; c < width; c++) line = line ((c in count) && row[c] == r ? dot : " ")
    sub(/ +$/, "", line)
    printf "%8.3f %s%s\n", low + (high - low) * r / (height - 1), bar, line
  }
  line = ""
  for (c = 0; c < width; c++) line = line dash
  printf "%8s %s%s\n", "loss", floor_, line
  printf "%9s %-*d%*d\n", "step", int(width / 2), first, width - int(width / 2), last
}
