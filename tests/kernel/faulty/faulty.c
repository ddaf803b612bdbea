// SPDX-License-Identifier: GPL-2.0
/* Does wrong on purpose when loaded, so that a test can see that the sanitizers of
 * the lab kernel would speak: writes one byte behind an allocation, and shifts by
 * more than a type has bits.
 */
#include <linux/module.h>
#include <linux/slab.h>

static int behind = 72;		/* as many bytes as an ndm_tcp connection has */
module_param(behind, int, 0);

static int __init faulty_init(void)
{
	char *state = kmalloc(72, GFP_KERNEL);

	if (!state)
		return -ENOMEM;
	OPTIMIZER_HIDE_VAR(state);
	state[behind] = 1;
	pr_info("faulty: %d\n", 1 << behind);
	kfree(state);
	return 0;
}

static void __exit faulty_exit(void)
{
}

module_init(faulty_init);
module_exit(faulty_exit);
MODULE_DESCRIPTION("What the sanitizers must find");
MODULE_LICENSE("GPL");
