/* The pointwise part of one step of the recurrent cells, forward and backward.

   Compiled once with -DREAL=float and once with -DREAL=double. Matrix products are made by the caller: before
   a forward step `summed` holds W_h h; after a backward step `grad_summed` holds the gradient of it. Sums in
   which the order of the terms may change are marked with omp simd; nothing else may be reordered. */

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t units, cases, gates;
    int64_t segments;           /* of the norms at the gates */
    int64_t segment_end[4];
    int64_t norm_input, norm_recurrent, norm_joint, norm_cell;
    int64_t summed_stride;      /* from step to step: cases * stack, or 0 if nothing is read again */
    int64_t each_case;          /* 1 if the gradients of gains and biases are kept for each case, else 0 */
    double eps_input, eps_recurrent, eps_cell;
    /* (steps, cases, stack): products of the input, normalized in place if norm_input; W_h h, likewise */
    REAL *projected, *summed, *activated;
    REAL *scale_input, *scale_recurrent, *scale_cell; /* 1 / sigma: (steps, cases, segments); (steps, cases) */
    REAL *mean_cell;
    /* (stack): gains of the products, biases; (units) for the cell */
    REAL *gain_input, *gain_recurrent, *shift, *shift_recurrent, *gain_cell, *bias_cell;
    REAL *hidden;               /* (steps + 1, cases, units), the initial state first */
    REAL *cell, *squashed;      /* (steps + 1, ...) and (steps, cases, units): c, tanh(LN(c)) */
    /* backward: gradients of the outputs (or null), carried from step to step, and of the products */
    REAL *grad_outputs, *grad_cells, *grad_hidden, *carried_cell, *grad_projected, *grad_summed;
    /* summed over steps: (cases, stack), (cases, units) with each_case, else one row for all cases */
    REAL *grad_gain_input, *grad_gain_recurrent, *grad_shift, *grad_shift_recurrent;
    REAL *grad_gain_cell, *grad_bias_cell;
    REAL *row;                  /* scratch, (stack) */
} Layer;

#define SINGLE (sizeof(REAL) == 4)

/* exp to 1 unit in the last place, without a branch: 2^n times a polynomial on |r| < log(2) / 2. */
static inline float exp_float(float x) {
    x = x > 87.0f ? 87.0f : x;
    x = x < -87.0f ? -87.0f : x;
    const float magic = 12582912.0f;
    float n = (x * 1.44269504f + magic) - magic;
    float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float q = fmaf(fmaf(fmaf(fmaf(1.392620336e-3f, r, 8.363194882e-3f), r, 4.16665545e-2f), r, 0.1666657689f), r, 0.5f);
    float p = fmaf(r * r, q, r) + 1.0f;
    union { int32_t i; float f; } two = {((int32_t)n + 127) << 23};
    return p * two.f;
}

static inline float tanh_float(float x) {
    float a = fabsf(x), z = x * x;
    float odd = fmaf(fmaf(fmaf(fmaf(fmaf(2.29280719e-3f, z, -8.344000558e-3f), z, 2.176893546e-2f), z,
                                -5.395926164e-2f), z, 0.1333330357f), z, -0.3333333317f);
    float small = fmaf(x * z, odd, x);
    float large = copysignf(1.0f - 2.0f / (exp_float(2.0f * a) + 1.0f), x);
    return a < 0.625f ? small : large;
}

static inline REAL exponential(REAL x) { return SINGLE ? (REAL)exp_float((float)x) : (REAL)exp((double)x); }
static inline REAL tangent(REAL x) { return SINGLE ? (REAL)tanh_float((float)x) : (REAL)tanh((double)x); }
static inline REAL sigmoid(REAL x) { return (REAL)1 / ((REAL)1 + exponential(-x)); }

void apply(REAL *restrict values, int64_t n, int64_t with_tanh) {
    if (with_tanh)
        for (int64_t j = 0; j < n; j++) values[j] = tangent(values[j]);
    else
        for (int64_t j = 0; j < n; j++) values[j] = sigmoid(values[j]);
}

static inline REAL statistics(const REAL *restrict a, int64_t n, double eps, REAL *mean) {
    REAL sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) sum += a[j];
    REAL m = sum / (REAL)n;
#pragma omp simd reduction(+ : square)
    for (int64_t j = 0; j < n; j++) square += (a[j] - m) * (a[j] - m);
    *mean = m;
    return (REAL)(1 / sqrt((double)(square / (REAL)n) + eps));
}

/* The gradient of the summed inputs, from that of gain * z; the gain's is added up. */
static void normalize_backward(const Layer *l, const REAL *restrict grad, const REAL *restrict gain,
                               const REAL *restrict z, const REAL *restrict scale, REAL *restrict grad_gain,
                               REAL *restrict out) {
    for (int64_t s = 0, from = 0; s < l->segments; from = l->segment_end[s++]) {
        int64_t to = l->segment_end[s];
        REAL sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
        for (int64_t j = from; j < to; j++) {
            REAL g = grad[j] * gain[j];
            grad_gain[j] += grad[j] * z[j];
            sum += g;
            along += g * z[j];
        }
        sum /= (REAL)(to - from);
        along /= (REAL)(to - from);
        REAL inverse = scale[s];
#pragma omp simd
        for (int64_t j = from; j < to; j++) out[j] = inverse * (grad[j] * gain[j] - sum - z[j] * along);
    }
}

/* u and p normalized in place, and out = gain_u * u + gain_p * p + shift, for one segment. */
static inline void combine_segment(const Layer *l, REAL *restrict p, REAL *restrict u, REAL *restrict out, int64_t from,
                                   int64_t to, int64_t row_scale, const int norm_p, const int norm_u, const int joint) {
    const REAL *restrict gp = l->gain_input, *restrict gu = l->gain_recurrent, *restrict shift = l->shift;
    REAL mean_p = 0, scale_p = 1, mean_u = 0, scale_u = 1;
    if (joint)
        for (int64_t j = from; j < to; j++) u[j] += p[j];
    if (norm_u) l->scale_recurrent[row_scale] = scale_u = statistics(u + from, to - from, l->eps_recurrent, &mean_u);
    if (norm_p) l->scale_input[row_scale] = scale_p = statistics(p + from, to - from, l->eps_input, &mean_p);
#pragma omp simd
    for (int64_t j = from; j < to; j++) {
        REAL sum = shift[j];
        if (norm_u) u[j] = (u[j] - mean_u) * scale_u;
        if (norm_p) p[j] = (p[j] - mean_p) * scale_p;
        if (!joint) sum += gp[j] * p[j];
        out[j] = gu[j] * u[j] + sum;
    }
}

/* What the nonlinearities see of both products of a row, which are normalized in place. */
static void combine(const Layer *l, REAL *p, REAL *u, REAL *out, int64_t row) {
    for (int64_t s = 0, from = 0; s < l->segments; from = l->segment_end[s++]) {
        int64_t to = l->segment_end[s], at = row * l->segments + s;
        if (l->norm_joint)
            combine_segment(l, p, u, out, from, to, at, 0, 1, 1);
        else if (l->norm_input && l->norm_recurrent)
            combine_segment(l, p, u, out, from, to, at, 1, 1, 0);
        else if (l->norm_input)
            combine_segment(l, p, u, out, from, to, at, 1, 0, 0);
        else if (l->norm_recurrent)
            combine_segment(l, p, u, out, from, to, at, 0, 1, 0);
        else
            combine_segment(l, p, u, out, from, to, at, 0, 0, 0);
    }
}

/* Both norms at once, where both products have one of their own. */
static void both_backward(const Layer *l, const REAL *restrict d, const REAL *restrict e, int64_t own, int64_t row) {
    int64_t stack = l->gates * l->units;
    const REAL *restrict u = l->summed + row * stack, *restrict p = l->projected + row * stack;
    const REAL *restrict gp = l->gain_input, *restrict gu = l->gain_recurrent;
    REAL *restrict out_u = l->grad_summed + row * stack, *restrict out_p = l->grad_projected + row * stack;
    REAL *restrict gain_u = l->grad_gain_recurrent + own * stack, *restrict gain_p = l->grad_gain_input + own * stack;
    for (int64_t s = 0, from = 0; s < l->segments; from = l->segment_end[s++]) {
        int64_t to = l->segment_end[s], at = row * l->segments + s;
        REAL sum_u = 0, along_u = 0, sum_p = 0, along_p = 0, size = (REAL)(to - from);
#pragma omp simd reduction(+ : sum_u, along_u, sum_p, along_p)
        for (int64_t j = from; j < to; j++) {
            REAL ez = e[j] * u[j], dz = d[j] * p[j];
            gain_u[j] += ez;
            gain_p[j] += dz;
            sum_u += e[j] * gu[j];
            sum_p += d[j] * gp[j];
            along_u += gu[j] * ez;
            along_p += gp[j] * dz;
        }
        REAL scale_u = l->scale_recurrent[at], scale_p = l->scale_input[at];
        sum_u /= size, along_u /= size, sum_p /= size, along_p /= size;
#pragma omp simd
        for (int64_t j = from; j < to; j++) {
            out_u[j] = scale_u * (e[j] * gu[j] - sum_u - u[j] * along_u);
            out_p[j] = scale_p * (d[j] * gp[j] - sum_p - p[j] * along_p);
        }
    }
}

/* From the gradients of what the products became to those of the products. */
static void products_backward(const Layer *l, const REAL *restrict from_input, const REAL *restrict from_recurrent,
                              int64_t own, int64_t row) {
    int64_t stack = l->gates * l->units;
    if (l->norm_input && l->norm_recurrent) {
        both_backward(l, from_input, from_recurrent, own, row);
        return;
    }
    const REAL *u = l->summed + row * stack, *p = l->projected + row * stack;
    REAL *out_u = l->grad_summed + row * stack, *out_p = l->grad_projected + row * stack;
    if (l->norm_recurrent || l->norm_joint)
        normalize_backward(l, from_recurrent, l->gain_recurrent, u, l->scale_recurrent + row * l->segments,
                           l->grad_gain_recurrent + own * stack, out_u);
    else
        memcpy(out_u, from_recurrent, stack * sizeof(REAL));
    if (out_p == out_u) return;
    if (l->norm_input)
        normalize_backward(l, from_input, l->gain_input, p, l->scale_input + row * l->segments,
                           l->grad_gain_input + own * stack, out_p);
    else
        memcpy(out_p, from_input, stack * sizeof(REAL));
}

void rnn_forward(const Layer *l, int64_t t) {
    int64_t H = l->units, B = l->cases;
    for (int64_t b = 0; b < B; b++) {
        int64_t row = t * B + b;
        REAL *p = l->projected + row * H, *u = l->summed + t * l->summed_stride + b * H;
        REAL *h = l->hidden + (row + B) * H;
        combine(l, p, u, h, row);
        apply(h, H, 1);
    }
}

void rnn_backward(const Layer *l, int64_t t) {
    int64_t H = l->units, B = l->cases;
    for (int64_t b = 0; b < B; b++) {
        int64_t row = t * B + b, own = b * l->each_case;
        const REAL *restrict h = l->hidden + (row + B) * H, *restrict carried = l->grad_hidden + b * H;
        const REAL *restrict given = l->grad_outputs ? l->grad_outputs + row * H : 0;
        REAL *restrict d = l->row, *restrict shift = l->grad_shift + own * H;
        for (int64_t j = 0; j < H; j++) {
            d[j] = (carried[j] + (given ? given[j] : 0)) * (1 - h[j] * h[j]);
            shift[j] += d[j];
        }
        products_backward(l, d, d, own, row);
    }
}

void lstm_forward(const Layer *l, int64_t t) {
    int64_t H = l->units, B = l->cases, stack = 4 * H;
    for (int64_t b = 0; b < B; b++) {
        int64_t row = t * B + b;
        REAL *p = l->projected + row * stack, *u = l->summed + t * l->summed_stride + b * stack;
        REAL *restrict a = l->activated + row * stack;
        const REAL *restrict before = l->cell + row * H;
        REAL *restrict c = l->cell + (row + B) * H, *restrict y = l->squashed + row * H;
        REAL *restrict h = l->hidden + (row + B) * H;
        combine(l, p, u, a, row);
        apply(a, 3 * H, 0);
        apply(a + 3 * H, H, 1);
        for (int64_t j = 0; j < H; j++) c[j] = a[j] * before[j] + a[H + j] * a[3 * H + j];
        if (l->norm_cell) {
            const REAL *restrict gain = l->gain_cell, *restrict bias = l->bias_cell;
            REAL mean, inverse = statistics(c, H, l->eps_cell, &mean);
            l->mean_cell[row] = mean;
            l->scale_cell[row] = inverse;
            for (int64_t j = 0; j < H; j++) y[j] = gain[j] * ((c[j] - mean) * inverse) + bias[j];
        } else
            memcpy(y, c, H * sizeof(REAL));
        apply(y, H, 1);
        for (int64_t j = 0; j < H; j++) h[j] = a[2 * H + j] * y[j];
    }
}

/* The gradient of c through LN(c), in place: `d` holds that of the norm's output. */
static void cell_norm_backward(const Layer *l, REAL *restrict d, const REAL *restrict c, int64_t own, int64_t row) {
    int64_t H = l->units;
    const REAL *restrict gain = l->gain_cell;
    REAL *restrict grad_gain = l->grad_gain_cell + own * H, *restrict grad_bias = l->grad_bias_cell + own * H;
    REAL mean = l->mean_cell[row], inverse = l->scale_cell[row], sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (int64_t j = 0; j < H; j++) {
        REAL z = (c[j] - mean) * inverse, g = d[j] * gain[j];
        grad_gain[j] += d[j] * z;
        grad_bias[j] += d[j];
        sum += g;
        along += g * z;
    }
    sum /= (REAL)H;
    along /= (REAL)H;
#pragma omp simd
    for (int64_t j = 0; j < H; j++)
        d[j] = inverse * (d[j] * gain[j] - sum - (c[j] - mean) * inverse * along);
}

void lstm_backward(const Layer *l, int64_t t) {
    int64_t H = l->units, B = l->cases, stack = 4 * H;
    for (int64_t b = 0; b < B; b++) {
        int64_t row = t * B + b, own = b * l->each_case;
        const REAL *restrict a = l->activated + row * stack, *restrict y = l->squashed + row * H;
        const REAL *restrict c = l->cell + (row + B) * H, *restrict before = l->cell + row * H;
        const REAL *restrict given = l->grad_outputs ? l->grad_outputs + row * H : 0;
        const REAL *restrict given_cell = l->grad_cells ? l->grad_cells + row * H : 0;
        REAL *restrict carried = l->grad_hidden + b * H, *restrict carried_cell = l->carried_cell + b * H;
        REAL *restrict d = l->row, *restrict shift = l->grad_shift + own * stack;
        const REAL *restrict f = a, *restrict i = a + H, *restrict o = a + 2 * H, *restrict g = a + 3 * H;
        /* the last quarter of the row holds the gradient of c until the gates need it */
        REAL *restrict dc = l->row + stack;
        if (given)
            for (int64_t j = 0; j < H; j++) carried[j] += given[j];
        for (int64_t j = 0; j < H; j++) {
            d[2 * H + j] = carried[j] * y[j] * (o[j] * (1 - o[j]));
            dc[j] = carried[j] * o[j] * (1 - y[j] * y[j]);
        }
        if (l->norm_cell) cell_norm_backward(l, dc, c, own, row);
        for (int64_t j = 0; j < H; j++) dc[j] += carried_cell[j];
        if (given_cell)
            for (int64_t j = 0; j < H; j++) dc[j] += given_cell[j];
        for (int64_t j = 0; j < H; j++) {
            d[j] = dc[j] * before[j] * (f[j] * (1 - f[j]));
            d[H + j] = dc[j] * g[j] * (i[j] * (1 - i[j]));
            d[3 * H + j] = dc[j] * i[j] * (1 - g[j] * g[j]);
            carried_cell[j] = dc[j] * f[j];
        }
        for (int64_t j = 0; j < stack; j++) shift[j] += d[j];
        products_backward(l, d, d, own, row);
    }
}

void gru_forward(const Layer *l, int64_t t) {
    int64_t H = l->units, B = l->cases, stack = 3 * H;
    const REAL *restrict gp = l->gain_input + 2 * H, *restrict gu = l->gain_recurrent + 2 * H;
    const REAL *restrict shift = l->shift + 2 * H, *restrict inner = l->shift_recurrent + 2 * H;
    for (int64_t b = 0; b < B; b++) {
        int64_t row = t * B + b;
        REAL *p = l->projected + row * stack, *u = l->summed + row * stack;
        REAL *restrict a = l->activated + row * stack, *restrict n = a + 2 * H;
        const REAL *restrict before = l->hidden + row * H;
        REAL *restrict h = l->hidden + (row + B) * H;
        combine(l, p, u, a, row);
        for (int64_t j = 0; j < 2 * H; j++) a[j] += l->shift_recurrent[j];
        apply(a, 2 * H, 0);
        const REAL *restrict pn = p + 2 * H, *restrict un = u + 2 * H, *restrict r = a + H;
        for (int64_t j = 0; j < H; j++)
            n[j] = gp[j] * pn[j] + shift[j] + r[j] * (gu[j] * un[j] + inner[j]);
        apply(n, H, 1);
        for (int64_t j = 0; j < H; j++) h[j] = before[j] + a[j] * (n[j] - before[j]);
    }
}

/* grad_hidden holds the whole gradient of h on entry; on return the part that passes W_h by. */
void gru_backward(const Layer *l, int64_t t) {
    int64_t H = l->units, B = l->cases, stack = 3 * H;
    const REAL *restrict gu = l->gain_recurrent + 2 * H, *restrict inner = l->shift_recurrent + 2 * H;
    for (int64_t b = 0; b < B; b++) {
        int64_t row = t * B + b, own = b * l->each_case;
        const REAL *restrict a = l->activated + row * stack, *restrict before = l->hidden + row * H;
        const REAL *restrict z = a, *restrict r = a + H, *restrict n = a + 2 * H;
        const REAL *restrict un = l->summed + row * stack + 2 * H;
        const REAL *restrict given = l->grad_outputs ? l->grad_outputs + row * H : 0;
        REAL *restrict carried = l->grad_hidden + b * H;
        REAL *restrict d = l->row, *restrict e = l->row + stack;
        if (given)
            for (int64_t j = 0; j < H; j++) carried[j] += given[j];
        for (int64_t j = 0; j < H; j++) {
            REAL dn = carried[j] * z[j] * (1 - n[j] * n[j]);
            d[j] = carried[j] * (n[j] - before[j]) * (z[j] * (1 - z[j]));
            d[H + j] = dn * (gu[j] * un[j] + inner[j]) * (r[j] * (1 - r[j]));
            d[2 * H + j] = dn;
            e[2 * H + j] = dn * r[j];
            carried[j] *= 1 - z[j];
        }
        memcpy(e, d, 2 * H * sizeof(REAL));
        REAL *restrict shift = l->grad_shift + own * stack, *restrict second = l->grad_shift_recurrent + own * stack;
        for (int64_t j = 0; j < stack; j++) {
            shift[j] += d[j];
            second[j] += e[j];
        }
        products_backward(l, d, e, own, row);
    }
}
