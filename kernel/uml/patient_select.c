// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that call select() in a tight loop until a peer answers stop virtual time: iperf3 does, when its control
 * connection has lost a packet. Loaded before libc (LD_PRELOAD), this select() is a little late: whatever spins on it
 * lets 50 us go by each time. A sender of 128 KB blocks could still send 20 Gbit/s.
 */
#define _GNU_SOURCE
#include <sys/select.h>
#include <time.h>

int select(int count, fd_set *reading, fd_set *writing, fd_set *failing, struct timeval *wait)
{
	const struct timespec late = { .tv_nsec = 50000 };
	struct timespec most = { 0 };

	if (wait) {
		most.tv_sec = wait->tv_sec;
		most.tv_nsec = wait->tv_usec * 1000;
	}
	nanosleep(&late, NULL);
	return pselect(count, reading, writing, failing, wait ? &most : NULL, NULL);
}
