// SPDX-License-Identifier: GPL-2.0
/* What an ACK costs in ndm_core.h, in user space; prints one JSON object:
 *
 *   v1_bytes, v2_bytes     state of a connection
 *   v1_ns, v2_ns           per ACK of two segments, least of ROUNDS
 *   v2_evaluation_ns       per ACK when every one evaluates (normally one in four)
 *   tsc_mhz                rate of the time-stamp counter, 0 where there is none
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int16_t s16;
typedef int32_t s32;
typedef long long s64;

#include "ndm_core.h"

#define ROUNDS	15
#define ACKS	200000

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static u32 rtt_us(u32 number)
{
	return 40000 + (number * 2654435761U >> 22);
}

static struct ndm_v1 v1;
static struct ndm_v2 v2;
static volatile u32 result;	/* so that nothing is left out */

static void v1_acks(u32 acked)
{
	for (u32 number = 0; number < ACKS; number++)
		result = ndm_v1_ack(&v1, 100, rtt_us(number), acked).segments;
}

static void v2_acks(u32 acked)
{
	const struct ndm_v2_path path = { .cwnd = 100, .prior_cwnd = 140, .min_rtt_us = 40000, .slow_start = 0 };

	for (u32 number = 0; number < ACKS; number++) {
		ndm_v2_sample(&v2, (s32)rtt_us(number));
		ndm_v2_ack(&v2, acked, &path);
		result = ndm_v2_credit(&v2, acked, 0);
	}
}

static double least_ns(void (*acks)(u32), u32 acked)
{
	double least = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		double took = now_ns();

		acks(acked);
		took = now_ns() - took;
		least = took < least ? took : least;
	}
	return least / ACKS;
}

static double tsc_mhz(void)
{
#ifdef __x86_64__
	double began = now_ns(), end;
	u64 ticks = __builtin_ia32_rdtsc();

	do
		end = now_ns();
	while (end - began < 50e6);
	return (double)(__builtin_ia32_rdtsc() - ticks) * 1e3 / (end - began);
#else
	return 0;
#endif
}

int main(void)
{
	ndm_v1_init(&v1, 100, 50);
	ndm_v2_init(&v2);
	printf("{\"v1_bytes\": %zu, \"v2_bytes\": %zu, ", sizeof(v1), sizeof(v2));
	printf("\"v1_ns\": %.2f, \"v2_ns\": %.2f, ", least_ns(v1_acks, 2), least_ns(v2_acks, 2));
	printf("\"v2_evaluation_ns\": %.2f, \"tsc_mhz\": %.1f}\n", least_ns(v2_acks, 8), tsc_mhz());
	return 0;
}
