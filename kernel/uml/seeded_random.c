// SPDX-License-Identifier: GPL-2.0
/*
 * The lab kernel's only source of host randomness is getrandom(): it seeds the kernel's generator.
 * Loaded before libc (LD_PRELOAD), this version gives a stream that depends on FAIRBED_SEED alone, so that
 * the same seed gives the same initial sequence numbers, ports and hash keys: the same run, bit for bit.
 *
 * splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static uint64_t next(void)
{
	static uint64_t state;
	static int seeded;

	if (!seeded) {
		const char *seed = getenv("FAIRBED_SEED");

		state = seed ? strtoull(seed, NULL, 10) : 0;
		seeded = 1;
	}
	uint64_t z = (state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	unsigned char *out = buffer;

	(void)flags;
	for (size_t done = 0; done < length;) {
		uint64_t word = next();
		size_t part = length - done < sizeof(word) ? length - done : sizeof(word);

		memcpy(out + done, &word, part);
		done += part;
	}
	return length;
}
