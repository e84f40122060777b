#include "shard_runtime/core/module.h"

#include <float.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/utf8.h"

void module_fail(struct fsdp_module *module, enum fsdp_status status, const char *format, ...)
{
    char words[FSDP_ERR_MESSAGE_BYTES];
    va_list arguments;

    if (module == NULL || module->root->err.status != FSDP_OK)
        return;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    fsdp_fail(&module->root->err, status, "%s", words);
}

enum fsdp_status module_refuse(struct fsdp_module *module, const struct fsdp_module *at,
                               const struct fsdp_err *own, struct fsdp_err *err)
{
    struct module_refusal *kept = module != NULL ? &module->root->refusal : NULL;

    if (kept != NULL && kept->err.status == FSDP_OK)
        *kept = (struct module_refusal){ .err = *own, .at = at };
    return fsdp_fail(err, own->status, "%s", own->message);
}

enum fsdp_status module_check_refusal(const struct fsdp_module *module, struct fsdp_err *err)
{
    const struct fsdp_err *kept = &module->root->refusal.err;

    return kept->status == FSDP_OK ? FSDP_OK : fsdp_fail(err, kept->status, "%s", kept->message);
}

static void free_module(struct fsdp_module *module)
{
    if (module == NULL)
        return;
    for (size_t i = 0; i < module->n_children; i++)
        free_module(module->children[i]);
    for (size_t i = 0; i < module->n_parameters; i++) {
        free(module->parameters[i]->name);
        free(module->parameters[i]);
    }
    for (size_t i = 0; i < module->n_aliases; i++)
        free(module->aliases[i].name);
    free(module->aliases);
    free(module->policy.prefetch[0].units);
    free(module->policy.prefetch[1].units);
    free(module->children);
    free(module->parameters);
    free(module->name);
    free(module->path);
    free(module->owned);
    free(module);
}

/*
 * Allocates a module below `parent`, or a root if `parent` is NULL. Does not add it to the parent's children.
 */
static struct fsdp_module *new_module(struct fsdp_module *parent, const char *name, fsdp_forward_fn forward,
                                      void *user)
{
    struct fsdp_module *module = alloc_array(1, sizeof *module);

    if (module == NULL)
        return NULL;
    module->parent = parent;
    module->root = parent != NULL ? parent->root : module;
    module->forward = forward;
    module->user = user;
    module->name = alloc_printf("%s", name);
    module->path = parent == NULL || parent->path[0] == '\0' ? alloc_printf("%s", name)
                                                             : alloc_printf("%s.%s", parent->path, name);
    if (module->name == NULL || module->path == NULL) {
        free_module(module);
        return NULL;
    }
    return module;
}

struct fsdp_module *fsdp_module_create(fsdp_forward_fn forward, void *user)
{
    return new_module(NULL, "", forward, user);
}

/* Returns the reason why `module` cannot get a child or parameter called `name`, or NULL if it can. */
static const char *refuse_name(const struct fsdp_module *module, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return "a name is empty";
    if (strchr(name, '.') != NULL)
        return "a name has a dot in it";
    /* JSON, and so a checkpoint, cannot contain such a name. */
    if (!utf8_is_valid(name))
        return "a name is not UTF-8";
    if (fsdp_module_child(module, name) != NULL || module_parameter(module, name) != NULL)
        return "the name is taken";
    return NULL;
}

struct fsdp_module *fsdp_module_add(struct fsdp_module *parent, const char *name, fsdp_forward_fn forward,
                                    void *user)
{
    struct fsdp_module *module;
    const char *refusal;

    if (parent == NULL)
        return NULL;
    refusal = refuse_name(parent, name);
    if (refusal != NULL) {
        module_fail(parent, FSDP_ERR_ARG, "module \"%s\" below \"%s\": %s", name == NULL ? "" : name,
                    parent->path, refusal);
        return NULL;
    }
    module = new_module(parent, name, forward, user);
    if (module == NULL ||
        !alloc_room(&parent->children, &parent->children_capacity, parent->n_children, sizeof(void *))) {
        module_fail(parent, FSDP_ERR_NOMEM, "module \"%s\" below \"%s\": out of memory", name, parent->path);
        free_module(module);
        return NULL;
    }
    parent->children[parent->n_children++] = module;
    return module;
}

/*
 * Computes the elements of the shape and of one row. Returns false if the shape is empty, has too many
 * dimensions or is too large.
 */
static bool measure(int n_dims, const size_t *shape, struct fsdp_parameter *parameter)
{
    size_t n = 1, bytes;

    if (n_dims < 1 || n_dims > FSDP_MAX_DIMS || shape == NULL)
        return false;
    for (int d = n_dims - 1; d >= 0; d--) {
        if (d == 0)
            parameter->row_elems = n;
        if (shape[d] == 0 || !checked_mul(n, shape[d], &n))
            return false;
        parameter->shape[d] = parameter->whole_shape[d] = shape[d];
    }
    parameter->n_dims = n_dims;
    parameter->n_elems = parameter->whole_elems = n;
    parameter->split.n_parts = 1;
    /* The optimizer state, of up to 16 bytes per element, must also fit a size_t. */
    return checked_mul(n, 2 * sizeof(double), &bytes);
}

enum fsdp_status fsdp_module_add_parameter(struct fsdp_module *module, const char *name, int n_dims,
                                           const size_t *shape, enum fsdp_init init, struct fsdp_err *err)
{
    struct fsdp_parameter *parameter = NULL;
    const char *refusal;

    if (module == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "parameter \"%s\": no module", name == NULL ? "" : name);
    refusal = refuse_name(module, name);
    if (refusal != NULL) {
        module_fail(module, FSDP_ERR_ARG, "parameter \"%s\" of \"%s\": %s", name == NULL ? "" : name,
                    module->path, refusal);
        return fsdp_module_check(module->root, err);
    }
    if ((unsigned)init > FSDP_INIT_NORMAL) {
        module_fail(module, FSDP_ERR_ARG, "parameter \"%s\" of \"%s\": unknown init %d", name, module->path,
                    (int)init);
        return fsdp_module_check(module->root, err);
    }
    parameter = alloc_array(1, sizeof *parameter);
    if (parameter == NULL)
        goto nomem;
    if (!measure(n_dims, shape, parameter)) {
        module_fail(module, FSDP_ERR_ARG, "parameter \"%s\" of \"%s\": its shape is empty or too large", name,
                    module->path);
        free(parameter);
        return fsdp_module_check(module->root, err);
    }
    parameter->init = init;
    parameter->init_std = 0.02f;
    parameter->owner = module;
    parameter->name =
        module->path[0] == '\0' ? alloc_printf("%s", name) : alloc_printf("%s.%s", module->path, name);
    if (parameter->name == NULL ||
        !alloc_room(&module->parameters, &module->parameters_capacity, module->n_parameters, sizeof(void *)))
        goto nomem;
    module->parameters[module->n_parameters++] = parameter;
    return FSDP_OK;
nomem:
    if (parameter != NULL)
        free(parameter->name);
    free(parameter);
    module_fail(module, FSDP_ERR_NOMEM, "parameter \"%s\" of \"%s\": out of memory", name, module->path);
    return fsdp_fail(err, FSDP_ERR_NOMEM, "parameter \"%s\" of \"%s\": out of memory", name, module->path);
}

void fsdp_module_destroy(struct fsdp_module *root)
{
    if (root != NULL)
        free_module(root->root);
}

struct fsdp_module *fsdp_module_child(const struct fsdp_module *module, const char *name)
{
    if (module == NULL || name == NULL)
        return NULL;
    for (size_t i = 0; i < module->n_children; i++)
        if (strcmp(module->children[i]->name, name) == 0)
            return module->children[i];
    return NULL;
}

size_t fsdp_module_child_count(const struct fsdp_module *module)
{
    return module != NULL ? module->n_children : 0;
}

struct fsdp_module *fsdp_module_child_at(const struct fsdp_module *module, size_t index)
{
    return module != NULL && index < module->n_children ? module->children[index] : NULL;
}

const char *fsdp_module_path(const struct fsdp_module *module)
{
    return module != NULL ? module->path : "";
}

size_t fsdp_module_n_elems(const struct fsdp_module *module)
{
    size_t n = 0;

    for (const struct fsdp_module *m = module; m != NULL; m = module_next(module, m))
        for (size_t i = 0; i < m->n_parameters; i++)
            n += m->parameters[i]->whole_elems;
    return n;
}

enum fsdp_status fsdp_module_check(const struct fsdp_module *root, struct fsdp_err *err)
{
    if (root == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM,
                         "the module is NULL: a constructor failed, or a look-up found nothing");
    if (root->root->err.status == FSDP_OK)
        return FSDP_OK;
    return fsdp_fail(err, root->root->err.status, "%s", root->root->err.message);
}

const struct fsdp_parameter *module_parameter(const struct fsdp_module *module, const char *name)
{
    const size_t skip = module->path[0] == '\0' ? 0 : strlen(module->path) + 1;

    for (size_t i = 0; i < module->n_parameters; i++)
        if (strcmp(module->parameters[i]->name + skip, name) == 0)
            return module->parameters[i];
    for (size_t i = 0; i < module->n_aliases; i++)
        if (strcmp(module->aliases[i].name, name) == 0)
            return module->aliases[i].parameter;
    return NULL;
}

void parameter_split(struct fsdp_parameter *parameter, int dim, int n_parts, int part)
{
    parameter->split = (struct tensor_split){ .n_parts = n_parts, .part = part, .dim = dim };
    parameter->shape[dim] /= (size_t)n_parts;
    parameter->n_elems /= (size_t)n_parts;
    parameter->row_elems = parameter->n_elems / parameter->shape[0];
}

static struct fsdp_parameter *own_parameter(struct fsdp_module *module, const char *name)
{
    const struct fsdp_parameter *found = name != NULL ? module_parameter(module, name) : NULL;

    return (struct fsdp_parameter *)(uintptr_t)found; /* safe: the caller's tree is not const */
}

/* Removes `parameter` from the module that created it, and frees it. */
static void drop_parameter(struct fsdp_module *module, struct fsdp_parameter *parameter)
{
    size_t i = 0;

    while (module->parameters[i] != parameter)
        i++;
    memmove(&module->parameters[i], &module->parameters[i + 1],
            (--module->n_parameters - i) * sizeof *module->parameters);
    free(parameter->name);
    free(parameter);
}

enum fsdp_status fsdp_module_tie_parameter(struct fsdp_module *module, const char *name,
                                           struct fsdp_module *other, const char *other_name,
                                           struct fsdp_err *err)
{
    struct fsdp_parameter *replaced, *kept;
    char *copy;

    if (module == NULL || other == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "tying a parameter: no module");
    replaced = own_parameter(module, name);
    kept = own_parameter(other, other_name);
    if (module->root != other->root || replaced == NULL || kept == NULL || replaced == kept ||
        replaced->owner != module)
        return fsdp_fail(
            err, FSDP_ERR_ARG, "tying \"%s\" of \"%s\" to \"%s\" of \"%s\": there is no such pair",
            name != NULL ? name : "", module->path, other_name != NULL ? other_name : "", other->path);
    if (replaced->n_dims != kept->n_dims ||
        memcmp(replaced->shape, kept->shape, (size_t)kept->n_dims * sizeof *kept->shape) != 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "tying \"%s\" to \"%s\": they differ in shape", replaced->name,
                         kept->name);
    copy = alloc_printf("%s", name);
    if (copy == NULL || !alloc_room(&module->aliases, &module->aliases_capacity, module->n_aliases,
                                    sizeof *module->aliases)) {
        free(copy);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "tying \"%s\": out of memory", replaced->name);
    }
    kept->is_factor = kept->is_factor && replaced->is_factor;
    drop_parameter(module, replaced);
    module->aliases[module->n_aliases++] = (struct module_alias){ .name = copy, .parameter = kept };
    return FSDP_OK;
}

enum fsdp_status fsdp_parameter_set_init_std(struct fsdp_module *module, const char *name, float std,
                                             struct fsdp_err *err)
{
    struct fsdp_parameter *parameter = module != NULL ? own_parameter(module, name) : NULL;

    if (parameter == NULL || parameter->init != FSDP_INIT_NORMAL || !(std >= 0 && std <= FLT_MAX))
        return fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" has no parameter \"%s\" that begins normal with %g",
                         module != NULL ? module->path : "", name != NULL ? name : "", (double)std);
    parameter->init_std = std;
    return FSDP_OK;
}

enum fsdp_status fsdp_parameter_set_requires_grad(struct fsdp_module *module, const char *name,
                                                  bool requires_grad, struct fsdp_err *err)
{
    struct fsdp_parameter *parameter = module != NULL ? own_parameter(module, name) : NULL;

    if (parameter == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" has no parameter \"%s\"",
                         module != NULL ? module->path : "", name != NULL ? name : "");
    parameter->frozen = !requires_grad;
    return FSDP_OK;
}

void fsdp_module_requires_grad(struct fsdp_module *module, bool requires_grad)
{
    for (const struct fsdp_module *m = module; m != NULL; m = module_next(module, m)) {
        for (size_t i = 0; i < m->n_parameters; i++)
            m->parameters[i]->frozen = !requires_grad;
        for (size_t i = 0; i < m->n_aliases; i++)
            m->aliases[i].parameter->frozen = !requires_grad;
    }
}

const struct fsdp_module *module_unit(const struct fsdp_module *module)
{
    while (module != NULL && !module->sharded)
        module = module->parent;
    return module;
}

const struct fsdp_module *module_group(const struct fsdp_module *module)
{
    const struct fsdp_module *unit = module_unit(module);

    return unit != NULL && unit->leader != NULL ? unit->leader : unit;
}

enum fsdp_dtype group_param_dtype(const struct fsdp_module *group)
{
    return group == NULL || group->policy.precision.param_dtype == FSDP_DTYPE_NONE
               ? FSDP_F32
               : (enum fsdp_dtype)group->policy.precision.param_dtype;
}

enum fsdp_dtype group_reduce_dtype(const struct fsdp_module *group)
{
    return group == NULL || group->policy.precision.reduce_dtype == FSDP_DTYPE_NONE
               ? group_param_dtype(group)
               : (enum fsdp_dtype)group->policy.precision.reduce_dtype;
}

enum fsdp_dtype parameter_dtype(const struct fsdp_parameter *parameter)
{
    return parameter->ignored ? FSDP_F32 : group_param_dtype(module_group(parameter->owner));
}

bool parameter_is_coded(const struct fsdp_parameter *parameter)
{
    const struct fsdp_module *group = module_group(parameter->owner);

    return parameter->is_factor && !parameter->ignored && group != NULL &&
           group->policy.precision.float8_gather;
}

void module_mark_factor(struct fsdp_module *module, const char *name)
{
    own_parameter(module, name)->is_factor = true;
}

enum fsdp_status module_check_ties(const struct fsdp_module *root, struct fsdp_err *err)
{
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        for (size_t i = 0; i < m->n_aliases; i++) {
            const struct fsdp_parameter *parameter = m->aliases[i].parameter;
            const struct fsdp_module *here = module_group(m), *there = module_group(parameter->owner);

            if (here != there && !parameter->ignored)
                return fsdp_fail(
                    err, FSDP_ERR_ARG,
                    "\"%s\" is shared by the groups of \"%s\" and \"%s\": shard the modules that use "
                    "it as one list",
                    parameter->name, there != NULL ? there->path : "", here != NULL ? here->path : "");
        }
    return FSDP_OK;
}

static size_t index_in_parent(const struct fsdp_module *module)
{
    size_t i = 0;

    while (module->parent->children[i] != module)
        i++;
    return i;
}

const struct fsdp_module *module_next(const struct fsdp_module *root, const struct fsdp_module *module)
{
    if (module->n_children > 0)
        return module->children[0];
    while (module != root) {
        const size_t i = index_in_parent(module) + 1;

        if (i < module->parent->n_children)
            return module->parent->children[i];
        module = module->parent;
    }
    return NULL;
}

void fsdp_checkpoint_wrapper(struct fsdp_module *module, enum fsdp_activation_checkpoint mode)
{
    if (module == NULL)
        return;
    if ((unsigned)mode > FSDP_CHECKPOINT_SELECTIVE)
        module_fail(module, FSDP_ERR_ARG, "checkpoint_wrapper: unknown mode %d for \"%s\"", (int)mode,
                    module->path);
    else
        module->checkpoint = mode;
}
