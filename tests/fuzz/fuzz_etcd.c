/*
 * What an etcd may answer, and what a person may name as one, under libFuzzer. The bytes are taken as an
 * answer to each request. What is taken keeps the promises of agent/arbiter/etcd_message.h.
 */
#include <cjson/cJSON.h>

#include "agent/arbiter/base64.h"
#include "agent/arbiter/etcd_endpoints.h"
#include "agent/arbiter/etcd_message.h"
#include "tests/fuzz/fuzz.h"

#define KEY "ZnNkcHJ1bi9SL2xlYWRlcg=="

static void check_value(const struct etcd_value *value)
{
    char text[BASE64_TEXT_BYTES(LEADER_RECORD_BYTES)];
    unsigned char again[LEADER_RECORD_BYTES];
    size_t n;

    never(value->revision < 0 || value->n_bytes > sizeof value->bytes);
    never(value->revision == 0 && value->n_bytes > 0);
    base64_encode(text, value->bytes, value->n_bytes);
    never(!base64_decode(again, sizeof again, &n, text));
    never(n != value->n_bytes || memcmp(again, value->bytes, n) != 0);
}

static void check_answer(const cJSON *answer)
{
    struct etcd_value value;
    struct fsdp_err err = { 0 };
    bool swapped;
    int64_t lease;

    if (taken(etcd_message_take_range(answer, KEY, &value, &err), &err))
        check_value(&value);
    fsdp_err_clear(&err);
    if (taken(etcd_message_take_swap(answer, KEY, &swapped, &value, &err), &err))
        check_value(&value);
    fsdp_err_clear(&err);
    if (taken(etcd_message_take_grant(answer, &lease, &err), &err))
        never(lease <= 0);
}

static void check_name(const char *text)
{
    struct etcd_endpoints endpoints;
    struct fsdp_err err = { 0 };

    if (!taken(etcd_endpoints_parse(&endpoints, text, &err), &err))
        return;
    never(endpoints.n < 1 || endpoints.n > ETCD_MAX_ENDPOINTS);
    for (int i = 0; i < endpoints.n; i++)
        never(strspn(endpoints.urls[i],
                     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/.-_[]") !=
              strlen(endpoints.urls[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char words[64];
    uint64_t cluster;
    cJSON *answer;

    memcpy(text, data, size);
    text[size] = '\0';
    check_name(text);
    never(etcd_message_error(text, size, words, sizeof words) == 0 && words[0] != '\0');
    answer = etcd_message_parse(text, size, &cluster);
    never(answer != NULL && cluster == 0);
    if (answer != NULL)
        check_answer(answer);
    cJSON_Delete(answer);
    free(text);
    return 0;
}
