# How many words of a text occur in another one: awk -f count-words.awk TRAINED-ON SAMPLE prints "61 of 68".
# A word is a run of letters; capitals count as small letters. The last word of the sample may be cut short and is left out.
FILENAME == ARGV[1] {
  n = split(tolower($0), words, /[^a-z]+/)
  for (i = 1; i <= n; i++) known[words[i]] = 1
  next
}
{
  n = split(tolower($0), words, /[^a-z]+/)
  for (i = 1; i <= n; i++)
    if (words[i] != "") { total++; last = words[i] in known; found += last }
}
END {
  if (total > 0) { total--; found -= last }
  printf "%d of %d\n", found, total
}
