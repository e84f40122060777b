/*
 * What the store of an arbiter has (agent/arbiter/arbiter_store.h), for simulations: a directory as in
 * agent/arbiter/directory_store.h, or one key as in etcd. Each function takes effect at one moment. How long
 * a call takes, and whether it fails, is its caller's.
 */
#ifndef SIM_ARBITER_STORE_H
#define SIM_ARBITER_STORE_H

#include "agent/arbiter/arbiter_store.h"

enum { TERMS = 1000 };

struct store_kind {
    bool one_key; /* a claim is a record, a write has an effect only on what it saw, and no read is old */
    bool hides_claims;      /* a read brings no claim before its owner has written a record */
    int lags_one_in;        /* reads that bring what was overwritten; 0: none */
    int64_t longest_lag_ns; /* how long before */
};
extern struct store_kind store_kind;

/** The record of an earlier start is there. */
void store_fill(const struct leader_record *record);
/** What a read brings now; term 0: nothing is there. */
struct leader_record store_read(void);
/** ARBITER_DONE or ARBITER_TAKEN; `brought` receives what is there then. */
enum arbiter_answer store_claim(const struct leader_record *claim, struct leader_record *brought);
/**
 * Write after the look, which is the caller's. ARBITER_DONE; of one key also ARBITER_DEPOSED or
 * ARBITER_FAILED, with what is there.
 */
enum arbiter_answer store_write(const struct leader_record *record, struct leader_record *brought);
/** The claim of that term; its term is 0 if there is none. */
const struct leader_record *store_claim_of(uint64_t term);

#endif
