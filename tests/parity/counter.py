"""Our counter-based random numbers, initial weights and data order, written a second time from their definitions
(shard_runtime/core/rng.h, shard_runtime/data/order.h and the sources they cite). The reference starts from these,
so that it needs nothing that our programs wrote."""

import math

import numpy as np

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


def philox(key, counter_hi, counter_lo):
    """Philox4x32-10 (Salmon et al., 2011): four 32-bit words."""
    c = [counter_lo & M32, counter_lo >> 32, counter_hi & M32, counter_hi >> 32]
    k = [key & M32, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & M32, (p0 >> 32) ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def key(seed, name):
    """FNV-1a of the name, mixed with the seed by one block."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & M64
    w = philox(seed, h, 0)
    return w[1] << 32 | w[0]


def normal(k, n, std):
    """The first n elements of the normal sequence of key k, rounded to fp32 (Box-Muller in double)."""
    out = np.empty((n + 3) // 4 * 4, dtype=np.float64)
    for block in range((n + 3) // 4):
        w = philox(k, 0, block)
        for pair in range(2):
            radius = math.sqrt(-2.0 * math.log((w[2 * pair] + 0.5) * 2.0**-32))
            angle = 2.0 * math.pi * ((w[2 * pair + 1] + 0.5) * 2.0**-32)
            out[4 * block + 2 * pair] = radius * math.cos(angle)
            out[4 * block + 2 * pair + 1] = radius * math.sin(angle)
    return (out[:n] * float(np.float32(std))).astype(np.float32)


def initial_weight(seed, name, shape, ending_std=0.02):
    """Zero for biases, one for norm weights, else normal with standard deviation 0.02; of gpt2's c_proj `ending_std`."""
    if name.endswith(".bias"):
        return np.zeros(shape, dtype=np.float32)
    if name.endswith("norm.weight") or ".ln_" in "." + name:
        return np.ones(shape, dtype=np.float32)
    std = ending_std if name.endswith("c_proj.weight") else 0.02
    return normal(key(seed, "init:" + name), math.prod(shape), std).reshape(shape)


def order_in_epoch(n, seed, epoch, index):
    """The shuffled order: eight Feistel rounds on the next power of four, walked until inside."""
    w = philox(key(seed, "order"), 0, epoch)
    k = w[1] << 32 | w[0]
    half = 1
    while half < 32 and (1 << 2 * half) < n:
        half += 1
    mask = (1 << half) - 1
    value = index
    while True:
        left, right = value >> half, value & mask
        for round_number in range(8):
            left, right = right, left ^ (philox(k, round_number, right)[0] & mask)
        value = left << half | right
        if value < n:
            return value


def order_sample(n, seed, position):
    return order_in_epoch(n, seed, position // n, position % n)


if __name__ == "__main__":
    assert philox(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    print("order of 10, seed 1234:", *(order_sample(10, 1234, p) for p in range(20)))
