"""PyTorch's own client of TCPStore against the launcher's store, held against PyTorch's own server.

Each flow makes the same calls on both and must get the same answers, or fail in the same way. The flows are those of
PyTorch's test_store.py, and sequences of calls drawn at random. One line a flow on stdout: "passed: NAME".
"""
import functools
import os
import random
import sys
import threading
from datetime import timedelta

import torch.distributed as dist

HOST, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
SHORT, LONG = timedelta(seconds=0.2), timedelta(seconds=60)
MIB = 1 << 20


def attempt(call, *arguments):
    """What the call gives, or the kind of its failure."""
    try:
        return call(*arguments)
    except Exception as error:  # every kind is an answer here
        return type(error).__name__


def set_get_check(store):
    for delta in (1, 2, 3):
        store.add("key", delta)
    for name, value in (("key0", "value0"), ("key1", "value1"), ("key2", "")):
        store.set(name, value)
    yield [store.get(name) for name in ("key", "key0", "key1", "key2")]
    yield store.num_keys(), sorted(store.list_keys())
    yield store.check(["key", "key0"]), store.check(["key", "absent"]), store.check([])
    store.set("-key", "7")
    yield store.get("-key"), store.delete_key("-key"), store.delete_key("-key"), store.num_keys()


def compare_set(store):
    yield store.compare_set("k", "wrong", "new")
    yield store.check(["k"])
    yield store.compare_set("k", "", "one"), store.compare_set("k", "", "two"), store.compare_set("k", "one", "three")
    yield store.get("k")
    store.set("empty", "")
    yield store.compare_set("empty", "", "filled"), store.get("empty")


def waits(store):
    yield attempt(store.wait, ["absent"], SHORT)
    store.add("there", 1)
    yield store.wait(["there"], LONG)
    store.set_timeout(SHORT)
    yield attempt(store.get, "late")
    store.set_timeout(LONG)
    store.set("late", "x")
    yield store.get("late")  # the wait that was given up broke nothing
    other = store.clone()
    thread = threading.Thread(target=lambda: other.set("from elsewhere", "y"))
    thread.start()
    yield store.get("from elsewhere")
    thread.join()


def several_at_once(store):
    yield store.has_extended_api()
    store.multi_set(["foo", "bar", "none"], ["po", "tato", ""])
    yield store.multi_get(["bar", "none", "foo", "bar"])
    many = [f"many{i}" for i in range(2000)]
    store.multi_set(many, [f"value{i}" * 10 for i in range(2000)])
    yield store.multi_get(many), store.check(many), store.num_keys()
    yield store.wait(many, LONG)


def queues(store):
    yield store.check(["q"]), store.queue_len("q"), attempt(store.queue_pop, "q", False)
    store.queue_push("q", "1")
    store.queue_push("q", "")
    yield store.check(["q"]), store.queue_len("q"), store.num_keys(), store.wait(["q"], LONG)
    yield store.queue_pop("q"), store.queue_pop("q"), store.check(["q"]), store.queue_len("q")
    store.set_timeout(SHORT)
    yield attempt(store.queue_pop, "absent")
    store.set_timeout(LONG)
    got = []

    def other_side():
        mine = store.clone()
        mine.queue_push("there", "t1")
        got.append(mine.queue_pop("back"))

    thread = threading.Thread(target=other_side)
    thread.start()
    yield store.queue_pop("there")
    store.queue_push("back", "b1")
    thread.join()
    yield got


def barriers(store):
    store.barrier("alone", 1)
    yield store.get("alone")
    yield attempt(store.barrier, "never", 2, SHORT)
    passed = []

    def come():
        store.clone().barrier("four", 4, LONG)
        passed.append(1)

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield len(passed), store.get("four")
    store.barrier("four", 4, SHORT)  # whoever is late does not wait
    yield store.get("four")


def prefixes(store):
    outer = dist.PrefixStore("outer", store)
    inner = dist.PrefixStore("inner", outer)
    inner.set("k", "v")
    outer.add("n", 3)
    yield inner.get("k"), outer.get("inner/k"), store.get("outer/inner/k"), store.get("outer/n")
    yield sorted(store.list_keys()), outer.delete_key("n"), attempt(inner.wait, ["absent"], SHORT)
    inner.multi_set(["a", "b"], ["1", "2"])
    inner.queue_push("q", "e")
    yield inner.multi_get(["b", "a"]), store.queue_len("outer/inner/q"), inner.queue_pop("q")


def large_values(store):
    binary = bytes(range(256)) * 4096
    for name, value in (("1 MiB", binary), ("8 MiB", binary * 8)):
        store.set(name, value)
        yield store.get(name) == value
    yield [len(value) for value in store.multi_get(["8 MiB", "1 MiB"])]
    yield store.compare_set("1 MiB", binary, b"small")
    broken = store.clone()
    yield attempt(lambda: (broken.set("more", b"x" * (8 * MIB + 1)), broken.get("1 MiB")))
    yield store.check(["more"])
    long_key = store.clone()
    yield attempt(lambda: (long_key.set("k" * 8192, "x"), long_key.get("1 MiB")))  # with its slash 8193 bytes
    store.set("k" * 8191, "x")
    yield store.get("k" * 8191)
    text = store.clone()
    text.set("word", "none")
    yield attempt(text.add, "word", 1)
    yield store.get("word")


def worlds(store):
    """Clients that say how many they are count themselves in."""
    address = store.host, store.port
    clients = [dist.TCPStore(*address, world_size=5, timeout=LONG) for _ in range(5)]
    for index, client in enumerate(clients):
        client.set(f"k{index}", str(index))
    yield [clients[0].get(f"k{index}") for index in range(5)], clients[4].num_keys()
    yield sorted(clients[1].list_keys())


def random_calls(store, seed):
    draw = random.Random(seed)
    names = ["a", "b", "c", "d"]

    def name():
        return draw.choice(names)

    def value():
        return draw.choice(["", "1", "22", "-3", "x" * draw.randrange(3000)])

    calls = [
        lambda: store.set(name(), value()),
        lambda: store.get(name()) if store.check([names[0]]) and store.check(names) else None,
        lambda: store.append(name(), value()),
        lambda: store.compare_set(name(), value(), value()),
        lambda: store.check([name(), name()]),
        lambda: store.delete_key(name()),
        lambda: store.num_keys(),
        lambda: sorted(store.list_keys()),
        lambda: store.multi_set([name(), name()], [value(), value()]),
        lambda: store.queue_push(name(), value()),
        lambda: attempt(store.queue_pop, name(), False),
        lambda: store.queue_len(name()),
        lambda: store.add("counter" + name(), draw.randrange(-5, 50)),
    ]
    for _ in range(500):
        yield draw.choice(calls)()


def wipe(store):
    """Nothing of the flow before; only `worlds`, the last one, leaves a key that no client can name."""
    for name in store.list_keys():
        store.delete_key(name.removeprefix("/"))
    for name in "abcd":
        while store.queue_len(name) > 0:
            store.queue_pop(name)
    store.set_timeout(LONG)


def agent_store_is_forgiven():
    """A script that makes rank 0 the server of MASTER_PORT becomes a client of the one there."""
    second = dist.TCPStore(HOST, PORT, 1, is_master=True, timeout=LONG)
    second.set("by a server that is none", "x")
    told = os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")
    refused = attempt(dist.TCPStore, HOST, PORT, 1, True)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = told
    return told == "True" and second.port == PORT and refused == "DistNetworkError"


def flows():
    yield from (set_get_check, compare_set, waits, several_at_once, queues, barriers, prefixes, large_values)
    for seed in range(8):
        flow = functools.partial(random_calls, seed=seed)
        flow.__name__ = f"random_calls {seed}"
        yield flow
    yield worlds


def main():
    n_failed = 0
    ours = dist.TCPStore(HOST, PORT, is_master=False, timeout=LONG)
    for flow in flows():
        theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=LONG, wait_for_workers=False)
        wipe(ours)
        want, got = list(flow(theirs)), list(flow(ours))
        if want == got and len(want) > 0:
            print(f"passed: {flow.__name__}")
            continue
        n_failed += 1
        for step, (a, b) in enumerate(zip(want, got)):
            if a != b:
                print(f"{flow.__name__}, answer {step}: PyTorch's server {a!r:.200}, ours {b!r:.200}", file=sys.stderr)
    if agent_store_is_forgiven():
        print("passed: agent_store_is_forgiven")
    else:
        n_failed += 1
    return n_failed


sys.exit(main())
