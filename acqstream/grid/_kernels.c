/* Work on pixels that costs numpy many passes: scattering planes into chunks, means, comparison.
 *
 * acqstream/grid/kernels.py is the only user. numpy gives the same bits and is the reference of the tests
 * (tests/grid/test_kernels.py). Items are unsigned integers of 8 or 16 bits in any byte order, as cameras give them;
 * numpy does all others. The limited API makes one binary for Python 3.11 and every later one.
 *
 * Memory comes in through the buffer protocol: its owner vouches for every index inside the shape. Each function first
 * checks types, shapes and bounds and raises ValueError for a wrong call. Then it computes the byte offset of each
 * index along each axis, and works on these offsets alone, with the interpreter's lock released. So strides may have
 * any value and sign, and chunks and blocks any size.
 *
 * An image has one dimension for each axis. A plane in chunks ("place") has three, as numpy's reshape makes them:
 * chunks of all axes, blocks in a chunk of all axes, items in a block of all axes.
 */
#define Py_LIMITED_API 0x030B0000 /* 3.11: the first one with the buffer protocol */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define HAS_SSE2 1
#else
#define HAS_SSE2 0
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* vectors: with -O2, which some Pythons compile extensions with, this compiler makes few */
#endif
#if defined(_MSC_VER)
#define RESTRICT __restrict
#else
#define RESTRICT restrict
#endif

enum {
    INTERFACE = 1, /* kernels.py refuses another number: an editable install may keep an old binary */
    MAX_AXES = 3,
    MAX_PLANES = 8,   /* sums of 8 planes of 2 x 2 x 2 items of 16 bits fit into 32 bits */
    MAX_RATIO = 2,    /* so the number of items in a mean is a power of two, and a mean is a shift */
    MAX_CHANNELS = 4, /* a last axis as short as colour samples becomes part of the one before it */
    MAX_ROWS = MAX_PLANES * MAX_RATIO * MAX_RATIO, /* rows of the source in one mean, at most */
    ROWS_AHEAD = 2, /* the rows of a mean are loaded into the cache while the mean two rows before it is computed, */
    SHORT_BYTES = 512, /* those of shorter runs one run before: two rows would take less time than a load */
    MEAN_ROWS = 16, /* rows of means that are computed before they are written */
    BAND_ROWS = 32,   /* rows that go to one block after the other: a block of 32 rows is written in one go */
    LINE_BYTES = 64,  /* of the processor's cache */
    MAX_AHEAD_BYTES = 1 << 19, /* of rows that are loaded ahead: as much as most processors have for one core */
    MAX_TABLES = 2 * MAX_AXES + 6
};

/* -------------------------------------------------------------------------------------------------------- arguments */

typedef struct {
    Py_buffer buffer;
    int is_open;
    int is_swapped; /* its byte order is not that of this machine */
} View;

static void close_view(View *view)
{
    if (view->is_open)
        PyBuffer_Release(&view->buffer);
    view->is_open = 0;
}

static int is_big_endian(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 0;
}

/* dimensions: the expected number, 0 for that of an image. Formats are those of the struct module. */
static int open_view(PyObject *object, View *view, int dimensions, int is_writable)
{
    if (PyObject_GetBuffer(object, &view->buffer, PyBUF_STRIDES | PyBUF_FORMAT | (is_writable ? PyBUF_WRITABLE : 0)))
        return -1;
    view->is_open = 1;
    const Py_buffer *buffer = &view->buffer;
    if (dimensions ? buffer->ndim != dimensions : buffer->ndim < 1 || buffer->ndim > MAX_AXES) {
        PyErr_Format(PyExc_ValueError, "an array of %d dimensions: expected %d to %d", buffer->ndim,
                     dimensions ? dimensions : 1, dimensions ? dimensions : MAX_AXES);
        return -1;
    }
    const char *format = buffer->format ? buffer->format : "B";
    int is_big = is_big_endian();
    if (*format == '<' || *format == '>' || *format == '!')
        is_big = *format++ != '<';
    else if (*format == '@' || *format == '=')
        format++;
    Py_ssize_t size = strcmp(format, "B") == 0 ? 1 : strcmp(format, "H") == 0 ? 2 : 0;
    if (!size || buffer->itemsize != size) {
        PyErr_Format(PyExc_ValueError, "items of format '%s' and %zd bytes: expected B or H", format, buffer->itemsize);
        return -1;
    }
    view->is_swapped = size > 1 && is_big != is_big_endian();
    return 0;
}

static int check_same_size(const View *one, const View *other)
{
    if (one->buffer.itemsize == other->buffer.itemsize)
        return 0;
    PyErr_Format(PyExc_ValueError, "items of %zd and of %zd bytes: expected equal types", one->buffer.itemsize,
                 other->buffer.itemsize);
    return -1;
}

/* The first byte of a buffer, and the first one after it; equal if it has no items. */
static void extent_of(const Py_buffer *buffer, uintptr_t *first, uintptr_t *end)
{
    *first = *end = (uintptr_t)buffer->buf;
    int is_empty = 0;
    for (int axis = 0; axis < buffer->ndim; axis++) {
        Py_ssize_t reach = (buffer->shape[axis] - 1) * buffer->strides[axis];
        is_empty |= !buffer->shape[axis];
        if (reach < 0)
            *first -= (uintptr_t)-reach;
        else
            *end += (uintptr_t)reach;
    }
    *end = is_empty ? *first : *end + (uintptr_t)buffer->itemsize;
}

/* What is read must not lie among what is written: the loops run in any order. */
static int check_apart(const View *written, const View *read)
{
    uintptr_t first, end, other_first, other_end;
    extent_of(&written->buffer, &first, &end);
    extent_of(&read->buffer, &other_first, &other_end);
    if (end <= other_first || other_end <= first)
        return 0;
    PyErr_SetString(PyExc_ValueError, "source and target overlap in memory");
    return -1;
}

/* Read a tuple of `count` integers from `min` to `max`. */
static int read_sizes(PyObject *tuple, int count, Py_ssize_t min, Py_ssize_t max, Py_ssize_t *sizes)
{
    int is_right = PyTuple_Check(tuple) && PyTuple_Size(tuple) == count;
    for (int axis = 0; is_right && axis < count; axis++) {
        sizes[axis] = PyLong_AsSsize_t(PyTuple_GetItem(tuple, axis));
        is_right = sizes[axis] >= min && sizes[axis] <= max; /* -1 for what is no integer: min is 0 or 1 */
    }
    if (!is_right) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%R: expected a tuple of %d integers from %zd to %zd", tuple, count, min, max);
    }
    return is_right ? 0 : -1;
}

/* ---------------------------------------------------------------------------------------------------------- offsets */

/* One axis: items written and read, how many read ones make up a written one, and the byte offset of each. */
typedef struct {
    Py_ssize_t to_size, from_size, ratio;
    Py_ssize_t *to, *from;
} Axis;

/* Items of the last axis whose offsets grow by constant steps, in bytes. */
typedef struct {
    Py_ssize_t first, count, to_step, from_step;
} Run;

/* axes: along the last one items lie closest together. channels: neighbours there that belong to one pixel. */
typedef struct {
    Axis axes[MAX_AXES];
    Py_ssize_t channels;
    Run *runs, *from_runs;
    Py_ssize_t run_count, from_run_count;
    Py_ssize_t zero; /* the offset of the only item of an axis that was added */
    void *tables[MAX_TABLES];
    int table_count;
} Plan;

static void *take_table(Plan *plan, Py_ssize_t count, size_t size)
{
    void *table = NULL;
    if (plan->table_count < MAX_TABLES && (size_t)count < (size_t)PY_SSIZE_T_MAX / size)
        table = PyMem_Malloc((size_t)count * size + 1); /* an empty table is not NULL either */
    if (!table)
        PyErr_NoMemory();
    else
        plan->tables[plan->table_count++] = table;
    return table;
}

static void free_plan(Plan *plan)
{
    while (plan->table_count)
        PyMem_Free(plan->tables[--plan->table_count]);
}

/* The offsets of the items [begin, begin + size) along an axis of `axes`; NULL with an error beyond the shape. */
static Py_ssize_t *offsets_of(Plan *plan, const Py_buffer *buffer, int axes, int axis, Py_ssize_t begin, Py_ssize_t size)
{
    int is_place = buffer->ndim > axes;
    const Py_ssize_t *shape = buffer->shape + axis, *strides = buffer->strides + axis;
    Py_ssize_t chunks = is_place ? shape[0] : 1, chunk_step = is_place ? strides[0] : 0;
    Py_ssize_t blocks = is_place ? shape[axes] : 1, block_step = is_place ? strides[axes] : 0;
    Py_ssize_t items = shape[is_place ? 2 * axes : 0], step = strides[is_place ? 2 * axes : 0];
    /* Bounds by division: a product or a sum of sizes may be beyond the integers. */
    if (size && (!items || !blocks || begin > PY_SSIZE_T_MAX - size || (begin + size - 1) / items / blocks >= chunks)) {
        PyErr_Format(PyExc_ValueError, "%zd items from %zd on along axis %d: expected at most %zd x %zd x %zd in all",
                     size, begin, axis, chunks, blocks, items);
        return NULL;
    }
    Py_ssize_t *offsets = take_table(plan, size, sizeof *offsets);
    if (!offsets || !size)
        return offsets;
    Py_ssize_t item = begin % items, block = begin / items % blocks, chunk = begin / items / blocks;
    for (Py_ssize_t at = 0; at < size; at++) {
        offsets[at] = chunk * chunk_step + block * block_step + item * step;
        if (++item == items) {
            item = 0;
            if (++block == blocks) {
                block = 0;
                chunk++;
            }
        }
    }
    return offsets;
}

static Py_ssize_t distance_of(const Axis *axis)
{
    if (axis->to_size < 2)
        return PY_SSIZE_T_MAX; /* no step at all: never the last axis if there is another one */
    Py_ssize_t step = axis->to[1] - axis->to[0];
    return step < 0 ? -step : step;
}

static void sort_axes(Axis *axes)
{
    for (int last = MAX_AXES - 1; last > 0; last--) {
        for (int at = 0; at < last; at++) {
            if (distance_of(&axes[at]) < distance_of(&axes[at + 1])) {
                Axis other = axes[at];
                axes[at] = axes[at + 1];
                axes[at + 1] = other;
            }
        }
    }
}

/* One table for two axes. */
static Py_ssize_t *joined(Plan *plan, const Py_ssize_t *outer, Py_ssize_t count, const Py_ssize_t *inner, Py_ssize_t channels)
{
    Py_ssize_t *offsets = take_table(plan, count, (size_t)channels * sizeof *offsets);
    for (Py_ssize_t at = 0; offsets && at < count * channels; at++)
        offsets[at] = outer[at / channels] + inner[at % channels];
    return offsets;
}

/* Colour samples that lie side by side become part of the axis of their pixels: long runs instead of short ones. */
static int join_channels(Plan *plan)
{
    Axis *outer = &plan->axes[1], *inner = &plan->axes[2];
    Py_ssize_t channels = inner->to_size;
    plan->channels = 1;
    if (channels < 2 || channels > MAX_CHANNELS || inner->ratio != 1 || outer->to_size <= channels)
        return 0;
    Axis both = {outer->to_size * channels, outer->from_size * channels, outer->ratio, NULL, NULL};
    both.to = joined(plan, outer->to, outer->to_size, inner->to, channels);
    both.from = both.to ? joined(plan, outer->from, outer->from_size, inner->from, channels) : NULL;
    if (!both.from)
        return -1;
    plan->axes[2] = both;
    plan->axes[1] = plan->axes[0];
    plan->axes[0] = (Axis){1, 1, 1, &plan->zero, &plan->zero};
    plan->channels = channels;
    return 0;
}

/* Plan `shape` items from `begin` on of `to`, each made of `ratios` items of `from`, which has `limits` items.
 * NULL: begin at 0, ratios of 1. */
static int make_plan(Plan *plan, int axes, const Py_buffer *to, const Py_ssize_t *begin, const Py_ssize_t *shape,
                     const Py_buffer *from, const Py_ssize_t *limits, const Py_ssize_t *ratios)
{
    for (int axis = 0; axis < MAX_AXES; axis++) {
        Axis *one = &plan->axes[axis];
        *one = (Axis){1, 1, 1, &plan->zero, &plan->zero};
        if (axis >= axes)
            continue;
        one->to_size = shape[axis];
        one->ratio = ratios ? ratios[axis] : 1;
        if (one->to_size && (limits[axis] < 1 || one->to_size - 1 > (limits[axis] - 1) / one->ratio)) { /* no item */
            PyErr_Format(PyExc_ValueError, "%zd items along axis %d, each of %zd: expected no more than %zd have",
                         one->to_size, axis, one->ratio, limits[axis]);
            return -1;
        }
        one->from_size = limits[axis] / one->ratio < one->to_size ? limits[axis] : one->to_size * one->ratio;
        one->to = offsets_of(plan, to, axes, axis, begin ? begin[axis] : 0, one->to_size);
        one->from = one->to ? offsets_of(plan, from, axes, axis, 0, one->from_size) : NULL;
        if (!one->from)
            return -1;
    }
    sort_axes(plan->axes);
    return join_channels(plan);
}

/* Runs of two tables of one length, which may be the same table. They are counted first: most planes have few. */
static Run *runs_of(Plan *plan, const Py_ssize_t *to, const Py_ssize_t *from, Py_ssize_t size, Py_ssize_t *count)
{
    Run *runs = NULL;
    for (int is_counted = 0; is_counted < 2; is_counted++) {
        if (is_counted && !(runs = take_table(plan, *count, sizeof *runs)))
            return NULL;
        *count = 0;
        for (Py_ssize_t at = 0; at < size; ++*count) {
            Run run = {at, 1, 0, 0};
            if (at + 1 < size) {
                run.to_step = to[at + 1] - to[at];
                run.from_step = from[at + 1] - from[at];
            }
            while (++at < size && to[at] - to[at - 1] == run.to_step && from[at] - from[at - 1] == run.from_step)
                run.count++;
            if (is_counted)
                runs[*count] = run;
        }
    }
    return runs;
}

/* ------------------------------------------------------------------------------------------------------------- runs */

/* Items are loaded and stored by memcpy: they may begin at odd addresses. */
static inline uint32_t load_8(const char *from) { return (unsigned char)*from; }
static inline uint32_t load_16(const char *from)
{
    uint16_t item;
    memcpy(&item, from, sizeof item);
    return item;
}
static inline uint32_t load_swapped(const char *from)
{
    uint32_t item = load_16(from);
    return (item << 8 | item >> 8) & 0xffff;
}
static inline void store_8(char *to, uint32_t value)
{
    const unsigned char item = (unsigned char)value;
    memcpy(to, &item, sizeof item);
}
static inline void store_16(char *to, uint32_t value)
{
    const uint16_t item = (uint16_t)value;
    memcpy(to, &item, sizeof item);
}

#define FOR_ITEMS(LOAD, STEP, STATEMENT)                                                                               \
    for (Py_ssize_t at = 0; at < count; at++) {                                                                        \
        const uint32_t item = LOAD(from + at * (STEP));                                                                \
        STATEMENT;                                                                                                     \
    }
/* Run a statement for each item of a run, by the type of the items. A constant step lets compilers make vectors. */
#define FOR_RUN(STATEMENT_8, STATEMENT_16)                                                                             \
    if (size == 1 && from_step == 1)                                                                                   \
        FOR_ITEMS(load_8, 1, STATEMENT_8)                                                                              \
    else if (size == 1)                                                                                                \
        FOR_ITEMS(load_8, from_step, STATEMENT_8)                                                                      \
    else if (is_swapped && from_step == 2)                                                                             \
        FOR_ITEMS(load_swapped, 2, STATEMENT_16)                                                                       \
    else if (is_swapped)                                                                                               \
        FOR_ITEMS(load_swapped, from_step, STATEMENT_16)                                                               \
    else if (from_step == 2)                                                                                           \
        FOR_ITEMS(load_16, 2, STATEMENT_16)                                                                            \
    else                                                                                                               \
        FOR_ITEMS(load_16, from_step, STATEMENT_16)

/* Whether complete lines of the cache are stored past it: such a line is not read before it is written.
 * Runs that begin inside a line are taken if they have the length of lines: the next run completes the last one. */
static inline int can_stream(const char *to, Py_ssize_t bytes)
{
    return HAS_SSE2 && (!((uintptr_t)to % LINE_BYTES) || (!((uintptr_t)to % 16) && !(bytes % LINE_BYTES)));
}

static inline void stream_lines(char *RESTRICT to, const char *RESTRICT from, Py_ssize_t bytes, int is_swapped)
{
#if HAS_SSE2
    for (Py_ssize_t at = 0; at < bytes; at += (Py_ssize_t)sizeof(__m128i)) {
        __m128i items = _mm_loadu_si128((const __m128i *)(from + at));
        if (is_swapped)
            items = _mm_or_si128(_mm_slli_epi16(items, 8), _mm_srli_epi16(items, 8));
        _mm_stream_si128((__m128i *)(to + at), items);
    }
#else
    (void)to, (void)from, (void)bytes, (void)is_swapped;
#endif
}

/* Such stores are not ordered with later ones: releasing a lock would not publish them. */
static void end_streaming(void)
{
#if HAS_SSE2
    _mm_sfence();
#endif
}

static inline void copy_items(char *RESTRICT to, const char *RESTRICT from, Py_ssize_t bytes, int is_swapped,
                              int is_past_cache)
{
    Py_ssize_t done = is_past_cache && can_stream(to, bytes) ? bytes - bytes % LINE_BYTES : 0;
    stream_lines(to, from, done, is_swapped);
    if (done == bytes)
        return; /* a block has rows of one line: a call for nothing would take as long as the line */
    to += done;
    from += done;
    if (is_swapped) {
        Py_ssize_t count = (bytes - done) / 2;
        FOR_ITEMS(load_swapped, 2, store_16(to + at * 2, item))
    } else {
        memcpy(to, from, (size_t)(bytes - done));
    }
}

static void copy_apart(char *RESTRICT to, Py_ssize_t to_step, const char *RESTRICT from, Py_ssize_t from_step,
                       Py_ssize_t count, Py_ssize_t size, int is_swapped)
{
    FOR_RUN(store_8(to + at * to_step, item), store_16(to + at * to_step, item))
}

/* Items of `from` are swapped, those of `to` are not. */
static inline int is_run_equal(const char *to, Py_ssize_t to_step, const char *from, Py_ssize_t from_step,
                               Py_ssize_t count, Py_ssize_t size, int is_swapped)
{
    uint32_t differences = 0; /* no branch for each item */
    if (to_step == size && from_step == size && !is_swapped)
        return !memcmp(to, from, (size_t)(count * size));
    if (to_step == 2 && from_step == 2 && is_swapped) {
        FOR_ITEMS(load_swapped, 2, differences |= item ^ load_16(to + at * 2))
    } else {
        FOR_RUN(differences |= item ^ load_8(to + at * to_step), differences |= item ^ load_16(to + at * to_step))
    }
    return !differences;
}

static void add_run(uint32_t *RESTRICT sums, const char *RESTRICT from, Py_ssize_t from_step, Py_ssize_t count,
                    Py_ssize_t size, int is_swapped)
{
    FOR_RUN(sums[at] += item, sums[at] += item)
}

/* The mean of `1 << shift` items; half of that makes it round halves up, 0 truncates. */
static inline uint32_t mean_of(uint32_t sum, int shift, int is_half_up)
{
    return (sum + (is_half_up ? (1u << shift) >> 1 : 0u)) >> shift;
}

/* The exponent of a number of rows, which is a power of two. */
static int shift_of(Py_ssize_t row_count)
{
    int shift = 0;
    while ((Py_ssize_t)1 << shift < row_count)
        shift++;
    return shift;
}

#if HAS_SSE2
/* Sums of the four pairs at a place of all rows. */
static inline __m128i sum_of_pairs(const char *const *rows, int row_count, Py_ssize_t at, int is_swapped)
{
    const __m128i low = _mm_set1_epi32(0xffff);
    __m128i sums = _mm_setzero_si128();
    for (int row = 0; row < row_count; row++) {
        __m128i items = _mm_loadu_si128((const __m128i *)(rows[row] + at));
        if (is_swapped)
            items = _mm_or_si128(_mm_slli_epi16(items, 8), _mm_srli_epi16(items, 8));
        sums = _mm_add_epi32(sums, _mm_add_epi32(_mm_and_si128(items, low), _mm_srli_epi32(items, 16)));
    }
    return sums;
}
#endif

/* Means of neighbours of 16 bits in all rows, eight at a time; returns how many there are. */
static inline Py_ssize_t mean_of_eights(char *RESTRICT line, const char *const *rows, int row_count, Py_ssize_t count,
                                        int is_swapped, int is_half_up)
{
#if HAS_SSE2
    const int shift = shift_of(row_count) + 1;
    const __m128i half = _mm_set1_epi32(is_half_up ? 1 << shift >> 1 : 0), bits = _mm_cvtsi32_si128(shift);
    /* Integers with a sign alone can be packed; the sum in 16 bits leaves these 32,768 out again. */
    const __m128i middle = _mm_set1_epi32(0x8000), bias = _mm_set1_epi16(-0x8000);
    const Py_ssize_t eights = count / 16;
    for (Py_ssize_t at = 0; at < eights; at++) {
        __m128i first = sum_of_pairs(rows, row_count, 32 * at, is_swapped);
        __m128i second = sum_of_pairs(rows, row_count, 32 * at + 16, is_swapped);
        first = _mm_sub_epi32(_mm_srl_epi32(_mm_add_epi32(first, half), bits), middle);
        second = _mm_sub_epi32(_mm_srl_epi32(_mm_add_epi32(second, half), bits), middle);
        _mm_storeu_si128((__m128i *)(line + 16 * at), _mm_add_epi16(_mm_packs_epi32(first, second), bias));
    }
    return 8 * eights;
#else
    (void)line, (void)rows, (void)row_count, (void)count, (void)is_swapped, (void)is_half_up;
    return 0;
#endif
}

/* Means of neighbours in all rows. Where row_count is a constant, compilers make vectors. */
static inline void mean_of_rows(char *RESTRICT line, const char *const *from, int row_count, Py_ssize_t count,
                                Py_ssize_t size, int is_swapped, int is_half_up)
{
    const char *rows[MAX_ROWS];
    const int shift = shift_of(row_count);
    for (int row = 0; row < row_count; row++)
        rows[row] = from[row];
    if (size == 1) {
        for (Py_ssize_t at = 0; at < count / 2; at++) {
            uint32_t sum = 0;
            for (int row = 0; row < row_count; row++)
                sum += load_8(rows[row] + 2 * at) + load_8(rows[row] + 2 * at + 1);
            store_8(line + at, mean_of(sum, shift + 1, is_half_up));
        }
    } else {
        for (Py_ssize_t at = mean_of_eights(line, rows, row_count, count, is_swapped, is_half_up); at < count / 2; at++) {
            uint32_t sum = 0;
            for (int row = 0; row < row_count; row++)
                sum += is_swapped ? load_swapped(rows[row] + 4 * at) + load_swapped(rows[row] + 4 * at + 2)
                                  : load_16(rows[row] + 4 * at) + load_16(rows[row] + 4 * at + 2);
            store_16(line + 2 * at, mean_of(sum, shift + 1, is_half_up));
        }
    }
    if (count % 2) { /* a last item without a neighbour */
        uint32_t sum = 0;
        for (int row = 0; row < row_count; row++) {
            const char *last = rows[row] + (count - 1) * size;
            sum += size == 1 ? load_8(last) : is_swapped ? load_swapped(last) : load_16(last);
        }
        if (size == 1)
            store_8(line + count / 2, mean_of(sum, shift, is_half_up));
        else
            store_16(line + count / 2 * 2, mean_of(sum, shift, is_half_up));
    }
}

#define MEAN_PAIRS(SIZE, STORE, CHANNELS)                                                                              \
    for (Py_ssize_t at = 0; at < pairs; at++)                                                                          \
        for (Py_ssize_t sample = 0; sample < (CHANNELS); sample++) {                                                   \
            uint32_t sum = sums[2 * at * (CHANNELS) + sample] + sums[(2 * at + 1) * (CHANNELS) + sample];              \
            STORE(line + (at * (CHANNELS) + sample) * (SIZE), mean_of(sum, shift + 1, is_half_up));                    \
        }

/* Means along the last axis into `line`, in the byte order of this machine. shift: of the number of rows in `sums`.
 * A last pixel without a neighbour is the mean of these rows alone. */
static void make_line(char *RESTRICT line, const uint32_t *RESTRICT sums, const Plan *plan, Py_ssize_t size, int shift,
                      int is_half_up)
{
    const Axis *axis = &plan->axes[MAX_AXES - 1];
    Py_ssize_t channels = plan->channels, pairs = axis->ratio == 2 ? axis->from_size / channels / 2 : 0;
    if (size == 1 && channels == 1) {
        MEAN_PAIRS(1, store_8, 1)
    } else if (size == 1 && channels == 3) {
        MEAN_PAIRS(1, store_8, 3)
    } else if (size == 1) {
        MEAN_PAIRS(1, store_8, channels)
    } else if (channels == 1) {
        MEAN_PAIRS(2, store_16, 1)
    } else {
        MEAN_PAIRS(2, store_16, channels)
    }
    for (Py_ssize_t at = pairs * channels; at < axis->to_size; at++) {
        uint32_t mean = mean_of(sums[at + pairs * channels], shift, is_half_up);
        if (size == 1)
            store_8(line + at, mean);
        else
            store_16(line + at * 2, mean);
    }
}

/* -------------------------------------------------------------------------------------------------------- functions */

/* The rows of the next band, which are loaded in order while one band is copied: blocks take short pieces of many rows,
 * and the processor itself loads ahead within a row only. */
typedef struct {
    const char *first;
    const Py_ssize_t *rows, *end;
    Py_ssize_t row_bytes, at; /* 0 bytes: nothing is loaded */
} Ahead;

static inline void load_ahead(Ahead *ahead, Py_ssize_t bytes)
{
#if HAS_SSE2
    for (; bytes > 0 && ahead->rows < ahead->end; bytes -= LINE_BYTES) {
        _mm_prefetch(ahead->first + *ahead->rows + ahead->at, _MM_HINT_T1);
        ahead->at += LINE_BYTES;
        if (ahead->at >= ahead->row_bytes) {
            ahead->at = 0;
            ahead->rows++;
        }
    }
#else
    (void)ahead, (void)bytes;
#endif
}

/* The length of a row of the source in bytes; 0 if its items do not lie side by side, or are too many for the cache. */
static Py_ssize_t whole_row_bytes(const Axis *inner, Py_ssize_t size)
{
    Py_ssize_t bytes = inner->to_size * size;
    if (!inner->to_size || inner->from[inner->to_size - 1] - inner->from[0] != bytes - size)
        return 0;
    return bytes > MAX_AHEAD_BYTES / BAND_ROWS ? 0 : bytes;
}

/* Copy one run of each row of a band. Where is_swapped and is_past_cache are constants, no row asks for them. */
static inline void copy_band(char *to, const Py_ssize_t *to_rows, const char *from, const Py_ssize_t *from_rows,
                             Py_ssize_t rows, Py_ssize_t bytes, int is_swapped, int is_past_cache, Ahead *ahead)
{
    for (Py_ssize_t row = 0; row < rows; row++) {
        load_ahead(ahead, bytes);
        copy_items(to + to_rows[row], from + from_rows[row], bytes, is_swapped, is_past_cache);
    }
}

/* As copy_band, for items with any steps. */
static void copy_rows(char *to, const Py_ssize_t *to_rows, Py_ssize_t to_step, const char *from,
                      const Py_ssize_t *from_rows, Py_ssize_t from_step, Py_ssize_t rows, Py_ssize_t count,
                      Py_ssize_t size, int is_swapped, int is_past_cache, Ahead *ahead)
{
    Py_ssize_t bytes = count * size;
    if (to_step != size || from_step != size)
        for (Py_ssize_t row = 0; row < rows; row++)
            copy_apart(to + to_rows[row], to_step, from + from_rows[row], from_step, count, size, is_swapped);
    else if (is_swapped && is_past_cache)
        copy_band(to, to_rows, from, from_rows, rows, bytes, 1, 1, ahead);
    else if (is_past_cache)
        copy_band(to, to_rows, from, from_rows, rows, bytes, 0, 1, ahead);
    else
        copy_band(to, to_rows, from, from_rows, rows, bytes, is_swapped, 0, ahead);
}

static void copy_plan(const Plan *plan, const View *to, const View *from, int is_past_cache)
{
    const Axis *outer = &plan->axes[0], *rows = &plan->axes[1], *inner = &plan->axes[2];
    int is_swapped = to->is_swapped != from->is_swapped;
    Py_ssize_t size = to->buffer.itemsize, row_bytes = whole_row_bytes(inner, size);
    for (Py_ssize_t at = 0; at < outer->to_size; at++) {
        for (Py_ssize_t band = 0; band < rows->to_size; band += BAND_ROWS) {
            Py_ssize_t count = rows->to_size - band < BAND_ROWS ? rows->to_size - band : BAND_ROWS;
            const Py_ssize_t *to_rows = rows->to + band, *from_rows = rows->from + band, *next = from_rows + count;
            Py_ssize_t next_count = rows->to_size - band - count < BAND_ROWS ? rows->to_size - band - count : BAND_ROWS;
            const char *source = (const char *)from->buffer.buf + outer->from[at];
            Ahead ahead = {source + (row_bytes ? inner->from[0] : 0), next, row_bytes ? next + next_count : next, row_bytes, 0};
            for (const Run *run = plan->runs; run < plan->runs + plan->run_count; run++)
                copy_rows((char *)to->buffer.buf + outer->to[at] + inner->to[run->first], to_rows, run->to_step,
                          source + inner->from[run->first], from_rows, run->from_step, count, run->count, size,
                          is_swapped, is_past_cache, &ahead);
        }
    }
    end_streaming();
}

static int is_plan_equal(const Plan *plan, const View *to, const View *from)
{
    const Axis *outer = &plan->axes[0], *rows = &plan->axes[1], *inner = &plan->axes[2];
    int is_swapped = to->is_swapped != from->is_swapped;
    for (Py_ssize_t at = 0; at < outer->to_size; at++) {
        for (Py_ssize_t row = 0; row < rows->to_size; row++) {
            const char *left = (const char *)to->buffer.buf + outer->to[at] + rows->to[row];
            const char *right = (const char *)from->buffer.buf + outer->from[at] + rows->from[row];
            for (const Run *run = plan->runs; run < plan->runs + plan->run_count; run++) {
                if (!is_run_equal(left + inner->to[run->first], run->to_step, right + inner->from[run->first],
                                  run->from_step, run->count, to->buffer.itemsize, is_swapped))
                    return 0;
            }
        }
    }
    return 1;
}

/* The number of items that make up the mean at a place: the ratio, or fewer at the end. */
static Py_ssize_t count_at(const Axis *axis, Py_ssize_t at)
{
    Py_ssize_t rest = axis->from_size - at * axis->ratio;
    return rest < axis->ratio ? rest : axis->ratio;
}

/* Byte offsets of a row of the target, and of the rows of a plane whose mean it is. */
typedef struct {
    Py_ssize_t to, count, offsets[MAX_RATIO * MAX_RATIO];
} Source;

static Source source_of(const Axis *outer, const Axis *rows, Py_ssize_t place)
{
    Py_ssize_t at = place / rows->to_size, row = place % rows->to_size, height = count_at(rows, row);
    Source source = {outer->to[at] + rows->to[row], count_at(outer, at) * height, {0}};
    for (Py_ssize_t each = 0; each < source.count; each++)
        source.offsets[each] = outer->from[at * outer->ratio + each / height] + rows->from[row * rows->ratio + each % height];
    return source;
}

/* Whether the two items of each mean along the last axis lie side by side, in one run, and alike in all planes. */
static int has_pairs(const Plan *plan, const View *planes, Py_ssize_t plane_count, Py_ssize_t size)
{
    const Axis *inner = &plan->axes[MAX_AXES - 1];
    for (Py_ssize_t number = 1; number < plane_count; number++)
        if (planes[number].is_swapped != planes[0].is_swapped)
            return 0;
    for (const Run *run = plan->from_runs; run < plan->from_runs + plan->from_run_count; run++) {
        int is_last = run->first + run->count == inner->from_size;
        if (run->first % 2 || (run->count % 2 && !is_last) || (run->count > 1 && run->from_step != size))
            return 0;
    }
    return inner->ratio == 2 && plan->channels == 1;
}

/* The rows of all planes that make up a row of means, from this offset on; returns how many. */
static inline int rows_of(const char **rows, const View *planes, int plane_count, const Source *source, Py_ssize_t first)
{
    int count = 0;
    for (Py_ssize_t each = 0; each < source->count; each++)
        for (int plane = 0; plane < plane_count; plane++)
            rows[count++] = (const char *)planes[plane].buffer.buf + first + source->offsets[each];
    return count;
}

/* Load parts of these rows into the cache. They are too many streams for the processor's own prefetch. */
static inline void prefetch(const View *planes, int plane_count, const Source *source, Py_ssize_t first, Py_ssize_t bytes)
{
#if HAS_SSE2
    const char *rows[MAX_ROWS];
    int count = rows_of(rows, planes, plane_count, source, first);
    for (int row = 0; row < count; row++)
        for (Py_ssize_t at = 0; at < bytes; at += LINE_BYTES)
            _mm_prefetch(rows[row] + at, _MM_HINT_T0);
#else
    (void)planes, (void)plane_count, (void)source, (void)first, (void)bytes;
#endif
}

/* Means of a band of rows where `has_pairs`. Run by run: in a block the rows of a run lie side by side. */
static void mean_pairs(const Plan *plan, const View *planes, int plane_count, const Source *sources, Py_ssize_t rows,
                       char *lines, int is_half_up)
{
    const Axis *inner = &plan->axes[MAX_AXES - 1];
    Py_ssize_t size = planes->buffer.itemsize;
    int is_swapped = planes->is_swapped;
    const Run *end = plan->from_runs + plan->from_run_count;
    for (const Run *run = plan->from_runs; run < end; run++) {
        const Run *next = run + 1 < end ? run + 1 : NULL;
        for (Py_ssize_t row = 0; row < rows; row++) {
            const char *from[MAX_ROWS];
            char *line = lines + (row * inner->to_size + run->first / 2) * size;
            int row_count = rows_of(from, planes, plane_count, &sources[row], inner->from[run->first]);
            /* Behind the last rows of a run come the first ones of the next run, which lies in another block. */
            Py_ssize_t ahead = run->count * size < SHORT_BYTES ? rows : ROWS_AHEAD;
            if (row + ahead < rows)
                prefetch(planes, plane_count, &sources[row + ahead], inner->from[run->first], run->count * size);
            else if (next && row + ahead - rows < rows)
                prefetch(planes, plane_count, &sources[row + ahead - rows], inner->from[next->first], next->count * size);
            if (row_count == 2 && !is_swapped)
                mean_of_rows(line, from, 2, run->count, size, 0, is_half_up);
            else if (row_count == 2)
                mean_of_rows(line, from, 2, run->count, size, 1, is_half_up);
            else if (row_count == 4 && !is_swapped)
                mean_of_rows(line, from, 4, run->count, size, 0, is_half_up);
            else if (row_count == 4)
                mean_of_rows(line, from, 4, run->count, size, 1, is_half_up);
            else
                mean_of_rows(line, from, row_count, run->count, size, is_swapped, is_half_up);
        }
    }
}

/* Means of one row from items with any offsets. */
static void mean_row(const Plan *plan, const View *planes, Py_ssize_t plane_count, const Source *source, uint32_t *sums,
                     char *line, int is_half_up)
{
    const Axis *inner = &plan->axes[MAX_AXES - 1];
    Py_ssize_t size = planes->buffer.itemsize, row_count = plane_count * source->count;
    memset(sums, 0, (size_t)inner->from_size * sizeof *sums);
    for (Py_ssize_t each = 0; each < row_count; each++) { /* rows fastest, planes slowest */
        const View *plane = &planes[each % plane_count];
        const char *from = (const char *)plane->buffer.buf + source->offsets[each / plane_count];
        for (const Run *run = plan->from_runs; run < plan->from_runs + plan->from_run_count; run++)
            add_run(sums + run->first, from + inner->from[run->first], run->from_step, run->count, size,
                    plane->is_swapped);
    }
    make_line(line, sums, plan, size, shift_of(row_count), is_half_up);
}

/* sums: memory for a row of the source; lines: for a band of rows of the target. */
static void mean_plan(const Plan *plan, const View *to, const View *planes, Py_ssize_t plane_count, uint32_t *sums,
                      char *lines, int is_half_up, int is_past_cache)
{
    const Axis *outer = &plan->axes[0], *rows = &plan->axes[1], *inner = &plan->axes[2];
    Py_ssize_t size = to->buffer.itemsize, places = outer->to_size * rows->to_size;
    int is_paired = has_pairs(plan, planes, plane_count, size);
    Source sources[MEAN_ROWS];
    Py_ssize_t to_rows[MEAN_ROWS], line_rows[MEAN_ROWS];
    Ahead nothing = {NULL, NULL, NULL, 0, 0}; /* the lines are in the cache */
    for (Py_ssize_t band = 0; band < places; band += MEAN_ROWS) {
        Py_ssize_t count = places - band < MEAN_ROWS ? places - band : MEAN_ROWS;
        for (Py_ssize_t row = 0; row < count; row++) {
            sources[row] = source_of(outer, rows, band + row);
            to_rows[row] = sources[row].to;
            line_rows[row] = row * inner->to_size * size;
            if (!is_paired)
                mean_row(plan, planes, plane_count, &sources[row], sums, lines + row * inner->to_size * size, is_half_up);
        }
        if (is_paired)
            mean_pairs(plan, planes, (int)plane_count, sources, count, lines, is_half_up);
        for (const Run *run = plan->runs; run < plan->runs + plan->run_count; run++)
            copy_rows((char *)to->buffer.buf + inner->to[run->first], to_rows, run->to_step, lines + run->first * size,
                      line_rows, size, count, run->count, size, to->is_swapped, is_past_cache, &nothing);
    }
    end_streaming();
}

/* Returns 0, or -1 with an error. */
static int write_means(int axes, const View *to, const Py_ssize_t *begin, const Py_ssize_t *shape, const View *planes,
                       Py_ssize_t plane_count, const Py_ssize_t *limits, const Py_ssize_t *ratios, int is_half_up,
                       int is_past_cache)
{
    Plan plan = {0};
    const Py_buffer *first = &planes[0].buffer;
    size_t bytes = (size_t)first->ndim * sizeof *first->shape;
    for (Py_ssize_t number = 0; number < plane_count; number++) {
        const Py_buffer *plane = &planes[number].buffer;
        if (check_same_size(to, &planes[number]) || check_apart(to, &planes[number]))
            return -1;
        if (memcmp(plane->shape, first->shape, bytes) || memcmp(plane->strides, first->strides, bytes)) {
            /* One table of offsets serves all planes. */
            PyErr_Format(PyExc_ValueError, "plane %zd: expected the shape and the strides of plane 0", number);
            return -1;
        }
    }
    uint32_t *sums = NULL;
    char *lines = NULL;
    if (!make_plan(&plan, axes, &to->buffer, begin, shape, first, limits, ratios)) {
        const Axis *inner = &plan.axes[MAX_AXES - 1];
        plan.runs = runs_of(&plan, inner->to, inner->to, inner->to_size, &plan.run_count);
        plan.from_runs = runs_of(&plan, inner->from, inner->from, inner->from_size, &plan.from_run_count);
        sums = take_table(&plan, inner->from_size, sizeof *sums);
        lines = take_table(&plan, inner->to_size, MEAN_ROWS * (size_t)to->buffer.itemsize);
    }
    int is_ready = plan.runs && plan.from_runs && sums && lines;
    if (is_ready) {
        Py_BEGIN_ALLOW_THREADS
        mean_plan(&plan, to, planes, plane_count, sums, lines, is_half_up, is_past_cache);
        Py_END_ALLOW_THREADS
    }
    free_plan(&plan);
    return is_ready ? 0 : -1;
}

static PyObject *put(PyObject *module, PyObject *arguments)
{
    PyObject *place, *pixels, *begin_tuple;
    int is_past_cache, is_done = 0;
    View to = {0}, from = {0};
    Plan plan = {0};
    Py_ssize_t begin[MAX_AXES];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOp:put", &place, &pixels, &begin_tuple, &is_past_cache))
        return NULL;
    if (!open_view(pixels, &from, 0, 0) && !open_view(place, &to, 3 * from.buffer.ndim, 1) &&
        !check_same_size(&to, &from) && !check_apart(&to, &from) &&
        !read_sizes(begin_tuple, from.buffer.ndim, 0, PY_SSIZE_T_MAX, begin) &&
        !make_plan(&plan, from.buffer.ndim, &to.buffer, begin, from.buffer.shape, &from.buffer, from.buffer.shape, NULL)) {
        const Axis *inner = &plan.axes[MAX_AXES - 1];
        plan.runs = runs_of(&plan, inner->to, inner->from, inner->to_size, &plan.run_count);
    }
    if (plan.runs) {
        Py_BEGIN_ALLOW_THREADS
        copy_plan(&plan, &to, &from, is_past_cache);
        Py_END_ALLOW_THREADS
        is_done = 1;
    }
    free_plan(&plan);
    close_view(&from);
    close_view(&to);
    return is_done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *equal(PyObject *module, PyObject *arguments)
{
    PyObject *left, *right;
    int is_equal = -1;
    View one = {0}, other = {0};
    Plan plan = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO:equal", &left, &right))
        return NULL;
    if (!open_view(left, &one, 0, 0) && !open_view(right, &other, one.buffer.ndim, 0) && !check_same_size(&one, &other)) {
        int axes = one.buffer.ndim;
        if (memcmp(one.buffer.shape, other.buffer.shape, (size_t)axes * sizeof *one.buffer.shape)) {
            PyErr_SetString(PyExc_ValueError, "two arrays of different shapes");
        } else if (!make_plan(&plan, axes, &one.buffer, NULL, one.buffer.shape, &other.buffer, one.buffer.shape, NULL)) {
            const Axis *inner = &plan.axes[MAX_AXES - 1];
            plan.runs = runs_of(&plan, inner->to, inner->from, inner->to_size, &plan.run_count);
        }
    }
    if (plan.runs) {
        Py_BEGIN_ALLOW_THREADS
        is_equal = is_plan_equal(&plan, &one, &other);
        Py_END_ALLOW_THREADS
    }
    free_plan(&plan);
    close_view(&other);
    close_view(&one);
    return is_equal < 0 ? NULL : PyBool_FromLong(is_equal);
}

static PyObject *halve(PyObject *module, PyObject *arguments)
{
    static const Py_ssize_t RATIOS[MAX_AXES] = {2, 2, 1};
    PyObject *source, *target;
    int is_half_up, is_done = 0;
    View from = {0}, to = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOp:halve", &source, &target, &is_half_up))
        return NULL;
    if (!open_view(source, &from, 0, 0) && !open_view(target, &to, from.buffer.ndim, 1)) {
        int axes = from.buffer.ndim;
        if (axes < 2 || (axes == MAX_AXES && from.buffer.shape[2] != to.buffer.shape[2]))
            PyErr_SetString(PyExc_ValueError, "expected images (y, x) or (y, x, samples) with equal numbers of samples");
        else
            is_done = !write_means(axes, &to, NULL, to.buffer.shape, &from, 1, from.buffer.shape, RATIOS, is_half_up, 0);
    }
    close_view(&to);
    close_view(&from);
    return is_done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *reduce(PyObject *module, PyObject *arguments)
{
    PyObject *planes, *limit_tuple, *place, *begin_tuple, *shape_tuple, *ratio_tuple;
    int is_past_cache, is_done = 0, axes = 0;
    View to = {0}, from[MAX_PLANES] = {{{0}, 0, 0}};
    Py_ssize_t limits[MAX_AXES], begin[MAX_AXES], shape[MAX_AXES], ratios[MAX_AXES];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOOOOp:reduce", &planes, &limit_tuple, &place, &begin_tuple, &shape_tuple,
                          &ratio_tuple, &is_past_cache))
        return NULL;
    Py_ssize_t count = PyTuple_Check(planes) ? PyTuple_Size(planes) : 0;
    if (count < 1 || count > MAX_PLANES || (count & (count - 1)) || !PyTuple_Check(limit_tuple)) {
        PyErr_SetString(PyExc_ValueError, "expected a tuple of 1, 2, 4 or 8 planes, and one of limits");
        return NULL;
    }
    axes = PyTuple_Size(limit_tuple) > MAX_AXES ? MAX_AXES : (int)PyTuple_Size(limit_tuple);
    int is_right = axes > 0 && !open_view(place, &to, 3 * axes, 1);
    for (Py_ssize_t number = 0; is_right && number < count; number++)
        is_right = !open_view(PyTuple_GetItem(planes, number), &from[number], 3 * axes, 0);
    if (is_right && !read_sizes(limit_tuple, axes, 0, PY_SSIZE_T_MAX, limits) &&
        !read_sizes(begin_tuple, axes, 0, PY_SSIZE_T_MAX, begin) &&
        !read_sizes(shape_tuple, axes, 0, PY_SSIZE_T_MAX, shape) && !read_sizes(ratio_tuple, axes, 1, MAX_RATIO, ratios))
        is_done = !write_means(axes, &to, begin, shape, from, count, limits, ratios, 1, is_past_cache);
    else if (!axes)
        PyErr_SetString(PyExc_ValueError, "expected a limit for each axis");
    for (Py_ssize_t number = 0; number < count; number++)
        close_view(&from[number]);
    close_view(&to);
    return is_done ? Py_NewRef(Py_None) : NULL;
}

/* ----------------------------------------------------------------------------------------------------------- module */

static PyMethodDef functions[] = {
    {"put", put, METH_VARARGS, "put(place, pixels, begin, is_past_cache)\n\nCopy pixels into a plane in chunks."},
    {"equal", equal, METH_VARARGS, "equal(one, other)\n\nReturn whether two arrays have equal items."},
    {"halve", halve, METH_VARARGS, "halve(source, target, is_half_up)\n\nWrite means of 2 x 2 pixels of an image."},
    {"reduce", reduce, METH_VARARGS,
     "reduce(planes, limits, place, begin, shape, ratios, is_past_cache)\n\n"
     "Write means of planes in chunks into a plane in chunks, halves rounded up."},
    {NULL, NULL, 0, NULL},
};

static int set_up(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)set_up}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernels", "See acqstream.grid.kernels.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&definition);
}
