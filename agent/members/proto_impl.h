/*
 * Shared by the files of proto.h:
 *   proto.c       all messages but one
 *   proto_rank.c  PROTO_RANK, which is a list
 *   proto_open.c  the guests of PROTO_OPEN
 */
#ifndef AGENT_PROTO_IMPL_H
#define AGENT_PROTO_IMPL_H

#include "agent/members/proto.h"

/** As proto_encode() and proto_decode(). */
char *proto_encode_rank(const struct proto_rank *message, size_t *size_bytes);
enum fsdp_status proto_decode_rank(struct proto_rank *message, const char *payload, size_t n_bytes,
                                   struct fsdp_err *err);
/** Returns whether proto_next_guest() can read all guests of the message. */
bool proto_guests_are_whole(const struct proto_open *open);

#endif
