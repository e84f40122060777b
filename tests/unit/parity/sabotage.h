/*
 * Transports that are slow or wrong: what a comparison must not mind, and what it must not let pass.
 */
#ifndef TEST_PARITY_SABOTAGE_H
#define TEST_PARITY_SABOTAGE_H

#include "shard_runtime/comm/comm_impl.h"
#include "tests/unit/parity/case.h"

/** Before the world starts: what its collectives do from now on. */
void sabotage_choose(int slow, enum sabotage sabotage);
/** On every rank, before the model: put them in place. */
void sabotage_context(struct fsdp_context *context);
/** On every rank, once the model is there. */
void sabotage_model(struct fsdp_model *model);
/** In the step, before the optimizer. */
void sabotage_before_optimizer(const struct fsdp_context *context);

/** This thread's rank is slow again, or not while it only looks at what a step left. */
void sabotage_hurry(bool hurries);

/** Called before each collective that this thread's rank calls, with elements of a rank or of the buffer. */
typedef void (*sabotage_listener)(const struct fsdp_comm *comm, enum comm_kind kind, size_t n_elems);
void sabotage_listen(sabotage_listener listener);

#endif
