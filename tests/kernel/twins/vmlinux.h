/* SPDX-License-Identifier: GPL-2.0 */
/* What the BPF program knows of the kernel, see kernel.h */
#include "kernel.h"

#define SEC(name)
#define __ksym
#define BPF_PROG(name, args...)	name(args)
#define BPF_CORE_READ_BITFIELD(pointer, field) ((pointer)->field)
#undef __always_inline
#define __always_inline		inline __attribute__((__always_inline__))
