/*
 * Shared by the files of proto.h:
 *   proto.c       all messages but one
 *   proto_rank.c  PROTO_RANK, which is a list
 */
#ifndef AGENT_PROTO_IMPL_H
#define AGENT_PROTO_IMPL_H

#include "agent/members/proto.h"

/** As proto_encode() and proto_decode(). */
char *proto_encode_rank(const struct proto_rank *message, size_t *size_bytes);
enum fsdp_status proto_decode_rank(struct proto_rank *message, const char *payload, size_t n_bytes,
                                   struct fsdp_err *err);

#endif
