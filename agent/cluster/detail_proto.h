/* What is known about a worker's end, between the agent (errors.h) and a message (proto.h). Pure. */
#ifndef AGENT_DETAIL_PROTO_H
#define AGENT_DETAIL_PROTO_H

#include "agent/record/errors.h"
#include "agent/wire/proto.h"

/** `detail` NULL: nothing is known. What does not fit is cut at the end, of the last lines at the beginning. */
void detail_to_proto(struct proto_detail *out, const struct errors_detail *detail);

/** False: nothing is known. */
bool detail_from_proto(struct errors_detail *out, const struct proto_detail *detail);

#endif
