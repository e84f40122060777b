/*
 * What is sent to etcd, and what it answers: the JSON form of its version 3 interface
 * (etcd.io/docs/v3.4/dev-guide/api_grpc_gateway). Keys and values are base64 in it. Numbers of 64 bits are
 * strings.
 *
 * An arbiter needs one key, which it reads and swaps. A swap overwrites the value if no other write came
 * since the value was read.
 *
 * Pure: no sockets, no clock.
 */
#ifndef AGENT_ETCD_MESSAGE_H
#define AGENT_ETCD_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "agent/arbiter/leader_record.h"
#include "shard_runtime/core/json.h"

/* Paths of the requests. */
#define ETCD_RANGE "/v3/kv/range"
#define ETCD_TXN   "/v3/kv/txn"
#define ETCD_GRANT "/v3/lease/grant"

enum { ETCD_NO_LEASE = 5 /* code of an error: the lease that is to keep a key is over (gRPC's NOT_FOUND) */ };

/* What was found at the key. */
struct etcd_value {
    int64_t revision; /* etcd's revision at the last change of the key; 0: the key does not exist */
    size_t n_bytes;   /* 0 also if the value is longer than any record */
    unsigned char bytes[LEADER_RECORD_BYTES];
};

/* Requests. `text` is empty before; `key` is base64. */

void etcd_message_range(struct json_text *text, const char *key);
/**
 * A request that puts bytes[0..LEADER_RECORD_BYTES) at the key, if the key's last change is still `revision`
 * (0: the key does not exist). Otherwise the request returns what the key has now. The key disappears when
 * `lease` is over.
 */
void etcd_message_swap(struct json_text *text, const char *key, int64_t revision, const unsigned char *bytes,
                       int64_t lease);
/** A lease of so many seconds. */
void etcd_message_grant(struct json_text *text, int64_t seconds);

/* Answers. text[0..length) may be anything. */

/**
 * Parse an answer as far as all of them are the same. The caller frees it with cJSON_Delete(). NULL: it is no
 * answer of an etcd.
 *   cluster  receives the number of the etcd, which all its members give
 */
struct cJSON *etcd_message_parse(const char *text, size_t length, uint64_t *cluster);
/** The code of an error (gRPC's), and its words. 0: this is no error of an etcd; `words` is "" then. */
int etcd_message_error(const char *text, size_t length, char *words, size_t n_words);

/* Reads the rest of an answer to a range. FSDP_ERR_FORMAT: the answer has another form. */

enum fsdp_status etcd_message_take_range(const struct cJSON *answer, const char *key, struct etcd_value *out,
                                         struct fsdp_err *err);
/**
 * Reads the answer to a swap. *swapped: whether the value was put. If it was not, `found` receives what the
 * key has.
 */
enum fsdp_status etcd_message_take_swap(const struct cJSON *answer, const char *key, bool *swapped,
                                        struct etcd_value *found, struct fsdp_err *err);
enum fsdp_status etcd_message_take_grant(const struct cJSON *answer, int64_t *lease, struct fsdp_err *err);

#endif
