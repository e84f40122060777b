#include "agent/wire/session_hello.h"

#include <string.h>

#include "agent/wire/little_endian.h"

enum { CONNECTION_AT = 16, VERDICT_AT = 20, RECEIVED_AT = 24, SENT_AT = 32, LEASE_AT = 40, ZERO_AT = 44 };

enum session_fit session_fit(const struct session_reach *ours, const struct session_hello *theirs)
{
    if (theirs->sent < ours->received || theirs->received < ours->acked)
        return SESSION_THEY_WENT_BACK;
    return theirs->received > ours->sent ? SESSION_WE_WENT_BACK : SESSION_FITS;
}

enum fsdp_status session_fit_fail(enum session_fit fit, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_MISMATCH, "%s was restored from an earlier state, and is refused for good",
                     fit == SESSION_THEY_WENT_BACK ? "it" : "this node");
}

void session_hello_write(unsigned char out[SESSION_HELLO_BYTES], const struct session_hello *hello)
{
    memcpy(out, hello->identity, SESSION_IDENTITY_BYTES);
    put_le(out + CONNECTION_AT, hello->connection, 4);
    put_le(out + VERDICT_AT, hello->verdict, 4);
    put_le(out + RECEIVED_AT, hello->received, 8);
    put_le(out + SENT_AT, hello->sent, 8);
    put_le(out + LEASE_AT, hello->lease_ms, 4);
    put_le(out + ZERO_AT, 0, 4);
}

enum fsdp_status session_hello_read(struct session_hello *hello, const void *payload, size_t n_bytes,
                                    struct fsdp_err *err)
{
    const unsigned char *in = payload;

    if (n_bytes != SESSION_HELLO_BYTES || get_le(in + VERDICT_AT, 4) >= SESSION_VERDICTS ||
        get_le(in + CONNECTION_AT, 4) == 0 || get_le(in + ZERO_AT, 4) != 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "its first message is no hello of ours");
    memcpy(hello->identity, in, SESSION_IDENTITY_BYTES);
    hello->connection = (uint32_t)get_le(in + CONNECTION_AT, 4);
    hello->verdict = (enum session_verdict)get_le(in + VERDICT_AT, 4);
    hello->received = get_le(in + RECEIVED_AT, 8);
    hello->sent = get_le(in + SENT_AT, 8);
    hello->lease_ms = (uint32_t)get_le(in + LEASE_AT, 4);
    return FSDP_OK;
}
