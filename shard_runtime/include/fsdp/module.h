/*
 * The module tree: what a model is made of. A module has a name, children, parameters and a forward function.
 * A parameter is born on the meta device: a name, a shape and how its values begin; no memory is held until
 * fsdp_model_create(), and then only this rank's rows.
 *
 * forward() is called once, when the model is built, with symbolic values: what it does with them is recorded
 * and becomes the plan of every step. It must not branch on data, and has none to branch on.
 *
 * Building never needs a check at each call. A constructor given a NULL parent, or out of memory, gives NULL;
 * an operation given a NULL value gives NULL; whatever went wrong first is remembered in the tree (or in the
 * recording) and returned by fsdp_fully_shard() or fsdp_model_create().
 */
#ifndef FSDP_MODULE_H
#define FSDP_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

FSDP_BEGIN_DECLS

struct fsdp_module;
struct fsdp_value;

/** What a module computes of `input`, told with fsdp_call() and the operations of <fsdp/nn.h>; NULL when one
 * failed. */
typedef struct fsdp_value *(*fsdp_forward_fn)(struct fsdp_module *self, struct fsdp_value *input, void *user);

enum fsdp_init {
    FSDP_INIT_ZEROS,
    FSDP_INIT_ONES,
    FSDP_INIT_NORMAL, /* mean 0, standard deviation 0.02 unless told, a function of (seed, name, index) alone */
};

enum { FSDP_MAX_DIMS = 4 };

/** The root of a new tree; its name is "". forward may be NULL for a mere container. `user` goes to forward.
 */
FSDP_API struct fsdp_module *fsdp_module_create(fsdp_forward_fn forward, void *user);
/** A child called `name` (no dot in it) of `parent`, which owns it. */
FSDP_API struct fsdp_module *fsdp_module_add(struct fsdp_module *parent, const char *name,
                                             fsdp_forward_fn forward, void *user);
/** A parameter "<path of module>.<name>" of 1 to FSDP_MAX_DIMS dimensions, float32; dimension 0 is the
 * sharded one. */
FSDP_API enum fsdp_status fsdp_module_add_parameter(struct fsdp_module *module, const char *name, int n_dims,
                                                    const size_t *shape, enum fsdp_init init,
                                                    struct fsdp_err *err);
/**
 * Let the parameter `name` of `module` be `other_name` of `other`, which is in the same tree and of the same shape: one
 * parameter under two names, as when the output of a language model shares the embedding's weight. Before it is
 * sharded; the modules that share it must be one group. Its name and initial values are the other's.
 */
FSDP_API enum fsdp_status fsdp_module_tie_parameter(struct fsdp_module *module, const char *name,
                                                    struct fsdp_module *other, const char *other_name,
                                                    struct fsdp_err *err);
/** Let the values of a FSDP_INIT_NORMAL parameter begin with this standard deviation, at least 0. Before the model.
 * FSDP_ERR_ARG: no such parameter, or not normal. */
FSDP_API enum fsdp_status fsdp_parameter_set_init_std(struct fsdp_module *module, const char *name, float std,
                                                      struct fsdp_err *err);
/** requires_grad of one parameter: false keeps it as it is, gathered like the others but without gradient, optimizer
 * state or update. Before the model. FSDP_ERR_ARG: no such parameter. */
FSDP_API enum fsdp_status fsdp_parameter_set_requires_grad(struct fsdp_module *module, const char *name,
                                                           bool requires_grad, struct fsdp_err *err);
/** requires_grad_() of a module: the same for every parameter in and below it. */
FSDP_API void fsdp_module_requires_grad(struct fsdp_module *module, bool requires_grad);
/** Free a root and all below it, after the models made of it. NULL is a no-op. */
FSDP_API void fsdp_module_destroy(struct fsdp_module *root);

/** The child called `name`, or NULL. */
FSDP_API struct fsdp_module *fsdp_module_child(const struct fsdp_module *module, const char *name);
FSDP_API size_t fsdp_module_child_count(const struct fsdp_module *module);
FSDP_API struct fsdp_module *fsdp_module_child_at(const struct fsdp_module *module, size_t index);
/** "layers.0.attention": where the module stands in its tree. Owned by the module. */
FSDP_API const char *fsdp_module_path(const struct fsdp_module *module);
/** Elements of all parameters of the tree below `module`, itself included. */
FSDP_API size_t fsdp_module_n_elems(const struct fsdp_module *module);
/** FSDP_OK, or what first went wrong while the tree was built. */
FSDP_API enum fsdp_status fsdp_module_check(const struct fsdp_module *root, struct fsdp_err *err);

/** Record the module's forward on `input`. A module may be called more than once; its parameters are then
 * shared. */
FSDP_API struct fsdp_value *fsdp_call(struct fsdp_module *module, struct fsdp_value *input);

FSDP_END_DECLS

#endif
