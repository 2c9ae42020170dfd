/* Copies of a batch, all in one call and without the interpreter's lock. See asdstore/copies.py, which does the same in numpy.

   Large batches are written past the cache: what is about to be overwritten is not read first, and neither the batch nor what it
   replaces pushes anything out. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PAST_CACHE (4 << 20) /* bytes of a call from which on they are written past the cache */

typedef struct {
    Py_buffer out, values, picks; /* picks.obj is NULL where all values are copied in order */
    int scaled;
    float mean, gain;
} Job;

static void copy(char *out, const char *values, size_t size, int past_cache) {
#if defined(__SSE2__)
    if (past_cache) {
        size_t head = (size_t)(-(intptr_t)out & 15);
        head = head < size ? head : size;
        memcpy(out, values, head);
        out += head, values += head, size -= head;
        for (; size >= 64; out += 64, values += 64, size -= 64) {
            __m128i a = _mm_loadu_si128((const __m128i *)values), b = _mm_loadu_si128((const __m128i *)(values + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(values + 32)), d = _mm_loadu_si128((const __m128i *)(values + 48));
            _mm_stream_si128((__m128i *)out, a);
            _mm_stream_si128((__m128i *)(out + 16), b);
            _mm_stream_si128((__m128i *)(out + 32), c);
            _mm_stream_si128((__m128i *)(out + 48), d);
        }
    }
#endif
    memcpy(out, values, size);
}

static void scale(float *out, const int16_t *values, size_t count, float mean, float gain, int past_cache) {
    size_t i = 0;
#if defined(__SSE2__)
    if (past_cache) {
        const __m128 means = _mm_set1_ps(mean), gains = _mm_set1_ps(gain);
        for (; i < count && ((uintptr_t)(out + i) & 15); i++) out[i] = ((float)values[i] - mean) * gain;
        for (; i + 8 <= count; i += 8) {
            __m128i x = _mm_loadu_si128((const __m128i *)(values + i));
            __m128 low = _mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(x, x), 16));
            __m128 high = _mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpackhi_epi16(x, x), 16));
            _mm_stream_ps(out + i, _mm_mul_ps(_mm_sub_ps(low, means), gains));
            _mm_stream_ps(out + i + 4, _mm_mul_ps(_mm_sub_ps(high, means), gains));
        }
    }
#endif
    for (; i < count; i++) out[i] = ((float)values[i] - mean) * gain;
}

static void run(const Job *job, int past_cache) {
    char *out = job->out.buf;
    const char *values = job->values.buf;
    if (job->scaled) {
        scale((float *)out, (const int16_t *)values, (size_t)job->values.len / 2, job->mean, job->gain, past_cache);
    } else if (!job->picks.obj) {
        copy(out, values, (size_t)job->out.len, past_cache);
    } else {
        const int64_t *picks = job->picks.buf;
        size_t count = (size_t)job->picks.len / 8, size = (size_t)job->out.len / count;
        for (size_t i = 0; i < count; i++) copy(out + i * size, values + (size_t)picks[i] * size, size, past_cache);
    }
}

static int fits(const Job *job) {
    if (job->scaled) return job->out.itemsize == 4 && job->values.itemsize == 2 && job->out.len == 2 * job->values.len;
    if (!job->picks.obj) return job->out.len == job->values.len;
    const int64_t *picks = job->picks.buf;
    Py_ssize_t count = job->picks.len / 8;
    if (job->picks.itemsize != 8 || (count ? job->out.len % count : job->out.len)) return 0;
    Py_ssize_t size = count ? job->out.len / count : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (picks[i] < 0 || (size && picks[i] >= job->values.len / size)) return 0;
    return 1;
}

/* Fills a zeroed job from (out, values, picks) or (out, values, mean, gain); 0 with an exception set where it cannot. */
static int take(Job *job, PyObject *given) {
    PyObject *out, *values, *picks = Py_None;
    if (!PyTuple_Check(given)) return PyErr_SetString(PyExc_TypeError, "expected a tuple"), 0;
    job->scaled = PyTuple_Size(given) == 4;
    if (job->scaled ? !PyArg_ParseTuple(given, "OOff", &out, &values, &job->mean, &job->gain)
                    : !PyArg_ParseTuple(given, "OOO", &out, &values, &picks)) return 0;
    if (PyObject_GetBuffer(out, &job->out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) ||
        PyObject_GetBuffer(values, &job->values, PyBUF_C_CONTIGUOUS) ||
        (picks != Py_None && PyObject_GetBuffer(picks, &job->picks, PyBUF_C_CONTIGUOUS))) return 0;
    if (fits(job)) return 1;
    PyErr_SetString(PyExc_ValueError, "what is copied and what it is copied into differ in size");
    return 0;
}

static PyObject *carry_out(PyObject *self, PyObject *jobs) {
    (void)self;
    if (!PyList_Check(jobs)) {
        PyErr_SetString(PyExc_TypeError, "expected a list");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(jobs), taken = 0;
    Job *found = PyMem_Calloc(count ? (size_t)count : 1, sizeof(Job));
    if (!found) return PyErr_NoMemory();
    size_t bytes = 0;
    int good = 1;
    while (good && taken < count) {
        good = take(&found[taken], PyList_GetItem(jobs, taken));
        bytes += (size_t)found[taken++].out.len;
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) run(&found[i], bytes >= PAST_CACHE);
#if defined(__SSE2__)
        _mm_sfence();
#endif
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t i = 0; i < taken; i++) {
        Py_buffer *buffers[] = {&found[i].out, &found[i].values, &found[i].picks};
        for (int b = 0; b < 3; b++)
            if (buffers[b]->obj) PyBuffer_Release(buffers[b]);
    }
    PyMem_Free(found);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"carry_out", carry_out, METH_O, "See asdstore.copies.carry_out."}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_copies", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__copies(void) { return PyModule_Create(&module); }
