/*
 * What a program can do wrong with the library, by its public headers alone. Each call must come back with a
 * status and words of its own. It must leave nothing allocated, and a model that trains. Two kinds of misuse
 * are not here, because no library can see them. One is an object used after it was destroyed, the other
 * sizes larger than the caller's memory.
 */
#ifndef MISUSE_H
#define MISUSE_H

#include <fsdp/fsdp.h>

#include <stdint.h>

enum { BATCH = 2, SEQ = 3, VOCAB = 7, DIM = 4 };

extern struct fsdp_err err;

/** The last call gave `got`: it must be `want`, with exactly these words, which no misuse before had. */
void expect(int line, enum fsdp_status want, const char *words, enum fsdp_status got);
void hold(int line, bool holds, const char *what);

#define ARG(words, call)       expect(__LINE__, FSDP_ERR_ARG, words, call)
#define ERR(want, words, call) expect(__LINE__, want, words, call)
/* A call, without its last argument &err, in which `argument` is NULL. */
#define NULL_ARG(function, argument, ...)                                                                    \
    ARG(#function ": " #argument " is NULL", function(__VA_ARGS__, &err))
#define HOLD(what) hold(__LINE__, what, #what)
#define OK(call)   hold(__LINE__, (call) == FSDP_OK, err.message)

/* A context of one rank, and what is in order in it. */
extern struct fsdp_context *context;
extern struct fsdp_module *good_tree;
extern struct fsdp_model *good;
extern struct fsdp_optimizer *optimizer;

extern const struct fsdp_model_options model_options;
extern const int32_t tokens[BATCH * SEQ];
extern const struct fsdp_batch batch;

struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *input, void *user);
/** tokens -> middle -> out, and "box", a container that takes no part. */
struct fsdp_module *make_tree(fsdp_forward_fn root_forward);
/** The same with two units: middle, and the root, which has the rest. */
struct fsdp_module *make_sharded_tree(void);
/** Make a model of `root`, and destroy it again. */
enum fsdp_status create(struct fsdp_module *root);

/* The misuses, in the order in which main() calls them. */
#define MISUSES(each)                                                                                        \
    each(context) each(comm) each(mesh) each(tensor_parallel) each(module) each(forward) each(fully_shard)   \
        each(setters) each(setters_of_model) each(model_create) each(step) each(clip) each(evaluation)       \
            each(parameters) each(optimizer) each(state_dict) each(checkpoint) each(forecast)
#define DECLARE(name) void misuse_##name(void);
MISUSES(DECLARE)

#endif
