# Bytes by Zipf's law: byte k with a probability proportional to 1 / (k + 1), the same ones at every call. Tokens of real
# text are about so uneven, which is what makes the gradient of an embedding slow: many rows add to the same one.
#   LC_ALL=C awk -v n=1048576 -f zipf.awk > FILE
BEGIN {
  srand(1234)
  for (k = 0; k < 256; k++)
    cumulated[k] = sum += 1 / (k + 1)
  for (i = 0; i < n; i++) {
    x = rand() * sum
    low = 0
    high = 255
    while (low < high) {
      middle = int((low + high) / 2)
      if (cumulated[middle] < x)
        low = middle + 1
      else
        high = middle
    }
    printf "%c", low
  }
}
