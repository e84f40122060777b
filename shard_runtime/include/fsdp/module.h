/*
 * The module tree: what a model is made of. A module has a name, children, parameters and a forward function.
 * A parameter begins on the meta device: it has a name, a shape and a rule for its initial values, but no
 * memory. fsdp_model_create() allocates memory, for this rank's rows only.
 *
 * forward() is called once, when the model is built, with symbolic values. What it does with them is recorded
 * and becomes the plan of every step. It cannot branch on data, because there is none yet.
 *
 * A program that builds a tree need not check each call:
 *   - A constructor returns NULL if its parent is NULL or memory ran out.
 *   - An operation returns NULL if one of its values is NULL.
 *   - The tree (or the recording) remembers the first failure. fsdp_fully_shard() or fsdp_model_create()
 *     returns it.
 */
#ifndef FSDP_MODULE_H
#define FSDP_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

FSDP_BEGIN_DECLS

struct fsdp_module;
struct fsdp_value;

/**
 * A module's forward: compute the output from `input`, by fsdp_call() and the operations of <fsdp/nn.h>.
 * Return the output, or NULL if an operation failed. `user` is what fsdp_module_add() was given.
 */
typedef struct fsdp_value *(*fsdp_forward_fn)(struct fsdp_module *self, struct fsdp_value *input, void *user);

enum fsdp_init {
    FSDP_INIT_ZEROS,
    FSDP_INIT_ONES,
    /*
     * mean 0, standard deviation 0.02 unless set; each value depends only on the seed, the name and the index
     */
    FSDP_INIT_NORMAL,
};

enum { FSDP_MAX_DIMS = 4 };

/**
 * Create the root of a new tree; its name is "". Return NULL if memory ran out.
 *
 *   forward  NULL: a container, which cannot be called
 *   user     passed to `forward`; borrowed as long as the tree exists
 */
FSDP_API struct fsdp_module *fsdp_module_create(fsdp_forward_fn forward, void *user);

/**
 * Add a child to `parent`, which owns it. `name` has no dot and is copied; `forward` and `user` are as for
 * the root. Return NULL on failure, which the tree remembers.
 */
FSDP_API struct fsdp_module *fsdp_module_add(struct fsdp_module *parent, const char *name,
                                             fsdp_forward_fn forward, void *user);

/**
 * Add a float32 parameter to `module`. Its full name is "<path of module>.<name>".
 *
 *   shape  (n_dims), 1 to FSDP_MAX_DIMS dimensions; dimension 0 is the one that is sharded by default
 *   FSDP_ERR_ARG    the name is empty, taken or has a dot, or the shape is empty or too large
 *   FSDP_ERR_NOMEM  out of memory
 * The tree remembers the failure, too.
 */
FSDP_API enum fsdp_status fsdp_module_add_parameter(struct fsdp_module *module, const char *name, int n_dims,
                                                    const size_t *shape, enum fsdp_init init,
                                                    struct fsdp_err *err);

/**
 * Tie two parameters of one tree and shape: `name` of `module` becomes another name of `other_name` of
 * `other`. The output of a language model shares the embedding's weight in this way. The parameter keeps the
 * name and the initial values of the second. Call it before the modules are sharded; they must then form one
 * group.
 *   FSDP_ERR_ARG  there is no such pair, or the shapes differ
 */
FSDP_API enum fsdp_status fsdp_module_tie_parameter(struct fsdp_module *module, const char *name,
                                                    struct fsdp_module *other, const char *other_name,
                                                    struct fsdp_err *err);

/**
 * Sets the standard deviation of the initial values of a FSDP_INIT_NORMAL parameter; it must not be negative.
 * Call it before the model is made.
 *   FSDP_ERR_ARG  there is no such parameter, or it is not FSDP_INIT_NORMAL
 */
FSDP_API enum fsdp_status fsdp_parameter_set_init_std(struct fsdp_module *module, const char *name, float std,
                                                      struct fsdp_err *err);

/**
 * Sets requires_grad of one parameter. Call it before the model is made. False freezes the parameter: it is
 * gathered like the others, but has no gradient and no optimizer state, and is not updated. FSDP_ERR_ARG:
 * there is no such parameter.
 */
FSDP_API enum fsdp_status fsdp_parameter_set_requires_grad(struct fsdp_module *module, const char *name,
                                                           bool requires_grad, struct fsdp_err *err);

/** requires_grad_(): set requires_grad of every parameter in `module` and below it. */
FSDP_API void fsdp_module_requires_grad(struct fsdp_module *module, bool requires_grad);

/**
 * Frees a root and everything below it. Call it after the models made of it are destroyed. NULL is a no-op.
 */
FSDP_API void fsdp_module_destroy(struct fsdp_module *root);

/** Return the child called `name`, or NULL. */
FSDP_API struct fsdp_module *fsdp_module_child(const struct fsdp_module *module, const char *name);

/** Return the number of children. */
FSDP_API size_t fsdp_module_child_count(const struct fsdp_module *module);

/** Return child `index`, in the order in which the children were added, or NULL if there is none. */
FSDP_API struct fsdp_module *fsdp_module_child_at(const struct fsdp_module *module, size_t index);

/** Return the module's path in its tree, such as "layers.0.attention". Owned by the module. */
FSDP_API const char *fsdp_module_path(const struct fsdp_module *module);

/** Return the number of elements of all parameters in `module` and below it. */
FSDP_API size_t fsdp_module_n_elems(const struct fsdp_module *module);

/** Return FSDP_OK, or the first failure while the tree was built. */
FSDP_API enum fsdp_status fsdp_module_check(const struct fsdp_module *root, struct fsdp_err *err);

/**
 * Record the module's forward on `input` and return its output. A module may be called more than once; the
 * calls share its parameters.
 */
FSDP_API struct fsdp_value *fsdp_call(struct fsdp_module *module, struct fsdp_value *input);

FSDP_END_DECLS

#endif
