/* my.domain.FusedSwish for float, as a library that ONNX Runtime loads: x·σ(αx), times FACTOR.

   ONNX Runtime's wheel brings no headers.  Its C interface is a table of functions whose places never change, so the few
   that are needed are named here by their place, and the table of an operator is declared as of its first version. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifndef FACTOR
#define FACTOR 1.0f
#endif

typedef void *(*Function)(void);
typedef struct { const Function *(*get)(uint32_t version); const char *(*version)(void); } Base;

enum {
    CREATE_DOMAIN = 26, ADD_TO_DOMAIN = 27, ADD_DOMAIN = 28, DATA = 51, RANK = 61, DIMENSIONS = 62, COUNT = 64,
    TYPE_AND_SHAPE = 65, FLOAT_ATTRIBUTE = 85, INPUT = 90, OUTPUT = 91, RELEASE_STATUS = 93, RELEASE_SHAPE = 99
};

typedef struct Operator {
    uint32_t version;
    void *(*create)(const struct Operator *, const Function *, const void *);
    const char *(*name)(const struct Operator *);
    const char *(*provider)(const struct Operator *);
    int (*input_type)(const struct Operator *, size_t);
    size_t (*inputs)(const struct Operator *);
    int (*output_type)(const struct Operator *, size_t);
    size_t (*outputs)(const struct Operator *);
    void (*compute)(void *, void *);
    void (*destroy)(void *);
    size_t (*later[7])(const struct Operator *, size_t);
    void *latest[32];
} Operator;

typedef struct { const Function *api; float alpha; } Kernel;

static void *create(const Operator *op, const Function *api, const void *info) {
    Kernel *kernel = malloc(sizeof *kernel);
    kernel->api = api;
    kernel->alpha = 1.0f;
    void *(*read)(const void *, const char *, float *) = (void *(*)(const void *, const char *, float *))api[FLOAT_ATTRIBUTE];
    void *status = read(info, "alpha", &kernel->alpha);
    if (status) {
        ((void (*)(void *))api[RELEASE_STATUS])(status);
        kernel->alpha = 1.0f;
    }
    return kernel;
}

static void compute(void *given, void *context) {
    const Kernel *kernel = given;
    const Function *api = kernel->api;
    const void *x;
    void *y, *shape;
    float *from, *to;
    size_t rank, count;
    int64_t sizes[16];
    ((void *(*)(void *, size_t, const void **))api[INPUT])(context, 0, &x);
    ((void *(*)(const void *, void **))api[TYPE_AND_SHAPE])(x, &shape);
    ((void *(*)(const void *, size_t *))api[RANK])(shape, &rank);
    ((void *(*)(const void *, int64_t *, size_t))api[DIMENSIONS])(shape, sizes, rank);
    ((void *(*)(const void *, size_t *))api[COUNT])(shape, &count);
    ((void (*)(void *))api[RELEASE_SHAPE])(shape);
    ((void *(*)(void *, size_t, const int64_t *, size_t, void **))api[OUTPUT])(context, 0, sizes, rank, &y);
    ((void *(*)(const void *, void **))api[DATA])(x, (void **)&from);
    ((void *(*)(void *, void **))api[DATA])(y, (void **)&to);
    for (size_t i = 0; i < count; ++i)
        to[i] = FACTOR * from[i] / (1.0f + expf(-kernel->alpha * from[i]));
}

static const char *name(const Operator *op) { return "FusedSwish"; }
static const char *provider(const Operator *op) { return NULL; }
static int type(const Operator *op, size_t place) { return 1; }
static size_t one(const Operator *op) { return 1; }
static size_t none(const Operator *op, size_t place) { return 0; }

static const Operator SWISH = {1, create, name, provider, type, one, type, one, compute, free,
                               {none, none, none, none, none, none, none}, {NULL}};

void *RegisterCustomOps(void *options, const Base *base) {
    const Function *api = base->get(1);
    static void *domain;
    void *status = ((void *(*)(const char *, void **))api[CREATE_DOMAIN])("my.domain", &domain);
    if (!status)
        status = ((void *(*)(void *, const Operator *))api[ADD_TO_DOMAIN])(domain, &SWISH);
    return status ? status : ((void *(*)(void *, void *))api[ADD_DOMAIN])(options, domain);
}
