/* SPDX-License-Identifier: GPL-2.0 */
/* NDM-TCP: the arithmetic of both profiles, kept once
 *
 * A recurrent network of eight units in fixed point looks at the path on every
 * ACK and decides how much of the acknowledged data may grow the window:
 *
 *   On each RTT sample:  push it into a window of 16 samples
 *   Every 8 ACKed segments:
 *      entropy    = disorder of the window              (0..1000)
 *      noise      = high entropy: losses and RTT steps look random
 *      congestion = RTT is high and orderly: a queue stands
 *   network:  hidden = act(hidden / k + W * inputs);  output = V * hidden
 *      inputs: RTT inflation, entropy, slow start, congestion, plasticity,
 *              recent loss (and, fixed profile: RTT trend, room below prior cwnd)
 *   growth    = acked segments * f(output, congestion)
 *   on loss:  cut to a half; when the losses look like noise, v1 to a third, v2 to two
 *      thirds
 *   plasticity: raised by losses, decays by 0.5 %; fixed profile: learning rate
 *
 * Two profiles share this file:
 *   v1  "published"  the numbers of NDM-TCP 1.0, faults included: its entropy has
 *                    two values, its output weights are constant, and its window
 *                    grows without being used. For reproducing results only.
 *   v2  "fixed"      what was described, made to work: raw RTTs, true Shannon
 *                    entropy of RTT steps, an orthogonal network that learns, and
 *                    growth of at most 1.5 segments per window and RTT.
 *
 * The includer (kernel module, BPF program, user-space test) provides the types
 * u8..u64 and s16..s64 and, on 32-bit kernels, NDM_DIV64(u64, u32). Nothing else
 * is used: no floating point, no kernel call, no variable index into the state
 * (the BPF verifier refuses that for socket memory) and no signed division
 * (BPF lacks the instruction before cpu v4).
 *
 * Scales: fractions are in milli (1000 = 1), windows in segments (MSS).
 */
#ifndef NDM_CORE_H
#define NDM_CORE_H

#ifndef NDM_DIV64
#define NDM_DIV64(n, d) ((n) / (d))
#endif

#define NDM_INLINE static inline __attribute__((__always_inline__))

/* A leaf is verified once, on its own, in BPF. Inlined, its branches multiply: with
 * ndm_min() and ndm_clamp() inline, Linux 6.1 walks 680,000 instructions, not 12,500.
 */
#ifdef __bpf__
#define NDM_LEAF __attribute__((__noinline__))
#else
#define NDM_LEAF static inline
#endif

/* Keeps a value from being computed early. Newer clang moves the products of all
 * units to the front, and BPF's stack of 512 bytes can't hold them.
 */
#ifdef __bpf__
#define NDM_HERE(x) __asm__ volatile("" : "+r"(x))
#else
#define NDM_HERE(x) do { } while (0)
#endif

#ifdef __clang__
#define NDM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NDM_UNROLL _Pragma("GCC unroll 16")
#endif

#define NDM_MILLI		1000	/* 1 in fixed point */
#define NDM_SAMPLES		16	/* RTT samples in the window */
#define NDM_UNITS		8	/* hidden units */
#define NDM_EVAL_SEGMENTS	8	/* ACKed segments between evaluations */
#define NDM_ENTROPY_NOISE	700	/* from here on the RTT counts as noise */
#define NDM_PLAST_INIT		300
#define NDM_PLAST_MIN		100
#define NDM_PLAST_MAX		1000
#define NDM_PLAST_LOSS		100	/* raised by this at each loss ... */
#define NDM_PLAST_RTO		150	/* ... and each retransmission timeout */
#define NDM_PLAST_DECAY		995	/* milli, per evaluation (v1: per ACK) */
#define NDM_CWND_MIN		2	/* segments */
#define NDM_RTT_NONE		0xffffffffU

enum ndm_flags {
	NDM_DATA	= 1,	/* an evaluation has happened */
	NDM_SS		= 2,	/* slow start, as v1 sees it */
	NDM_CONG	= 4,	/* a standing queue (v1: low entropy) */
	NDM_LOSS	= 8,	/* a loss since the last evaluation */
	NDM_NOISE	= 16,	/* RTT steps look random (v2) */
};

/* 16 samples of 16 bits as one 256-bit shift register, the newest in bits 0..15
 * of w[0]. Keeps the order without an index.
 */
struct ndm_window {
	u64 w[4];
};

NDM_LEAF u32 ndm_min(u32 a, u32 b)
{
	return a < b ? a : b;
}

NDM_INLINE u32 ndm_max(u32 a, u32 b)
{
	return a > b ? a : b;
}

NDM_LEAF s32 ndm_clamp(s64 x, s32 limit)
{
	return x > limit ? limit : x < -limit ? -limit : (s32)x;
}

/* -1 when negative, else 0: (x ^ sign) - sign is then |x|, without a branch.
 * Branches in some 60 divisions would multiply the verifier's states.
 */
NDM_INLINE s64 ndm_sign(s64 x)
{
	return x >> 63;
}

NDM_INLINE u64 ndm_abs(s64 x)
{
	return ((u64)x ^ (u64)ndm_sign(x)) - (u64)ndm_sign(x);
}

NDM_INLINE s64 ndm_with_sign(u64 magnitude, s64 sign)
{
	return (s64)((magnitude ^ (u64)sign) - (u64)sign);
}

/* n / d, toward zero */
NDM_INLINE s64 ndm_sdiv(s64 n, u32 d)
{
	return ndm_with_sign(NDM_DIV64(ndm_abs(n), d), ndm_sign(n));
}

/* n / 1000, toward zero, exact for |n| < 2^32: 274877907 = ceil(2^38 / 1000) */
NDM_INLINE s64 ndm_milli(s64 n)
{
	return ndm_with_sign((ndm_abs(n) * 274877907) >> 38, ndm_sign(n));
}

/* x / 2^shift, toward zero */
NDM_INLINE s32 ndm_shift_down(s32 x, u32 shift)
{
	return (x + ((x >> 31) & ((1 << shift) - 1))) >> shift;
}

NDM_INLINE void ndm_window_clear(struct ndm_window *win)
{
	win->w[0] = 0;
	win->w[1] = 0;
	win->w[2] = 0;
	win->w[3] = 0;
}

NDM_INLINE void ndm_window_push(struct ndm_window *win, u32 sample)
{
	win->w[3] = win->w[3] << 16 | win->w[2] >> 48;
	win->w[2] = win->w[2] << 16 | win->w[1] >> 48;
	win->w[1] = win->w[1] << 16 | win->w[0] >> 48;
	win->w[0] = win->w[0] << 16 | (sample & 0xffff);
}

/* Sample of that age, 0 = newest. The age must be a constant after unrolling. */
NDM_INLINE u32 ndm_window_at(const struct ndm_window *win, u32 age)
{
	return (win->w[age >> 2] >> (16 * (age & 3))) & 0xffff;
}

NDM_INLINE u16 ndm_plast_raised(u32 plast, u32 by)
{
	return (u16)ndm_min(plast + by, NDM_PLAST_MAX);
}

NDM_INLINE u16 ndm_plast_decayed(u32 plast)
{
	return (u16)ndm_max(plast * NDM_PLAST_DECAY / NDM_MILLI, NDM_PLAST_MIN);
}

/* ---- v1: the published profile ------------------------------------------- */

#define NDM_V1_ACT_LIMIT	3000	/* the cubic is used up to here */
#define NDM_V1_SQUASH_LIMIT	6000
/* Above this RTT inflation every unit is saturated whatever the other inputs
 * are; cutting here keeps the products within ndm_milli()'s range.
 */
#define NDM_V1_INFLATION_LIMIT	4000000

struct ndm_v1 {
	struct ndm_window rtt_ms;	/* smoothed RTTs in whole ms */
	s16	hid[NDM_UNITS];
	u32	min_rtt_us;		/* smallest smoothed RTT */
	u32	prior_cwnd;		/* before the last loss */
	u32	ssthresh;		/* its own, beside the kernel's */
	u16	entropy;		/* 0 or 1000 */
	u16	plast;
	u16	cnt;			/* ACKed segments since the last evaluation */
	u16	delta;			/* the network's last output, 0..1000 */
	u8	n;			/* samples in the window */
	u8	flags;
};

enum ndm_v1_how {
	NDM_V1_SLOW_START = 1,	/* tcp_slow_start(tp, segments) */
	NDM_V1_ADDITIVE,	/* tcp_cong_avoid_ai(tp, cwnd, segments) */
	NDM_V1_RENO,		/* tcp_reno_cong_avoid(sk, ack, segments) */
};

struct ndm_v1_growth {
	u32	how;
	u32	segments;
};

NDM_INLINE void ndm_v1_init(struct ndm_v1 *st, u32 cwnd, u32 ssthresh)
{
	ndm_window_clear(&st->rtt_ms);
	NDM_UNROLL
	for (int i = 0; i < NDM_UNITS; i++)
		st->hid[i] = 0;
	st->min_rtt_us = NDM_RTT_NONE;
	st->prior_cwnd = cwnd;
	st->ssthresh = ssthresh;
	st->entropy = 0;
	st->plast = NDM_PLAST_INIT;
	st->cnt = 0;
	st->delta = 0;
	st->n = 0;
	st->flags = NDM_SS;
}

/* Published entropy: a histogram formula that exceeds its cap of 1000 for every
 * window that is not constant, so it is this predicate.
 */
NDM_INLINE u16 ndm_v1_entropy(const struct ndm_v1 *st)
{
	u32 newest = ndm_window_at(&st->rtt_ms, 0);
	u32 differs = 0;

	NDM_UNROLL
	for (u32 age = 1; age < NDM_SAMPLES; age++)
		if (age < st->n)
			differs |= ndm_window_at(&st->rtt_ms, age) ^ newest;
	return st->n >= 8 && differs ? NDM_MILLI : 0;
}

/* x - x^3 / 3 where |x| <= 3, else +-1: not monotone, reaches +-6 at +-3 */
NDM_LEAF s32 ndm_v1_act(s32 x)
{
	s64 square, cube;

	if (x > NDM_V1_ACT_LIMIT)
		return NDM_MILLI;
	if (x < -NDM_V1_ACT_LIMIT)
		return -NDM_MILLI;
	square = ndm_milli((s64)x * x);
	cube = ndm_milli(square * x);
	return (s32)(x - ndm_sdiv(cube, 3));
}

/* A straight line from -4000 to 4000, onto 0..1000 */
NDM_INLINE s32 ndm_v1_squash(s32 x)
{
	if (x > NDM_V1_SQUASH_LIMIT)
		return NDM_MILLI;
	if (x < -NDM_V1_SQUASH_LIMIT)
		return 0;
	x = 500 + ndm_shift_down(x, 3);
	return x < 0 ? 0 : x > NDM_MILLI ? NDM_MILLI : x;
}

/* RTT above its minimum, in milli of the minimum; 32-bit wrap as published */
NDM_INLINE s32 ndm_v1_inflation(u32 rtt_us, u32 min_rtt_us)
{
	u64 ratio = NDM_DIV64((u64)rtt_us * NDM_MILLI, ndm_max(min_rtt_us, 1));

	return ndm_clamp((s32)((u32)ratio - NDM_MILLI), NDM_V1_INFLATION_LIMIT);
}

NDM_INLINE u16 ndm_v1_network(struct ndm_v1 *st, u32 rtt_us)
{
	const s32 x[6] = {
		ndm_v1_inflation(rtt_us, st->min_rtt_us),
		st->entropy,
		st->flags & NDM_SS ? NDM_MILLI : -NDM_MILLI,
		st->flags & NDM_CONG ? -NDM_MILLI : NDM_MILLI,
		st->plast - 500,
		st->flags & NDM_LOSS ? -NDM_MILLI : NDM_MILLI,
	};
	s32 out = 0;

	NDM_UNROLL
	for (int i = 0; i < NDM_UNITS; i++) {
		s32 sum = ndm_shift_down(st->hid[i], 1);

		NDM_UNROLL
		for (int j = 0; j < 6; j++) {
			s64 product = x[j];

			NDM_HERE(product);
			product *= 1000 - 37 * i - 17 * j;
			sum -= (s32)ndm_milli(product);
		}
		sum = ndm_v1_act(sum);
		st->hid[i] = (s16)sum;
		out -= (s32)ndm_milli((s64)sum * (1000 - 13 * i));
	}
	if (st->entropy > NDM_ENTROPY_NOISE)
		out = ndm_shift_down(out, 1);
	return (u16)ndm_v1_squash(out);
}

NDM_INLINE void ndm_v1_sample(struct ndm_v1 *st, u32 rtt_us)
{
	st->min_rtt_us = ndm_min(st->min_rtt_us, rtt_us);
	ndm_window_push(&st->rtt_ms, ndm_max(1, ndm_min(65535, rtt_us / 1000)));
	st->n = (u8)ndm_min(NDM_SAMPLES, st->n + 1U);
}

NDM_INLINE void ndm_v1_evaluate(struct ndm_v1 *st)
{
	st->entropy = ndm_v1_entropy(st);
	st->cnt = 0;
	st->flags = (st->flags & NDM_SS) | NDM_DATA |
		    (st->entropy < NDM_ENTROPY_NOISE ? NDM_CONG : 0);
}

NDM_INLINE u8 ndm_v1_with_slow_start(const struct ndm_v1 *st, u32 cwnd)
{
	return (u8)((st->flags & ~NDM_SS) | (cwnd < st->ssthresh ? NDM_SS : 0));
}

NDM_INLINE struct ndm_v1_growth ndm_v1_grow(const struct ndm_v1 *st, u32 acked)
{
	u8 cong = st->flags & NDM_CONG;
	struct ndm_v1_growth growth = { NDM_V1_RENO, acked };

	if (st->flags & NDM_SS) {
		growth.how = NDM_V1_SLOW_START;
		growth.segments = cong ? acked / 2 : acked;
	} else if (st->flags & NDM_DATA) {
		growth.how = NDM_V1_ADDITIVE;
		growth.segments = ndm_max(1, (u32)NDM_DIV64((u64)acked * st->delta, cong ? 2000U : 1000U));
	}
	return growth;
}

/* One ACK of acked > 0 segments: how the window is to grow, and by how much */
NDM_INLINE struct ndm_v1_growth ndm_v1_ack(struct ndm_v1 *st, u32 cwnd, u32 srtt_us, u32 acked)
{
	struct ndm_v1_growth growth;
	u32 rtt_us = ndm_max(srtt_us, 1);

	st->cnt = (u16)(st->cnt + acked);
	ndm_v1_sample(st, rtt_us);
	if (st->cnt >= NDM_EVAL_SEGMENTS)
		ndm_v1_evaluate(st);
	st->flags = ndm_v1_with_slow_start(st, cwnd);
	st->delta = ndm_v1_network(st, rtt_us);
	growth = ndm_v1_grow(st, acked);
	st->plast = ndm_plast_decayed(st->plast);
	return growth;
}

NDM_INLINE u32 ndm_v1_ssthresh(struct ndm_v1 *st, u32 cwnd)
{
	u8 noise = (st->flags & NDM_DATA) && st->entropy > NDM_ENTROPY_NOISE;

	st->flags |= NDM_LOSS;
	st->plast = ndm_plast_raised(st->plast, NDM_PLAST_LOSS);
	st->ssthresh = ndm_max(noise ? cwnd / 3 : cwnd / 2, NDM_CWND_MIN);
	st->prior_cwnd = cwnd;
	return st->ssthresh;
}

/* The window to return to; the own ssthresh stays cut, as published */
NDM_INLINE u32 ndm_v1_undo_cwnd(struct ndm_v1 *st, u32 cwnd)
{
	cwnd = ndm_max(cwnd, st->prior_cwnd);
	st->flags = ndm_v1_with_slow_start(st, cwnd);
	return cwnd;
}

NDM_INLINE void ndm_v1_loss_event(struct ndm_v1 *st)
{
	st->flags |= NDM_CONG | NDM_LOSS;
}

NDM_INLINE void ndm_v1_restart(struct ndm_v1 *st)
{
	st->plast = NDM_PLAST_INIT;
}

NDM_INLINE void ndm_v1_timeout(struct ndm_v1 *st)
{
	st->flags |= NDM_CONG | NDM_LOSS;
	st->plast = ndm_plast_raised(st->plast, NDM_PLAST_RTO);
}

/* ---- v2: the fixed profile ------------------------------------------------ */

#define NDM_V2_RTT_SHIFT	5	/* RTTs in units of 32 us, up to 2.09 s */
#define NDM_V2_CWND_MAX		(1U << 20)	/* segments: no growth from here on */
#define NDM_V2_CWND_RATIO_MAX	(1U << 21)	/* the room input is not computed above */
#define NDM_V2_QUEUE_MIN	32	/* RTT units (1 ms): below, no queue is seen */
#define NDM_V2_STEP_MIN		8	/* RTT units (256 us): width of the zero bin */
#define NDM_V2_ENTROPY_FULL	60010	/* 1024 * 15 * log2(15): all steps in one bin */
#define NDM_V2_ACT_LIMIT	3000
#define NDM_V2_LEARN_SHIFT	24
#define NDM_V2_TIE_SUM		15574	/* sum of |ndm_v2_tie|: y is a weighted mean */

/* Hidden weights: the eight cosine functions cos((2j+1) i pi / 16) in milli (row
 * 0 scaled by 1/sqrt(2)). Rows and columns are orthogonal, so that no input and
 * no unit can stand in for another.
 */
static const s16 ndm_v2_weight[NDM_UNITS][NDM_UNITS] = {
	{ 707,  707,  707,  707,  707,  707,  707,  707 },
	{ 981,  831,  556,  195, -195, -556, -831, -981 },
	{ 924,  383, -383, -924, -924, -383,  383,  924 },
	{ 831, -195, -981, -556,  556,  981,  195, -831 },
	{ 707, -707, -707,  707,  707, -707, -707,  707 },
	{ 556, -981,  195,  831, -831, -195,  981, -556 },
	{ 383, -924,  924, -383, -383,  924, -924,  383 },
	{ 195, -556,  831, -981,  981, -831,  556, -195 },
};

/* Output weights before learning: the weight rows times the policy vector
 * (2,1,0,2,0,2,1,1), so that each input moves the output by that share:
 * queue 2, entropy 1, congestion 2, loss 2, RTT trend 1, room 1.
 */
static const s16 ndm_v2_tie[NDM_UNITS] = { 6363, 259, 924, 1681, 707, 1828, 383, -3429 };

/* round(1024 c log2 c): what c steps in one bin take from the entropy. 32-bit because
 * 32 bytes of constants would land in a mergeable section, which libbpf doesn't know.
 */
static const u32 ndm_v2_clog2c[NDM_SAMPLES] = {
	0, 0, 2048, 4869, 8192, 11888, 15882, 20123,
	24576, 29214, 34017, 38967, 44052, 49260, 54582, 60010,
};

struct ndm_v2 {
	struct ndm_window rtt;		/* raw RTTs, units of 32 us */
	s16	hid[NDM_UNITS];
	s16	rd[NDM_UNITS];		/* learned part of the output weights */
	u16	entropy;		/* 0..1000 */
	u16	plast;
	u16	cnt;			/* ACKed segments since the last evaluation */
	u16	credit;			/* milli segments not yet given to the window */
	u16	qd;			/* queueing delay, units of 32 us */
	s16	y;			/* the network's output, -1000..1000 */
	u8	n;			/* samples in the window */
	u8	flags;
};

/* What the algorithm reads of the connection at an evaluation */
struct ndm_v2_path {
	u32	cwnd;
	u32	prior_cwnd;		/* before the last loss; 0 = no loss yet */
	u32	min_rtt_us;		/* the kernel's windowed minimum of raw RTTs */
	u8	slow_start;
};

NDM_INLINE void ndm_v2_init(struct ndm_v2 *st)
{
	ndm_window_clear(&st->rtt);
	NDM_UNROLL
	for (int i = 0; i < NDM_UNITS; i++) {
		st->hid[i] = 0;
		st->rd[i] = 0;
	}
	st->entropy = 0;
	st->plast = NDM_PLAST_INIT;
	st->cnt = 0;
	st->credit = 0;
	st->qd = 0;
	st->y = 0;
	st->n = 0;
	st->flags = 0;
}

/* RTT units of a time, within the 16 bits of a sample, never 0 */
NDM_INLINE u32 ndm_v2_rtt_units(u32 rtt_us)
{
	return ndm_min(65535, ndm_max(1, rtt_us >> NDM_V2_RTT_SHIFT));
}

NDM_INLINE void ndm_v2_sample(struct ndm_v2 *st, s32 rtt_us)
{
	if (rtt_us < 0)
		return;
	ndm_window_push(&st->rtt, ndm_v2_rtt_units((u32)rtt_us));
	st->n = (u8)ndm_min(NDM_SAMPLES, st->n + 1U);
}

/* Bits needed for a value below 2^16 */
NDM_INLINE u32 ndm_bit_length(u32 x)
{
	u32 bits = 0, step;

	step = (u32)(x > 0xff) << 3;
	bits += step;
	x >>= step;
	step = (u32)(x > 0xf) << 2;
	bits += step;
	x >>= step;
	step = (u32)(x > 0x3) << 1;
	bits += step;
	x >>= step;
	return bits + ndm_min(x, 2);	/* x is 0..3 here */
}

/* Bin 0..15 of the RTT step from older to newer: 8 = less than one unit, one bin
 * further out for each doubling. Logarithmic and of absolute width, so that a
 * steady ramp falls into one bin and jitter spreads over many.
 */
NDM_LEAF u32 ndm_v2_step_bin(u32 newer, u32 older, u32 unit)
{
	u32 size;

	if (newer >= older) {
		size = ndm_bit_length((newer - older) / unit);
		return ndm_min(15, 8 + size);
	}
	size = ndm_bit_length((older - newer) / unit);
	return 8 - ndm_min(8, size);
}

/* Shannon entropy of the 15 RTT steps, scaled by 7/6 so that the published
 * threshold of 700 means 600 of the largest possible 1000
 */
NDM_INLINE u32 ndm_v2_entropy(const struct ndm_window *win, u32 base)
{
	u32 unit = ndm_max(NDM_V2_STEP_MIN, base / 32);
	u64 counts = 0;		/* 16 fields of four bits */
	u32 order = 0, raw;

	NDM_UNROLL
	for (u32 age = 0; age < NDM_SAMPLES - 1; age++)
		counts += 1ULL << (4 * (ndm_v2_step_bin(ndm_window_at(win, age),
							ndm_window_at(win, age + 1), unit) & 15));
	NDM_UNROLL
	for (u32 bin = 0; bin < NDM_SAMPLES; bin++)
		order += ndm_v2_clog2c[(counts >> (4 * bin)) & 15];
	raw = NDM_MILLI - (NDM_MILLI * order + NDM_V2_ENTROPY_FULL / 2) / NDM_V2_ENTROPY_FULL;
	return ndm_min(NDM_MILLI, 7 * raw / 6);
}

/* The smallest recent RTT above the base: jitter can't fake a standing queue */
NDM_INLINE u32 ndm_v2_queue(const struct ndm_window *win, u32 base)
{
	u32 lowest = 65535;

	NDM_UNROLL
	for (u32 age = 0; age < NDM_SAMPLES; age++)
		lowest = ndm_min(lowest, ndm_window_at(win, age));
	return lowest > base ? lowest - base : 0;
}

/* A queue of a whole base RTT is congestion whatever the noise; below that, noise
 * excuses what would otherwise count as a queue.
 */
NDM_INLINE u8 ndm_v2_judge(u32 queue, u32 base, u32 entropy)
{
	if (queue > base)
		return NDM_CONG;
	if (entropy >= NDM_ENTROPY_NOISE)
		return NDM_NOISE;
	return queue > ndm_max(base / 4, NDM_V2_QUEUE_MIN) ? NDM_CONG : 0;
}

/* RTT trend: the older half of the window against the newer, falling = positive */
NDM_INLINE s32 ndm_v2_trend(const struct ndm_window *win, u32 base)
{
	s32 fall = 0;

	NDM_UNROLL
	for (u32 age = 0; age < NDM_SAMPLES / 2; age++)
		fall += (s32)ndm_window_at(win, age + NDM_SAMPLES / 2) - (s32)ndm_window_at(win, age);
	return ndm_clamp(ndm_sdiv(500 * (s64)fall, base), NDM_MILLI);
}

/* Room below the window of the last loss, in milli of it; all of it without one */
NDM_INLINE s32 ndm_v2_room(u32 cwnd, u32 prior_cwnd)
{
	if (!prior_cwnd || prior_cwnd >= NDM_V2_CWND_RATIO_MAX || cwnd >= NDM_V2_CWND_RATIO_MAX)
		return NDM_MILLI;
	return ndm_clamp(ndm_sdiv(((s64)prior_cwnd - cwnd) * NDM_MILLI, prior_cwnd), NDM_MILLI);
}

/* x (27 + x^2) / (27 + 9 x^2): monotone, within 24/1000 of tanh, +-1 from +-3 on */
NDM_LEAF s32 ndm_v2_act(s32 x)
{
	u64 m = ndm_min((u32)ndm_abs(x), NDM_V2_ACT_LIMIT);
	u32 square = (u32)(m * m);

	m = NDM_DIV64(m * (27000000 + square), 27000000 + 9 * square);
	return (s32)ndm_with_sign(m, ndm_sign(x));
}

/* One step of the recurrent layer; returns the output y, -1000..1000 */
NDM_INLINE s16 ndm_v2_network(struct ndm_v2 *st, const s32 *x)
{
	s32 out = 0;

	NDM_UNROLL
	for (int i = 0; i < NDM_UNITS; i++) {
		s32 sum = 0;

		NDM_UNROLL
		for (int j = 0; j < NDM_UNITS; j++)
			sum += x[j] * ndm_v2_weight[i][j];
		st->hid[i] = (s16)ndm_v2_act((sum >> 11) + (st->hid[i] >> 2));
		out += st->hid[i] * (ndm_v2_tie[i] + st->rd[i]);
	}
	return (s16)ndm_clamp(ndm_sdiv(out, NDM_V2_TIE_SUM), NDM_MILLI);
}

/* Delta rule on the output weights, plasticity is the rate: a loss that is not
 * noise should have been foreseen, a queue half so, a clear path is an invitation.
 */
NDM_INLINE void ndm_v2_learn(struct ndm_v2 *st)
{
	s32 target = st->flags & NDM_CONG ? -500 : 500;
	s32 error;

	if ((st->flags & (NDM_LOSS | NDM_NOISE)) == NDM_LOSS)
		target = -NDM_MILLI;
	error = target - st->y;
	NDM_UNROLL
	for (int i = 0; i < NDM_UNITS; i++) {
		s64 step = ((s64)error * st->hid[i] * st->plast) >> NDM_V2_LEARN_SHIFT;

		st->rd[i] = (s16)ndm_clamp(st->rd[i] + step, NDM_MILLI);
	}
}

/* Judges the path from the full window, runs the network and learns from it */
NDM_INLINE void ndm_v2_evaluate(struct ndm_v2 *st, const struct ndm_v2_path *path)
{
	u32 base = ndm_v2_rtt_units(path->min_rtt_us);
	u32 queue = ndm_v2_queue(&st->rtt, base);
	u32 entropy = ndm_v2_entropy(&st->rtt, base);
	u8 flags = (st->flags & NDM_LOSS) | NDM_DATA | ndm_v2_judge(queue, base, entropy);
	const s32 x[NDM_UNITS] = {
		1000 - (s32)ndm_min(2000, 2000 * queue / base),
		2 * (s32)entropy - 1000,
		path->slow_start ? NDM_MILLI : -NDM_MILLI,
		flags & NDM_CONG ? -NDM_MILLI : NDM_MILLI,
		2 * st->plast - 1000,
		flags & NDM_LOSS ? -NDM_MILLI : NDM_MILLI,
		ndm_v2_trend(&st->rtt, base),
		ndm_v2_room(path->cwnd, path->prior_cwnd),
	};

	st->qd = (u16)queue;
	st->entropy = (u16)entropy;
	st->flags = flags;
	st->y = ndm_v2_network(st, x);
	ndm_v2_learn(st);
	st->flags &= (u8)~NDM_LOSS;
	st->plast = ndm_plast_decayed(st->plast);
}

/* Counts acked segments; evaluates when there are enough and the window is full */
NDM_INLINE void ndm_v2_ack(struct ndm_v2 *st, u32 acked, const struct ndm_v2_path *path)
{
	st->cnt = (u16)ndm_min(65535, st->cnt + ndm_min(acked, 65535));
	if (st->cnt < NDM_EVAL_SEGMENTS || st->n < NDM_SAMPLES)
		return;
	ndm_v2_evaluate(st, path);
	st->cnt = 0;
}

/* Growth per acked segment, milli: 1000 as Reno; 500..1500 in noise, 500..1000 on
 * a clear path, 250..500 into a standing queue
 */
NDM_INLINE u32 ndm_v2_gain(const struct ndm_v2 *st, u8 slow_start)
{
	s32 y = st->y, gain;

	if (slow_start)
		return NDM_MILLI;
	if (!(st->flags & NDM_NOISE) && y > 0)
		y = 0;
	gain = NDM_MILLI + (y >> 1);
	return (u32)(st->flags & NDM_CONG ? gain >> 1 : gain);
}

/* Segments that the acked ones earn for the window's growth; the rest is kept */
NDM_INLINE u32 ndm_v2_credit(struct ndm_v2 *st, u32 acked, u8 slow_start)
{
	u32 credit = st->credit + ndm_min(acked, 65535) * ndm_v2_gain(st, slow_start);

	st->credit = (u16)(credit % NDM_MILLI);
	return credit / NDM_MILLI;
}

NDM_INLINE u32 ndm_v2_ssthresh(struct ndm_v2 *st, u32 cwnd)
{
	u32 cut = st->flags & NDM_NOISE ? cwnd - cwnd / 3 : cwnd / 2;

	st->flags |= NDM_LOSS;
	st->plast = ndm_plast_raised(st->plast, NDM_PLAST_LOSS);
	return ndm_max(cut, NDM_CWND_MIN);
}

/* After idling the window tells nothing of the path any more */
NDM_INLINE void ndm_v2_restart(struct ndm_v2 *st)
{
	st->plast = NDM_PLAST_INIT;
	st->n = 0;
	st->flags = 0;
	st->y = 0;
}

NDM_INLINE void ndm_v2_timeout(struct ndm_v2 *st)
{
	st->plast = ndm_plast_raised(st->plast, NDM_PLAST_RTO);
	st->n = 0;
	st->flags = NDM_LOSS;
	st->y = 0;
}

#endif /* NDM_CORE_H */
