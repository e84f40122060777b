#include "tests/emulation/fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define BY_HAND 1
#else
#define BY_HAND 0
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define ANNOUNCE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ANNOUNCE 1
#endif
#endif
#ifdef ANNOUNCE
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 256 * 1024 };

struct fiber {
    void (*entry)(void *argument);
    void *argument;
    const void *bottom; /* of the stack, as the sanitizer wants it */
    size_t size_bytes;
    void *fake_stack;
#if BY_HAND
    void *stack_pointer;
#else
    ucontext_t context;
#endif
};

/* The only one that is not made by fiber_create(). */
static struct fiber main_fiber;
static struct fiber *arriving;

#if BY_HAND
/* Saves what the System V ABI lets a callee not touch, and takes the other's. */
void fiber_swap(void **save, void *load);
__asm__(".text\n"
        ".globl fiber_swap\n"
        ".hidden fiber_swap\n"
        ".type fiber_swap, @function\n"
        "fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_swap, . - fiber_swap\n");
#endif

/* First thing after every switch, on the stack just arrived at; `from` is what was left. */
static void announce_arrival(struct fiber *self, struct fiber *from)
{
#ifdef ANNOUNCE
    const void *bottom;
    size_t size_bytes;

    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size_bytes);
    if (from == &main_fiber && from->bottom == NULL) { /* only now is the first stack's place known */
        from->bottom = bottom;
        from->size_bytes = size_bytes;
    }
#else
    (void)self;
    (void)from;
#endif
}

static void fiber_begin(void)
{
    struct fiber *self = arriving;

    announce_arrival(self, &main_fiber); /* a fiber is first entered from the main stack */
    self->entry(self->argument);
    abort(); /* entry never returns */
}

struct fiber *fiber_create(void (*entry)(void *argument), void *argument)
{
    const size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    struct fiber *fiber = calloc(1, sizeof *fiber);
    unsigned char *memory;

    memory = mmap(NULL, guard + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK,
                  -1, 0);
    if (fiber == NULL || memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) < 0) {
        perror("emulation: no memory for a fiber");
        abort();
    }
    fiber->entry = entry;
    fiber->argument = argument;
    fiber->bottom = memory + guard;
    fiber->size_bytes = STACK_BYTES;
#if BY_HAND
    {
        uintptr_t *top = (uintptr_t *)(void *)(memory + guard + STACK_BYTES);

        /*
         * As if fiber_begin had been called: six registers, its address, and a return address of nowhere. So
         * the stack is aligned as at a function's start.
         */
        *--top = 0;
        *--top = (uintptr_t)fiber_begin;
        for (int i = 0; i < 6; i++)
            *--top = 0;
        fiber->stack_pointer = top;
    }
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = memory + guard;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->context, fiber_begin, 0);
#endif
    return fiber;
}

struct fiber *fiber_main(void)
{
    return &main_fiber;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    arriving = to;
#ifdef ANNOUNCE
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->size_bytes);
#endif
#if BY_HAND
    fiber_swap(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
    announce_arrival(from, &main_fiber);
}
