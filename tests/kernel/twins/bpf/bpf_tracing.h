/* SPDX-License-Identifier: GPL-2.0 */
/* all in vmlinux.h here */
