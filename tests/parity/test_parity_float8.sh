#!/usr/bin/env bash
# float8 e4m3 compared with PyTorch's float8_e4m3fn: every bfloat16, a million floats, both sides of every middle; every code back.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell/harness.sh
if [ -z "${FSDP_TEST_PYTHON:-}" ]; then
  skip "float8 codes are PyTorch's" "FSDP_TEST_PYTHON names no Python with PyTorch"
  exit 0
fi
cat > "$WORK/codes.py" << 'PY'
import struct
import subprocess
import sys

import torch

torch.manual_seed(1)
halves = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).float()
bits = torch.randint(-(2**31), 2**31, (1 << 20,), dtype=torch.int64).to(torch.int32).view(torch.float32)
near = torch.randn(1 << 18) * torch.logspace(-4, 3, 1 << 18)
codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
middles = (codes[1:] + codes[:-1]) / 2
edges = torch.cat([middles, torch.nextafter(middles, torch.tensor(0.0)), torch.nextafter(middles, torch.tensor(1e3)), codes])
x = torch.cat([halves, bits, near, edges, -edges])
# PyTorch's cast alone has no clamp (what is too large is NaN there): float8 training clamps before it, and so it is here.
want = torch.where(x.isnan(), x, x.clamp(-448.0, 448.0)).to(torch.float8_e4m3fn).view(torch.uint8)
out = subprocess.run([sys.argv[1], "-d"], input=x.numpy().tobytes(), capture_output=True, check=True).stdout
got = torch.frombuffer(bytearray(out[: len(x)]), dtype=torch.uint8)
nan = x.isnan()
wrong = ((got != want) & ~nan) | (nan & ((got & 0x7F) != 0x7F))
for i in wrong.nonzero().flatten()[:10].tolist():
    print("%.9g is %02x, not %02x" % (x[i], got[i], want[i]))
values = torch.tensor(struct.unpack("256f", out[len(x) :]))
theirs = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn).float()
same = (values == theirs) | (values.isnan() & theirs.isnan())
print("%d of %d codes, %d of 256 numbers" % (len(x) - int(wrong.sum()), len(x), int(same.sum())))
sys.exit(bool(wrong.any()) or not bool(same.all()))
PY
check "float8 codes are PyTorch's" "$FSDP_TEST_PYTHON" "$WORK/codes.py" "$TOY/float8_codes"
[ "$n_failed" -eq 0 ]
